"""What a store's mount may connect to, enforced on the host by iptables.

Whoever posts a job names the address of his store, and rclone follows what the server there
answers. So every rclone of ours runs under a group, whose packets go to the internet and to what
the owner allows: never to the host's own services, its neighbours or the cloud's metadata. What is
allowed makes the group's number, so that no rule of one adapter, or of before, opens anything to
another.
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from adapter.core.workload import EgressUnenforced
from adapter.runtime.egress import CLOSED, LOCK, Command, Firewall, run_command
from marketplace.rclone import StoreRefused

_FIRST: Final = 1 << 30
"""Groups from here on are ours: far beyond those that a host's users have."""
RESOLV: Final = Path("/etc/resolv.conf")
Allowed = tuple[str, int]
"""A network or an address, and a TCP port; 0: any."""


def missing() -> str:
    """What this host lacks for it; empty for nothing."""
    code, said = run_command(("iptables", "-w", "5", "-m", "owner", "-h"))
    return "" if code == 0 and "gid-owner" in said else "iptables with its match owner"


class Guard(Firewall):
    """The rules of the mounts of the adapter whose state is at *state*; idempotent."""

    def __init__(self, state: Path, command: Command = run_command, lock: Path = LOCK) -> None:
        super().__init__(command, lock)
        self._state = state

    def group(self, allowed: Sequence[Allowed]) -> int:
        """Of an rclone that may reach *allowed* beside the internet."""
        told = repr((str(self._state.resolve()), sorted(set(allowed)), _names()))
        return _FIRST + int.from_bytes(hashlib.sha256(told.encode()).digest()[:3], "big")

    def ensure_stores(self, allowed: Sequence[Allowed]) -> int:
        """The group, whose rules stand: called before every mount."""
        group = self.group(allowed)
        chain = chain_of(group)
        rules = [
            *map(_opened, sorted(set(allowed))),
            *_names(),
            *(("-d", network, "-j", "DROP") for network in CLOSED),
        ]
        with self._locked():
            if not all(self._has(chain, *rule) for rule in rules):
                self._replace(chain, rules)
            self._first("OUTPUT", *_jump(group))
            if self._rule("-n", "-L", "OUTPUT", tool="ip6tables")[0] == 0:
                rule = _closed(group)
                if self._rule("-C", "OUTPUT", *rule, tool="ip6tables")[0]:
                    code, said = self._rule("-I", "OUTPUT", "1", *rule, tool="ip6tables")
                    if code:
                        raise EgressUnenforced(f"ip6tables: {said.strip()}")
        return group

    def forget_group(self, group: int) -> None:
        """No mount of that group is left."""
        chain = chain_of(group)
        with self._locked():
            self._rule("-D", "OUTPUT", *_jump(group))
            self._rule("-F", chain)
            self._rule("-X", chain)
            self._rule("-D", "OUTPUT", *_closed(group), tool="ip6tables")


def chain_of(group: int) -> str:
    """The rules of a group."""
    return f"TALLY-STORE-{group - _FIRST:06x}"


def _jump(group: int) -> tuple[str, ...]:
    return ("-m", "owner", "--gid-owner", str(group), "-j", chain_of(group))


def _closed(group: int) -> tuple[str, ...]:
    return ("-m", "owner", "--gid-owner", str(group), "-j", "DROP")


def _opened(one: Allowed) -> tuple[str, ...]:
    network, port = one
    where = ("-d", str(ipaddress.ip_network(network)))
    return (*where, *(("-p", "tcp", "-m", "tcp", "--dport", str(port)) if port else ()), "-j",
            "RETURN")  # fmt: skip


def _names() -> list[tuple[str, ...]]:
    """To the host's own servers of names."""
    try:
        words = [line.split() for line in RESOLV.read_text().splitlines()]
    except OSError:
        return []
    found: list[tuple[str, ...]] = []
    for said in words:
        if said[:1] != ["nameserver"] or len(said) < 2 or ":" in said[1]:
            continue
        for kind in ("udp", "tcp"):
            rule = ("-d", f"{said[1]}/32", "-p", kind, "-m", kind, "--dport", "53", "-j", "RETURN")
            found.append(rule)
    return found


def addresses_of(host: str) -> set[str]:
    """Of IPv4; none for a host that has none."""
    try:
        rows = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(row[4][0]) for row in rows}


def want_reachable(at: tuple[str, int], allowed: Sequence[Allowed]) -> None:
    """StoreRefused where a mount could not connect there: said before it is tried."""
    host, port = at
    found = addresses_of(host)
    if not found:
        raise StoreRefused(f"the store's host {host} has no address")
    for address in sorted(found):
        ip = ipaddress.ip_address(address)
        closed = any(ip in ipaddress.ip_network(one) for one in CLOSED)
        known = any(
            ip in ipaddress.ip_network(network) and may in (0, port) for network, may in allowed
        )
        if closed and not known:
            raise StoreRefused(
                f"the store's host {host} is {address}, in a network that this provider's owner"
                " opens to no store"
            )
