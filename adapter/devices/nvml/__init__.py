"""NVML: its faults, the thread that owns it, what devices are, and what they read."""
