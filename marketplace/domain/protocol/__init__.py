"""What adapters, payers and the market say to each other."""
