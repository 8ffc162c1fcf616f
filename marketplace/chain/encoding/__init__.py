"""Addresses, outputs, Plutus data and transactions as bytes."""
