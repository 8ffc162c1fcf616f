"""From what a transaction should do to its bytes."""
