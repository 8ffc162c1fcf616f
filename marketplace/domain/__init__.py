"""What all parties agree on: pure, without clock, IO or randomness.

Bytes that are signed or hashed are written here and nowhere else; ``tests/golden`` pins them.
"""
