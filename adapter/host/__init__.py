"""The machine itself: control groups, processes, clocks, keys."""
