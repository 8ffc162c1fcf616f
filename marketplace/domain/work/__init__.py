"""Jobs, job files, leases, workloads, preemptions."""
