"""What providers have, list and lease out."""
