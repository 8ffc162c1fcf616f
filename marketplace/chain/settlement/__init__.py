"""Which channels are settled, when, and by whom."""
