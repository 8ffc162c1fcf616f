"""Vouchers onto the chain, and which channels money moves over."""
