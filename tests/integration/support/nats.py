"""Hosts behind NATs on this machine: network namespaces around a middle one, where the market's
relay is. What is out there has addresses of the world, which none of these packets ever reaches.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapter.mesh import netns
from adapter.mesh.netns import MeshFault, run
from adapter.runtime.own_processes import own_modules
from marketplace.domain.work.mesh import Candidate
from marketplace.domain.work.mesh_relay import RelayPass, RelayPlace
from tests.integration.support.meshes import until

RELAY: Final = "11.0.9.1"
FIRST: Final = 42_000
PORTS: Final = 4
SECRET: Final = b"s" * 32
Side = tuple[str, ...] | None
ROOT: Final = str(Path(__file__).parents[3])
HOST: Final = """
import json, sys
from pathlib import Path
import structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from adapter.mesh.host import MeshHost
from adapter.mesh.reach import Reach
from marketplace.domain.work.mesh import MeshPeer, Candidate
from marketplace.domain.work.mesh_relay import RelayPass, RelayPlace
from tests.integration.support.meshes import seat
host = MeshHost(Path(sys.argv[1]), sys.argv[2], Reach(sys.argv[3], 20000, 8))
at, lease = int(sys.argv[4]), sys.argv[5]
for line in sys.stdin:
    asked = json.loads(line)
    match asked.pop(0):
        case "up":
            placed = host.up(lease, seat(at))
            told = [placed.key.hex(), [one.to_wire() for one in placed.candidates]]
        case "given":
            given = [bytes.fromhex(one) if n > 2 else one for n, one in enumerate(asked[0])]
            told = host.given(lease, RelayPass.from_wire(given))
        case "meet":
            told = host.meet(lease, [
                MeshPeer(one, bytes.fromhex(key), tuple(map(Candidate.from_wire, found)))
                for one, key, found in asked[0]
            ])
        case "hear":
            told = {one.member: one.path.value for one in host.hear(lease, 0.3)}
    print(json.dumps(told), flush=True)
host.down(lease)
host.close()
"""


@dataclass(frozen=True)
class Net:
    """Namespaces whose names begin with *name*: ``m`` in the middle, and of each side *at* its NAT
    ``n<at>`` and its host ``h<at>``.
    """

    name: str

    def inside(self, where: str, *line: str) -> str:
        """What a command says there."""
        return run("ip", "netns", "exec", self.name + where, *line)

    def begin(self, where: str, code: list[str]) -> subprocess.Popen[bytes]:
        """A program of Python's there, with the machine's own files."""
        return subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.name}{where}", sys.executable, *code],
            env={**own_modules(), "PYTHONPATH": ROOT, "PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def cut(self, on: bool) -> None:
        """The ways between the sides; those to the relay stay."""
        self.inside("m", "sysctl", "-qw", f"net.ipv4.ip_forward={0 if on else 1}")


@contextlib.contextmanager
def net(name: str, *sides: Side) -> Iterator[Net]:
    """*sides*: of each what its MASQUERADE is told beside; None: its host has an address of the
    world.
    """
    made = Net(name)
    names = ["m", *(f"{kind}{at}" for at in range(len(sides)) for kind in "nh")]
    try:
        for one in names:
            run("ip", "netns", "add", name + one)
            made.inside(one, "ip", "link", "set", "lo", "up")
        made.inside("m", "ip", "address", "add", f"{RELAY}/32", "dev", "lo")
        made.cut(False)
        for at, told in enumerate(sides):
            _side(made, at, told)
        yield made
    finally:
        for one in names:
            with contextlib.suppress(MeshFault):
                run("ip", "netns", "del", name + one)


def _side(made: Net, at: int, told: Side) -> None:
    nat, host = f"n{at}", f"h{at}"
    inner = f"10.7.{at}" if told is not None else f"11.7.{at}"
    for one, other, nets in (("m", nat, f"11.0.{at}"), (nat, host, inner)):
        ends = (f"w{other}", f"i{other}")
        run(
            "ip", "link", "add", ends[0], "netns", made.name + one, "type", "veth",
            "peer", "name", ends[1], "netns", made.name + other,
        )  # fmt: skip
        for where, end, last in ((one, ends[0], 1), (other, ends[1], 2)):
            made.inside(where, "ip", "address", "add", f"{nets}.{last}/24", "dev", end)
            made.inside(where, "ip", "link", "set", end, "up")
        made.inside(other, "ip", "route", "add", "default", "via", f"{nets}.1")
    made.inside(nat, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    if told is None:
        made.inside("m", "ip", "route", "add", f"{inner}.0/24", "via", f"11.0.{at}.2")
        return
    made.inside(
        nat, "iptables", "-A", "INPUT", "-i", f"i{nat}", "-j", "DROP"
    )  # as every router does: else what comes unasked takes the mapping that the host is to have
    made.inside(
        nat, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", f"i{nat}", "-j", "MASQUERADE", *told
    )  # fmt: skip


@contextlib.contextmanager
def relay(made: Net) -> Iterator[subprocess.Popen[bytes]]:
    """The market's, in the middle."""
    code = ["-m", "marketplace.mesh_relay.serving", RELAY, str(FIRST), str(PORTS)]
    one = made.begin("m", code)
    assert one.stdin is not None and one.stdout is not None
    try:
        one.stdin.write(SECRET.hex().encode() + b"\n")
        one.stdin.flush()
        assert one.stdout.readline() == b"ready\n"
        yield one
    finally:
        one.stdin.close()
        one.kill()
        one.wait()
        one.stdout.close()


