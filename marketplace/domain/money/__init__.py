"""Terms, receipts, vouchers, channels, invoices: what is signed and owed."""
