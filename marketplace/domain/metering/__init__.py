"""Readings of devices, the meters that count them, and the totals that receipts state."""
