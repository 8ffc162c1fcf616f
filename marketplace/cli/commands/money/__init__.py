"""Wallets, purses, channels and who pays from them: the commands that touch money."""
