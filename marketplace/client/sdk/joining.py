"""A machine of the consumer's own joins a cluster's mesh, by a file that any WireGuard takes.

Its key goes into this home's list of guests, from which whoever keeps the cluster signs it into
every member's order; the file names members by the keys that their adapters signed. So the market
passes both on, and adds nobody to either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from marketplace.client.clusters import wireguard
from marketplace.client.clusters.guests import Guest, Guests
from marketplace.client.clusters.wireguard import GuestKey, Reached
from marketplace.client.sdk.cluster import ClusterStanding, NoCluster, Standing, standing
from marketplace.client.sdk.read_only import PurseNeeded, Reader
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import Candidate, MeshPeer, MeshUnproven, PathKind, public
from marketplace.domain.work.mesh_net import is_guest

SIGNED_S: Final = 30.0
LOOK_S: Final = 1.0
AWAY: Final = "no address of the world leads to its host; `--stay` joins it by the market's relay"
NO_PLACE: Final = "its adapter has not said yet where it is reached"


class NoMesh(NoCluster):
    """A cluster whose members have no network of their own, or that is over."""

    code = "NO_MESH"
    remedy = "say `network: mesh` in the job file, and join while the cluster lives"


class GuestUnsigned(Refusal):
    """Nobody has signed the guest into its cluster, or out of it, yet."""

    code = "GUEST_UNSIGNED"
    remedy = (
        "leave `tally job run` or `tally payer run` running with this --home: whoever pays for the"
        " cluster signs for guests, with its next look"
    )


@dataclass(frozen=True)
class Joined:
    """The *guest* of *gang*, whose group is *group*, with its *key*; its members as they are
    *reached* now, and where the market's relay takes packets for them.
    """

    gang: str
    group: bytes
    guest: Guest
    key: GuestKey
    reached: tuple[Reached, ...]
    relays: Mapping[int, Candidate]

    @property
    def hidden(self) -> dict[int, Candidate]:
        """Of the relay's places those of members that are not reached otherwise."""
        away = {one.member for one in self.reached if one.why}
        return {at: way for at, way in self.relays.items() if at in away}

    def text(self, by: Mapping[int, str], listen: int = 0) -> str:
        """The WireGuard file; *by*: where members that only the relay leads to are sent to."""
        said = [
            Reached(one.member, one.key, by[one.member]) if one.member in by else one
            for one in self.reached
        ]
        return wireguard.text_of(self.gang, self.group, self.guest, self.key, said, listen)


def living(found: ClusterStanding) -> tuple[Standing, ...]:
    """The members that a lease runs and of which something is proven."""
    return tuple(one for one in found.members if one.terms is not None and not one.unproven)


async def meshed(reader: Reader, name: str) -> ClusterStanding:
    """The cluster *name*; :class:`NoMesh`, :class:`NoCluster`."""
    found = await standing(reader, name)
    if not found.mesh or found.over:
        raise NoMesh(f"{found.gang} has no mesh" if not found.mesh else f"{found.gang} is over")
    return found


async def group_of(reader: Reader, found: ClusterStanding) -> bytes:
    """What its members have in common, by the jobs that this purse signed for: each under the
    number that the market shows it with. :class:`MeshUnproven`.
    """
    groups: set[bytes] = set()
    for one in living(found):
        spec = JobSpec.from_wire((await reader.job(one.job).refresh())["spec"])
        assert one.terms is not None
        if spec.hash != one.terms.work or spec.member != one.member or not spec.mesh_address:
            raise MeshUnproven(f"member {one.member} is another job than this purse agreed to")
        groups.add(spec.group)
    if len(groups) != 1:
        raise MeshUnproven(f"{found.gang} has no member yet, or members of several groups")
    return groups.pop()


def own(endpoint: str) -> tuple[Candidate, ...]:
    """Where members reach this machine, of ``HOST:PORT``; none for an empty one. Malformed."""
    if not endpoint:
        return ()
    host, _, port = endpoint.rpartition(":")
    if not port.isdecimal() or len(port) > 5:
        raise Malformed("an endpoint is IPV4:PORT, such as 203.0.113.7:51820")
    return tuple(Candidate.from_wire(one.to_wire()) for one in public(host, int(port)))


