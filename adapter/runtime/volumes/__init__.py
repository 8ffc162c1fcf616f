"""Disk that outlives a lease: a file system of its own in a file, as large as was rented."""
