"""A file a command group; each is loaded when it is called (``cli/main.py``)."""
