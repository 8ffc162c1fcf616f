"""What commands share: errors and tables, the chain session, a running job's screen."""
