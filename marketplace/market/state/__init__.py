"""What one process of the market keeps in memory beside the store, rebuilt from it at a start."""
