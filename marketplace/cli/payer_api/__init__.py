"""The payer's API: jobs over HTTP on this machine, for programs that hold no key."""
