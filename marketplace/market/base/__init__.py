"""What all use cases stand on: records, ports, errors, settings."""
