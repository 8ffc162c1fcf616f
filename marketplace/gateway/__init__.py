"""Byte streams through the market to the ports of workloads."""
