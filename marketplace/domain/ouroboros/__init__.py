"""Cardano's node-to-node protocol, as far as a relay's tip is asked by it."""
