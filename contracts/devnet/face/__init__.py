"""The devnet's HTTP face: Blockfrost's API as pycardano, blockfrost-python and wallets use it, and
our own controls.
"""
