"""The market's use cases: load, decide, apply, and only then act."""
