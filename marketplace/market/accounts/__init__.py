"""Accounts: sign-in, API keys, webhooks, files, and who may ask for more."""
