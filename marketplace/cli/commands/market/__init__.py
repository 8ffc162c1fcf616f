"""``tally market``: serving one, its database, and what an operator does to it."""
