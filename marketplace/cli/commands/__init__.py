"""A file a command group, or a folder; each is loaded when it is called (``cli/main.py``)."""
