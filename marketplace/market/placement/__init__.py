"""Who gets which place: matching, what is lacking, and which providers are trusted with a start."""
