"""Decisions about jobs and leases, written and performed."""
