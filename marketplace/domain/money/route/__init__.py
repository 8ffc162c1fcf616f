"""A payment over a router: two channels (hops), one lease, and what each side signs for it."""
