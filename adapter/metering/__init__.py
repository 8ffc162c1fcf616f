"""Readings of running workloads, and evidence for charts."""