def reached(found: ClusterStanding, sends_first: bool) -> tuple[Reached, ...]:
    """How a guest finds each member that has a lease; *sends_first*: members are told where it
    is.
    """
    rows: list[Reached] = []
    for one in found.members:
        if one.lease and (one.unproven or one.place is None):
            rows.append(Reached(one.member, b"", "", one.unproven or NO_PLACE))
        if one.unproven or one.place is None:
            continue
        at = next((way for way in one.place.candidates if way.kind is PathKind.PUBLIC), None)
        endpoint = f"{at.endpoint}:{at.port}" if at is not None else ""
        why = "" if endpoint or sends_first else AWAY
        rows.append(Reached(one.member, one.place.key, endpoint, why))
    return tuple(rows)


def relays(found: ClusterStanding) -> dict[int, Candidate]:
    """Where the market's relay takes packets for each member that has such a place."""
    return {
        one.member: way
        for one in living(found)
        if one.place is not None
        for way in one.place.candidates
        if way.kind is PathKind.RELAY
    }


async def join(
    reader: Reader, found: ClusterStanding, key: GuestKey, candidates: Sequence[Candidate],
    until_ms: int, first: Callable[[Joined], None],
) -> Joined:  # fmt: skip
    """Let who has *key* in until then: wait until every living member's order says so.
    :class:`GuestUnsigned` where that does not come about in time. *first* keeps what it has by
    then, so that the same machine may come again.
    """
    group = await group_of(reader, found)
    guests = Guests(_home(reader), found.gang)
    guest = guests.let_in(key.public, until_ms, candidates, time.time_ns() // 1_000_000)
    first(_joined(found, group, guest, key))
    found = await _until(reader, found.gang, lambda one: guest.peer in _peers(one))
    return _joined(found, group, guest, key)


async def again(reader: Reader, before: Joined) -> Joined | None:
    """As its members are reached by now; None once it is over, or the guest was signed out."""
    found = await standing(reader, before.gang)
    known = Guests(_home(reader), before.gang).read(time.time_ns() // 1_000_000)
    if found.over or before.guest.key not in {one.key for one in known}:
        return None
    if living(found):
        await group_of(reader, found)
    return _joined(found, before.group, before.guest, before.key)


def _joined(found: ClusterStanding, group: bytes, guest: Guest, key: GuestKey) -> Joined:
    told = any(one.kind is PathKind.PUBLIC for one in guest.candidates)
    return Joined(found.gang, group, guest, key, reached(found, told), relays(found))


def number_of(reader: Reader, found: ClusterStanding, key: GuestKey) -> int:
    """Under which who has *key* would join now."""
    return Guests(_home(reader), found.gang).number_of(key.public, time.time_ns() // 1_000_000)


async def leave(reader: Reader, found: ClusterStanding) -> int:
    """Sign out whoever this home let in; how many that were. :class:`GuestUnsigned`."""
    count = Guests(_home(reader), found.gang).sign_out()
    if not found.over:
        await _until(reader, found.gang, lambda one: not any(map(_is_guest, _peers(one))))
    return count


def _home(reader: Reader) -> Path:
    if reader.purse is None:
        raise PurseNeeded("no wallet was given, whose folder keeps who is let in")
    return reader.purse.home


def _peers(one: Standing) -> tuple[MeshPeer, ...]:
    return one.order.peers if one.order is not None else ()


def _is_guest(one: MeshPeer) -> bool:
    return is_guest(one.member)


async def _until(
    reader: Reader, gang: str, holds: Callable[[Standing], bool]
) -> ClusterStanding:  # fmt: skip
    """Until it holds of every living member's newest order, and its adapter says that it follows
    that one.
    """
    deadline = anyio.current_time() + SIGNED_S
    while True:
        found = await meshed(reader, gang)
        members = living(found)
        signed = [one for one in members if holds(one)]
        follow = [one for one in signed if one.order and one.follows >= one.order.version]
        if members and len(follow) == len(members):
            return found
        if anyio.current_time() > deadline:
            raise GuestUnsigned(
                f"after {SIGNED_S:.0f} s the orders of {len(signed)} of {len(members)} members say"
                f" so, and {len(follow)} follow them"
            )
        await anyio.sleep(LOOK_S)
