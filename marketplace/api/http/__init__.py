"""What every route shares: who asks, limits, idempotency, pages, problems, streams."""
