"""What a store's mount may connect to, enforced on the host by iptables.

Whoever posts a job names the address of his store, and rclone follows what the server there
answers. So every rclone of ours runs under a group of its own, whose packets go to the internet and
to what the owner allows: never to the host's own services, its neighbours or the cloud's metadata.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from adapter.core.workload import EgressUnenforced
from adapter.runtime.egress import CLOSED, Firewall, run_command
from adapter.runtime.stores.rclone import StoreRefused

GROUP: Final = 64_911
"""The group of every rclone that mounts a store; no user of the host should be in it."""
CHAIN: Final = "TALLY-STORE"
RESOLV: Final = Path("/etc/resolv.conf")
_OURS: Final = ("-m", "owner", "--gid-owner", str(GROUP), "-j", CHAIN)
Allowed = tuple[str, int]
"""A network or an address, and a TCP port; 0: any."""


def missing() -> str:
    """What this host lacks for it; empty for nothing."""
    code, said = run_command(("iptables", "-w", "5", "-m", "owner", "-h"))
    return "" if code == 0 and "gid-owner" in said else "iptables with its match owner"


class Guard(Firewall):
    """The rules of all stores' mounts; idempotent, and shared by every adapter on the host."""

    def ensure_stores(self, allowed: Sequence[Allowed]) -> None:
        """They stand, and let *allowed* through: called before every mount."""
        with self._locked():
            if self._rule("-n", "-L", CHAIN)[0]:
                self._must("-N", CHAIN)
            for network in CLOSED:
                rule = ("-d", network, "-j", "DROP")
                if not self._has(CHAIN, *rule):
                    self._must("-A", CHAIN, *rule)
            for rule in [*map(_opened, allowed), *_names()]:
                if not self._has(CHAIN, *rule):
                    self._must("-I", CHAIN, "1", *rule)
            self._first("OUTPUT", *_OURS)
            if self._rule("-n", "-L", "OUTPUT", tool="ip6tables")[0] == 0:
                rule = ("-m", "owner", "--gid-owner", str(GROUP), "-j", "DROP")
                if self._rule("-C", "OUTPUT", *rule, tool="ip6tables")[0]:
                    code, said = self._rule("-I", "OUTPUT", "1", *rule, tool="ip6tables")
                    if code:
                        raise EgressUnenforced(f"ip6tables: {said.strip()}")


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
