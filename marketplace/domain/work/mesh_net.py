"""The addresses and names of a cluster's own network."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_int
from marketplace.domain.work.parts import MOST_MEMBERS

_FIRST_HOST: Final = 10
FIRST_GUEST: Final = 190
MOST_GUESTS: Final = 8
"""Machines of the consumer's own that join: numbers from :data:`FIRST_GUEST` on, far above every
member's, so that a guest is host 200 of its group's network and on.
"""
INTERFACE: Final = "tally0"
"""The mesh inside a member, on every host."""
MTU: Final = 1380
PREFIX: Final = 24
MEETING_PORT: Final = 29400
"""Where member 0 is met by the others' libraries for collective work, unless a job says another."""


def network(group: bytes) -> ipaddress.IPv4Network:
    """The addresses of a group's mesh: a /24 of those that no public host has (RFC 6598), by the
    group's hash. Two groups may share one: no host ever joins their networks.
    """
    at = int.from_bytes(canonical.blake2b_256(b"mesh" + group)[:2], "big") & 0x3FFF
    return ipaddress.IPv4Network((0x64400000 + (at << 8), PREFIX))


def is_guest(number: int) -> bool:
    """Whether who has that number in a mesh is its consumer's own machine, and no member."""
    return number >= FIRST_GUEST


def want_number(value: object) -> int:
    """*value* if it is a member's number or a guest's; :class:`Malformed`."""
    number = want_int(value, "member", 0, FIRST_GUEST + MOST_GUESTS - 1)
    return number if is_guest(number) else want_int(number, "member", 0, MOST_MEMBERS - 1)


def address(group: bytes, member: int) -> str:
    """Where *member* (from 0), or a guest, is in its group's mesh."""
    return str(network(group)[_FIRST_HOST + want_number(member)])


def host_name(member: int) -> str:
    """What *member*, or a guest, is called in its group's mesh."""
    return f"guest-{member - FIRST_GUEST}" if is_guest(member) else f"member-{member}"


@dataclass(frozen=True, slots=True)
class Seat:
    """What one member knows of its mesh before it starts: which *member* it is, and the *addresses*
    and *roles* of all, by number; no roles where members are equal.
    """

    member: int
    addresses: tuple[str, ...]
    roles: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Its own."""
        return self.addresses[self.member]

    def at(self, number: int) -> str:
        """Where that member is, or that guest."""
        if not is_guest(number):
            return self.addresses[number]
        net = ipaddress.IPv4Network((self.address, PREFIX), strict=False)
        return str(net[_FIRST_HOST + number])

    def names(self) -> dict[str, str]:
        """Where each name leads: every member has its own, and with roles that of its role and its
        number in it (``worker-0``); the first of a role is also called as the role.
        """
        found = {host_name(at): one for at, one in enumerate(self.addresses)}
        count = Counter[str]()
        for one, role in zip(self.addresses, self.roles, strict=False):
            found.setdefault(role, one)
            found[f"{role}-{count[role]}"] = one
            count[role] += 1
        return found

    def hosts(self) -> str:
        """A hosts file in which every member has its names: a replaced one keeps all."""
        rows = ["127.0.0.1 localhost", *(f"{one} {name}" for name, one in self.names().items())]
        return "".join(f"{row}\n" for row in rows)

    def told(self) -> dict[str, str]:
        """What a workload finds in its environment beside what its job says; libraries for
        collective work take the interface from it, for they look at a host's first one otherwise,
        and where member 0 is met.
        """
        return {
            "TALLY_MESH_ADDRESS": self.address,
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "NCCL_SOCKET_IFNAME": INTERFACE,
            "MASTER_ADDR": host_name(0),
            "MASTER_PORT": str(MEETING_PORT),
        }
