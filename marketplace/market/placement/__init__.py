"""Which providers are trusted with a start."""
