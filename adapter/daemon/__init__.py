"""The running adapter: one loop of decisions, and what feeds it and acts for it."""
