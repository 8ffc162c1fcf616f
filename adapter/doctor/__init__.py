"""`tally adapter doctor`: what keeps this host from earning, and what to do about it."""
