"""One market process: all its parts put together and run."""
