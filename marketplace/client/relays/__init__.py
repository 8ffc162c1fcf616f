"""Relays that are kept: a volume and a relay each, begun elsewhere when their host is gone."""
