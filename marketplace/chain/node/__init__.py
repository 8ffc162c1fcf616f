"""The doors to a chain: reading, submitting, following transactions."""
