"""Decisions about jobs and leases, pure: records and an event in, changed records out."""
