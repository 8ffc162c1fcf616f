"""Receipts answered by vouchers: the decision, the books on disk, the process around them."""
