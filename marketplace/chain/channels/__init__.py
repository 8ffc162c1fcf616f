"""Channels as the chain shows them: found, followed, with what they can pay."""
