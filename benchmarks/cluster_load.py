"""The load of ``tally bench cluster``, a process of its own: adapters that each run one member of a
cluster, at protocol level.

Real sockets, real signatures, no workload and no packet: a member is up as soon as its lease is
signed. It says where it is, takes up each order that the lease's key signed, says whom it hears
(who both name each other hear each other, found out in rounds as by a real adapter), and from its
first RUN on sends a receipt a second. Lines of JSON are the talk with the bench: it says
``{"members": n}`` before the cluster is posted; this process says ``{"open": n}``, then when each
of n members had been given all others first (``{"given_ns": t}``), when each had been ordered to
run (``{"runs_ns": t}``), for ``{"tell": true}`` what all of them hold, and ``{"failed": why}``.
Times are of the machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.abc

from benchmarks.hub_load import Adapter, Load
from marketplace.cli.embedded.child import die_with
from marketplace.cli.shared.refusals import first_tally_error
from marketplace.domain.errors import Refusal, TallyError
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster import ASSEMBLE_MS, HOLD_MS
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh import Heard, MeshPlace, MeshSight, SignedMesh, public

HEARS_S: Final = 0.3
"""Between two rounds of a real adapter while somebody is missing (``adapter/daemon/meshes.py``)."""
SAID_S: Final = 10.0
"""Whom it hears is said so often, though it be the same."""
_ENDPOINT: Final = "198.51.100.1"  # of no host (RFC 5737)
_RTT_US: Final = 400


@dataclass
class Group:
    """What the members in this process share: who they are, and what was reached when."""

    say: Callable[[dict[str, Any]], None]
    members: int = 0
    up: dict[int, Member] = field(default_factory=dict[int, "Member"])
    said: set[str] = field(default_factory=set[str])

    @property
    def keys(self) -> dict[int, bytes]:
        """Of all that are up."""
        return {at: one.place.key for at, one in self.up.items()}

    def look(self) -> None:
        """Say, once, what all of them have reached."""
        if not self.members or len(self.up) < self.members:
            return
        everybody = self.keys
        if all(one.has(everybody) for one in self.up.values()):
            self._once("given_ns")
            if all(one.runs for one in self.up.values()):
                self._once("runs_ns")

    def _once(self, what: str) -> None:
        if what not in self.said:
            self.said.add(what)
            self.say({what: time.monotonic_ns()})

    def told(self) -> dict[str, int]:
        """How many members are placed here, have keys of their own, have exactly all others on
        their list, run, and hear all others.
        """
        keys, members = self.keys, list(self.up.values())
        return {
            "placed": len(members),
            "keyed": len(set(keys.values())),
            "given": sum(one.has(keys) for one in members),
            "runs": sum(one.runs for one in members),
            "hears": sum(len(one.hears()) == self.members - 1 for one in members),
        }


@dataclass
class Member:
    """One that is up: its number, place, and newest order."""

    at: int
    place: MeshPlace
    group: Group
    order: ClusterOrder | None = None

    @property
    def runs(self) -> bool:
        """It was ordered to."""
        return self.order is not None and self.order.verb is Verb.RUN

    @property
    def named(self) -> dict[int, bytes]:
        """Whom its newest order names."""
        peers = self.order.peers if self.order is not None else ()
        return {peer.member: peer.key for peer in peers}

    def has(self, everybody: dict[int, bytes]) -> bool:
        """Its list is exactly the others."""
        return self.named == {at: key for at, key in everybody.items() if at != self.at}

    def hears(self) -> tuple[Heard, ...]:
        """Those that it names and that name it."""
        others = self.group.up
        return tuple(
            Heard(at, _RTT_US, 0, 0)
            for at, key in sorted(self.named.items())
            if at in others
            and others[at].place.key == key
            and others[at].named.get(self.at) == self.place.key
        )


class MemberAdapter(Adapter):
    """Runs one member."""

    def __init__(self, load: Load, tasks: anyio.abc.TaskGroup, group: Group) -> None:
        super().__init__(load, tasks)
        self._group = group
        self._seats: dict[str, int] = {}
        self._here: dict[str, Member] = {}

    async def _heard(self, message: wire.Message) -> None:
        match message:
            case wire.LeaseProposed(lease, job):
                self._seats[lease] = job.member
                await super()._heard(message)
            case wire.LeaseSigned(lease):
                await self._begin(lease)
            case wire.OrderSent(lease, order):
                await self._ordered(lease, order)
            case _:
                await super()._heard(message)

    async def _begin(self, lease: str) -> None:
        at = self._seats[lease]
        place = MeshPlace(lease, os.urandom(32), public(_ENDPOINT, 20_000 + at))
        member = self._here[lease] = self._group.up[at] = Member(at, place, self._group)
        await self.line.send(wire.LeaseProgress(lease, "STARTED", 0, {}))
        await self.line.send(wire.MeshPlaced(lease, SignedMesh.sign(self.signer, place)))
        self._tasks.start_soon(self._hear, member)

    async def _ordered(self, lease: str, signed: SignedOrder) -> None:
        member = self._here[lease]
        try:
            order = signed.verify(lease, self._terms[lease].session_vk)
        except Refusal as refusal:
            self._load.counted.refused.append(refusal.line())
            return
        if member.order is not None and order.version <= member.order.version:
            return
        ran, member.order = member.runs, order
        detail = {"verb": order.verb.value, "version": order.version}
        await self.line.send(wire.LeaseProgress(lease, "ORDERED", 0, detail))
        if member.runs and not ran:
            self._tasks.start_soon(self._tick, self._terms[lease])
        self._group.look()

    async def _hear(self, member: Member) -> None:
        """Say whom it hears, whenever that changes and now and then."""
        said: tuple[int, frozenset[int]] | None = None
        said_at, number = 0.0, 0
        while True:
            await anyio.sleep(HEARS_S)
            if member.order is None:
                continue
            heard, now = member.hears(), anyio.current_time()
            found = (member.order.version, frozenset(one.member for one in heard))
            if found != said or now - said_at >= SAID_S:
                said, said_at, number = found, now, number + 1
                lease = member.place.lease
                sight = MeshSight(lease, member.order.version, number, heard)
                await self.line.send(wire.MeshSeen(lease, SignedMesh.sign(self.signer, sight)))


async def _serve(url: str, count: int) -> None:
    """*count* adapters, until the bench is gone."""
    load, group = Load(url, _quiet), Group(_say)
    async with anyio.create_task_group() as tasks:
        adapters = [MemberAdapter(load, tasks, group) for _ in range(count)]
        for one in adapters:
            tasks.start_soon(one.line.run)
            await one.line.open.wait()
        for one in adapters:
            await one.offer(1, cluster_free_ms=ASSEMBLE_MS + HOLD_MS, mesh=True)
        _say({"open": count})
        async for line in anyio.wrap_file(sys.stdin):
            told: dict[str, Any] = json.loads(line)
            if "members" in told:
                group.members = told["members"]
                load.counting = True
            else:
                counted = load.counted
                late = counted.late + sum(one.overdue() for one in adapters)
                _say({
                    **group.told(), "ticks": len(counted.round_trips), "late": late,
                    "refused": counted.refused[:3],
                })  # fmt: skip
        tasks.cancel_scope.cancel()


def _quiet(_: dict[str, Any]) -> None:
    """Nobody asks when each lease begins to tick."""


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main(argv: list[str]) -> int:
    """The load's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("parent", type=int)
    options = parser.parse_args(argv)
    die_with(options.parent)
    try:
        anyio.run(_serve, options.url, options.count)
    except TallyError as error:
        _say({"failed": error.message})
    except BaseExceptionGroup as group:
        first = first_tally_error(group)
        if first is None:
            raise
        _say({"failed": first.message})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
