"""The bodies that routes take and give."""
