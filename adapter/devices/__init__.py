"""GPUs: NVML, what the host offers, MIG, scrubbing between tenants, prices."""
