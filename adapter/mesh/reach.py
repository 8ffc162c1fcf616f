"""Where this host's mesh devices are reached, as its owner said."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh import Candidate, public, want_endpoint

BEHIND_NAT: Final = "nat"
"""What an owner says for an endpoint where nobody outside begins a connection to the host."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Others reach this host at *endpoint*, an IPv4 address, by UDP: at its ports from *first* on,
    *count* of them, one a lease. Empty: behind a NAT, where only paths that are tried lead to it.
    """

    endpoint: str
    first: int
    count: int

    @property
    def ports(self) -> range:
        """All of them."""
        return range(self.first, self.first + self.count)

    def candidates(self, port: int) -> tuple[Candidate, ...]:
        """Of the lease at *port*, by what its owner says."""
        return public(self.endpoint, port) if self.endpoint else ()

    def may_send_to(self, endpoint: str) -> bool:
        """Whether packets may go to *endpoint*, which a consumer names: from a public host to no
        private network, least of all its own.
        """
        private = bool(self.endpoint) and not ipaddress.IPv4Address(self.endpoint).is_global
        return private or ipaddress.IPv4Address(endpoint).is_global


def own_address() -> str:
    """The IPv4 address that this host sends from; empty in no network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("198.51.100.1", 9))  # of no host (RFC 5737): the way to it is asked
            return want_endpoint(way.getsockname()[0])
        except (OSError, Malformed):
            return ""
