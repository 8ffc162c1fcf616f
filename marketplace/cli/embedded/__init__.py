"""The whole product on one machine: each part a process, started and ended together."""
