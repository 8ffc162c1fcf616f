"""The adapter's channels on the chain: watched, claimed and finished without believing a market."""
