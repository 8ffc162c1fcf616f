"""What programs use: a market, its jobs, the same without ``async``."""
