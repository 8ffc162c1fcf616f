"""What a workload may connect to, enforced on the host by iptables.

Every lease has its own bridge, named ``tly…``, so that a handful of rules by interface prefix hold
for all of them, also for one that is created between two commands:

* to the host itself, by any of its addresses: nothing but answers.  A network that Docker calls
  *internal* still reaches services bound to 0.0.0.0 through the bridge's gateway; this closes it;
* to private, link-local (the cloud's metadata address), shared and multicast ranges: nothing;
* to the internet: only what LIST or OPEN allows; NONE is an internal network besides.

The rules stand in the ``mangle`` table: dockerd takes its jump to DOCKER-USER out and puts it back
whenever a network is created, and firewall managers flush ``filter``; each would leave a gap in
which a running workload reaches what it must not.  For the same reason a chain is replaced in one
transaction, never flushed and refilled.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import shutil
import socket
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapter.core.workload import EgressUnenforced, RuntimeRefused

PREFIX: Final = "tly"
LOCK: Final = Path("/run/lock/tally-firewall")
CLOSED: Final = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
TABLE: Final = "mangle"
HOST, FORWARD, LISTED, OPENED = "TALLY-HOST", "TALLY-FORWARD", "TALLY-LISTED", "TALLY-OPENED"
_ANSWERS: Final = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
WANTED: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    HOST: [(*_ANSWERS, "-j", "ACCEPT"), ("-j", "DROP")],
    FORWARD: [
        (*_ANSWERS, "-j", "RETURN"),
        *(("-d", network, "-j", "DROP") for network in CLOSED),
        ("-j", LISTED),
        ("-j", OPENED),
        ("-j", "DROP"),
    ],
}
"""The chains that are the same for all leases, rule by rule as ``iptables -S`` prints them."""

Command = Callable[[Sequence[str], str], tuple[int, str]]
"""Runs a command line with text on its input; its exit status and what it said."""


def run_command(line: Sequence[str], text: str = "") -> tuple[int, str]:
    """Run *line* with a deadline of 10 s."""
    try:
        done = subprocess.run(
            line, input=text.encode(), capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def bridge_name(lease: str, adapter: str) -> str:
    """The lease's interface: unique on a host, at most 15 characters as the kernel wants."""
    return PREFIX + hashlib.sha256(f"{adapter}/{lease}".encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class Target:
    """An address and port that LIST allows, and the name it was asked for."""

    name: str
    address: str
    port: int


def resolve(allow: Sequence[str]) -> list[Target]:
    """``host:port`` entries as addresses, fixed for the workload's life.

    Refuses an entry without a port, a name that does not resolve, and any address in a range that
    is closed to all: a name must not become a way to the host's neighbours.
    """
    found: list[Target] = []
    for entry in allow:
        name, _, port = entry.rpartition(":")
        if not name or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise RuntimeRefused(f"egress {entry!r} is not host:port", entry=entry)
        try:
            rows = socket.getaddrinfo(name, int(port), socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            raise RuntimeRefused(f"egress {entry!r} does not resolve", entry=entry) from error
        for address in sorted({str(row[4][0]) for row in rows}):
            if is_closed(address):
                raise RuntimeRefused(f"egress {entry!r} leads to {address}, which is closed to all")
            found.append(Target(name, address, int(port)))
    return found


def is_closed(address: str) -> bool:
    """True for an address that no workload may connect to."""
    ip = ipaddress.ip_address(address)
    return not isinstance(ip, ipaddress.IPv4Address) or any(
        ip in ipaddress.ip_network(one) for one in CLOSED
    )


class Firewall:
    """The rules; idempotent, and shared by every adapter on the host."""

    def __init__(self, command: Command = run_command, lock: Path = LOCK) -> None:
        self._command = command
        self._lock = lock

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Check-then-change must not interleave with another adapter's on the same host."""
        try:
            with self._lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise EgressUnenforced(f"{self._lock}: {error}") from error

    def _rule(self, *arguments: str, tool: str = "iptables") -> tuple[int, str]:
        return self._command((tool, "-w", "5", "-t", TABLE, *arguments), "")

    def _must(self, *arguments: str) -> None:
        code, said = self._rule(*arguments)
        if code:
            raise EgressUnenforced(f"iptables {' '.join(arguments)}: {said.strip()}")

    def _has(self, chain: str, *rule: str) -> bool:
        return self._rule("-C", chain, *rule)[0] == 0

    def ensure(self) -> None:
        """The rules that hold for all leases.  Called before every start: a daemon's restart or
        another tool may have flushed them."""
        with self._locked():
            if not self._stands(f"{PREFIX}+"):
                self._ensure(f"{PREFIX}+")

    def _stands(self, every: str) -> bool:
        """Whether every rule is in its place already, from two listings: the ordinary case of a
        start, which two dozen questions one by one would slow down.  Anything unusual is looked at
        closely.
        """
        code, listing = self._rule("-S")
        chains = _chains(listing) if code == 0 else {}
        jumps = {"INPUT": HOST, "FORWARD": FORWARD}
        closed = ["-i", every, "-j", "DROP"]
        code, listing = self._rule("-S", tool="ip6tables")
        ipv6 = _chains(listing) if code == 0 else {}
        return (
            {LISTED, OPENED} <= chains.keys()
            and all(chains.get(c) == [list(r) for r in rules] for c, rules in WANTED.items())
            and all(chains.get(c, [])[:1] == [["-i", every, "-j", to]] for c, to in jumps.items())
            and all(closed in ipv6.get(chain, []) for chain in jumps)
        )

    def _ensure(self, every: str) -> None:
        for chain in (LISTED, OPENED):
            if self._rule("-n", "-L", chain)[0]:
                self._must("-N", chain)
        for chain, rules in WANTED.items():
            if not all(self._has(chain, *rule) for rule in rules):
                self._replace(chain, rules)
        self._first("INPUT", "-i", every, "-j", HOST)
        self._first("FORWARD", "-i", every, "-j", FORWARD)
        self._close_ipv6(every)

    def _replace(self, chain: str, rules: Sequence[Sequence[str]]) -> None:
        """Make *rules* the chain's content in one transaction."""
        lines = [f"*{TABLE}", f":{chain} - [0:0]"]
        lines += [f"-A {chain} {' '.join(rule)}" for rule in rules]
        text = "\n".join([*lines, "COMMIT", ""])
        code, said = self._command(("iptables-restore", "-w", "5", "--noflush"), text)
        if code:
            raise EgressUnenforced(f"iptables-restore: {said.strip()}")

    def _first(self, chain: str, *rule: str) -> None:
        """Make *rule* the chain's first: another's ACCEPT before it would void it.  The new one is
        put in before an old one is taken out, so there is no moment without."""
        if self._places(chain, rule)[:1] == [1]:
            return
        self._must("-I", chain, "1", *rule)
        for place in reversed(self._places(chain, rule)[1:]):
            self._must("-D", chain, str(place))

    def _places(self, chain: str, rule: Sequence[str]) -> list[int]:
        """At which numbers, from 1, *rule* stands in the chain."""
        _code, listing = self._rule("-S", chain)
        rules = [line.split()[2:] for line in listing.splitlines() if line.startswith("-A")]
        return [place for place, found in enumerate(rules, 1) if found == list(rule)]

    def _close_ipv6(self, every: str) -> None:
        """Lease networks have no IPv6; this holds should a kernel give one an address anyway."""
        if self._rule("-n", "-L", "INPUT", tool="ip6tables")[0]:
            return  # no IPv6 in this kernel
        for chain in ("INPUT", "FORWARD"):
            rule = ("-i", every, "-j", "DROP")
            if self._rule("-C", chain, *rule, tool="ip6tables")[0]:
                code, said = self._rule("-I", chain, "1", *rule, tool="ip6tables")
                if code:
                    raise EgressUnenforced(f"ip6tables: {said.strip()}")

    def allow(self, bridge: str, targets: Sequence[Target]) -> None:
        """LIST: these addresses and ports, and nothing else."""
        with self._locked():
            for target in targets:
                rule = (
                    "-i", bridge, "-d", target.address, "-p", "tcp", "--dport", str(target.port),
                    "-j", "ACCEPT",
                )  # fmt: skip
                if not self._has(LISTED, *rule):
                    self._must("-A", LISTED, *rule)

    def open(self, bridge: str) -> None:
        """OPEN: everything that is not closed to all."""
        rule = ("-i", bridge, "-j", "ACCEPT")
        with self._locked():
            if not self._has(OPENED, *rule):
                self._must("-A", OPENED, *rule)

    def forget(self, bridge: str) -> None:
        """Remove a lease's own rules."""
        with self._locked():
            code, listing = self._rule("-S")
            chains = _chains(listing) if code == 0 else {}
            for chain in (LISTED, OPENED):
                for rule in chains.get(chain, []):
                    if bridge in rule:
                        self._rule("-D", chain, *rule)


def _chains(listing: str) -> dict[str, list[list[str]]]:
    """Each chain's rules, in order, from what ``iptables -S`` prints of a table."""
    chains: dict[str, list[list[str]]] = {}
    for line in listing.splitlines():
        words = line.split()
        if words[:1] in (["-P"], ["-N"]) and len(words) > 1:
            chains.setdefault(words[1], [])
        elif words[:1] == ["-A"] and len(words) > 1:
            chains.setdefault(words[1], []).append(words[2:])
    return chains


def available() -> bool:
    """True when the iptables command is on this host."""
    return shutil.which("iptables") is not None
