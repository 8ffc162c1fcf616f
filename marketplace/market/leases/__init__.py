"""What adapters and payers tell the market: progress, receipts, vouchers."""
