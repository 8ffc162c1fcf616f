"""Services: as many replicas of a job as are wanted, kept running by whoever pays for them."""