class Member:
    """An adapter's meshes on the host of side *at*, with one lease, as member *at*."""

    def __init__(self, made: Net, at: int, state: Path, name: str, endpoint: str = "") -> None:
        code = ["-c", HOST, str(state), name, endpoint, str(at), f"lease_{name}"]
        self._program = made.begin(f"h{at}", code)
        self.at = at
        self.name = netns.name_of(f"lease_{name}", name)
        self.key: str = self.ask("up")[0]

    def ask(self, what: str, *more: object) -> Any:
        """What it answers to that."""
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(json.dumps([what, *more]).encode() + b"\n")
        self._program.stdin.flush()
        return json.loads(self._program.stdout.readline())

    def given(self, ticket: RelayPass) -> None:
        """Leave to use the relay."""
        wire = [one.hex() if isinstance(one, bytes) else one for one in ticket.to_wire()]
        self.ask("given", wire)

    def candidates(self) -> list[Candidate]:
        """Where it is reached, by now."""
        return [Candidate.from_wire(one) for one in self.ask("up")[1]]

    def kinds(self) -> list[str]:
        """Of those."""
        return [one.kind.value for one in self.candidates()]

    def path_to(self, other: Member) -> str:
        """By what it hears that one; empty for not at all."""
        found: str = self.ask("hear").get(str(other.at), "")
        return found

    def end(self) -> None:
        """It takes its mesh away."""
        assert self._program.stdin is not None
        self._program.stdin.close()
        try:
            self._program.wait(10)
        finally:
            self._program.kill()
            self._program.wait()
            if self._program.stdout is not None:
                self._program.stdout.close()


def meet(members: list[Member]) -> None:
    """Each is told of the others as they are reached now."""
    told = [(one.at, one.key, [c.to_wire() for c in one.candidates()]) for one in members]
    for one in members:
        assert one.ask("meet", [other for other in told if other[0] != one.at]) == []


def pass_of(member: int) -> RelayPass:
    """As the market would give it."""
    place = RelayPlace(RELAY, FIRST, PORTS, SECRET)
    return place.give("gang_1", member, 1, time.time_ns() // 1_000_000)


def between(one: Member, other: Member, path: str, seconds: float) -> bool:
    """Whether both hear each other by that kind of path, within that time."""
    return until(
        lambda: one.path_to(other) == path and other.path_to(one) == path, seconds
    )  # fmt: skip
