"""What the adapter must still know after a ``kill -9``: rows on disk, and their form."""
