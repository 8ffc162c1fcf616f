"""By what a client's network address is counted, wherever something is limited by address."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def counted_as(address: str) -> str:
    """The one address that stands for everything that a client at *address* has: itself for IPv4,
    the first of its /64 for IPv6 (RFC 6177: a site has a /64 at least), the IPv4 address of one
    that is only written as IPv6 (RFC 4291, 2.5.5.2). Empty for what is no address. Naming it again
    changes nothing.
    """
    try:
        known = ip_address(address)
    except ValueError:
        return ""
    if isinstance(known, IPv6Address):
        known = known.ipv4_mapped or IPv6Address(int(known) >> 64 << 64)
    return str(known)
