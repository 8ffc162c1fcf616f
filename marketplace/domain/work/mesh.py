"""The network that a cluster's members have of their own: addresses, places, and who hears whom.

WireGuard carries it. Each member's key is made on its host for one lease and never leaves it; what
its adapter signs, of that lease's terms (``Terms.adapter_vk``), is where it is reached
(:class:`MeshPlace`) and whom it hears (:class:`MeshSight`). Consumers check both against the terms
that they signed, so that whoever passes them on cannot put another key in, nor make believe that
members reach each other.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from marketplace.domain import canonical, cbor
from marketplace.domain.canonical import want_bytes, want_int, want_items, want_list, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies
from marketplace.domain.work.mesh_net import MOST_GUESTS, want_number
from marketplace.domain.work.parts import MOST_MEMBERS

_PLACE: Final = "tally/mesh-place/v1"
_SIGHT: Final = "tally/mesh-sight/v1"
MOST_CANDIDATES: Final = 4


class MeshUnproven(Refusal):
    """A word of a member's mesh that the adapter of its lease did not sign."""

    code = "MESH_UNPROVEN"
    remedy = "look at the market that showed it: the lease's own adapter signs what it says"


def want_endpoint(value: object) -> str:
    """*value* if it is an IPv4 address that packets may be sent to; :class:`Malformed` for this
    host's own (loopback), many at once, or none: whoever signs one chooses where others send to.
    """
    try:
        found = ipaddress.IPv4Address(want_text(value, "endpoint", 15))
    except ipaddress.AddressValueError:
        raise Malformed("an endpoint is an IPv4 address") from None
    if found.is_loopback or found.is_multicast or found.is_link_local or _is_nowhere(found):
        raise Malformed(f"{found} is no endpoint that others could reach")
    return str(found)


def _is_nowhere(found: ipaddress.IPv4Address) -> bool:
    return found.is_unspecified or found.is_reserved


class PathKind(StrEnum):
    """Where packets for a member may be sent: what its owner said is *public*, what its market has
    *seen* its packets come from, and where its market's *relay* takes them for it.
    """

    PUBLIC = "public"
    RELAY = "relay"
    SEEN = "seen"


@dataclass(frozen=True, order=True)
class Candidate:
    """One such place, by UDP."""

    kind: PathKind
    endpoint: str
    port: int

    def to_wire(self) -> list[object]:
        """Every field, by place."""
        return [self.kind.value, self.endpoint, self.port]

    @staticmethod
    def from_wire(value: object) -> Candidate:
        """The reverse; :class:`Malformed`."""
        kind, endpoint, port = want_list(value, 3, "candidate")
        return Candidate(_kind(kind), want_endpoint(endpoint), want_int(port, "port", 1, 65_535))


def public(endpoint: str, port: int) -> tuple[Candidate, ...]:
    """Of a host that all the world reaches."""
    return (Candidate(PathKind.PUBLIC, endpoint, port),)


def _candidates(value: object) -> tuple[Candidate, ...]:
    found = tuple(map(Candidate.from_wire, want_items(value, "candidates", MOST_CANDIDATES)))
    if list(found) != sorted(set(found)):
        raise Malformed("candidates are sorted, each once")
    return found


@dataclass(frozen=True)
class MeshPeer:
    """*member*, or a guest (``mesh_net.is_guest``), has WireGuard *key* (32 bytes) and is reached
    at some of *candidates*, sorted; none where nobody knows yet.
    """

    member: int
    key: bytes
    candidates: tuple[Candidate, ...]

    def to_wire(self) -> list[object]:
        """Every field, by place."""
        return [self.member, self.key, [one.to_wire() for one in self.candidates]]

    @staticmethod
    def from_wire(value: object) -> MeshPeer:
        """The reverse; :class:`Malformed`."""
        member, key, candidates = want_list(value, 3, "peer")
        return MeshPeer(
            want_number(member),
            want_bytes(key, 32, "key"),
            _candidates(candidates),
        )


@dataclass(frozen=True)
class MeshPlace:
    """Where the member that *lease* runs is reached: a :class:`MeshPeer` without its number."""

    lease: str
    key: bytes
    candidates: tuple[Candidate, ...]

    def peer(self, member: int) -> MeshPeer:
        """As the others are told of it."""
        return MeshPeer(member, self.key, self.candidates)

    def encode(self) -> bytes:
        """What is signed."""
        candidates = [one.to_wire() for one in self.candidates]
        return canonical.encode([_PLACE, self.lease, self.key, candidates])

    @staticmethod
    def decode(body: bytes) -> MeshPlace:
        """The reverse; :class:`Malformed`."""
        lease, key, candidates = canonical.decode_tagged(body, _PLACE, 3)
        return MeshPlace(
            want_text(lease, "lease", 64), want_bytes(key, 32, "key"), _candidates(candidates)
        )


@dataclass(frozen=True)
class Heard:
    """One member that is heard: *member*, its round trip in microseconds, the bytes that went there
    and came from it since its key was taken up, and by which kind of *path* it is sent to. A guest
    whose machine answers no echo has a round trip of 0: it shook hands of late.
    """

    member: int
    rtt_us: int
    sent: int
    received: int
    path: PathKind = PathKind.PUBLIC


@dataclass(frozen=True)
class MeshSight:
    """Whom the member that *lease* runs hears, by member, while it follows order *version* (0: none
    yet). *number* grows with each sight of a lease.
    """

    lease: str
    version: int
    number: int
    heard: tuple[Heard, ...]

    @property
    def members(self) -> frozenset[int]:
        """Those that are heard."""
        return frozenset(one.member for one in self.heard)

    def encode(self) -> bytes:
        """What is signed."""
        rows = [
            [one.member, one.rtt_us, one.sent, one.received, one.path.value] for one in self.heard
        ]
        return canonical.encode([_SIGHT, self.lease, self.version, self.number, rows])

    @staticmethod
    def decode(body: bytes) -> MeshSight:
        """The reverse; :class:`Malformed`."""
        lease, version, number, rows = canonical.decode_tagged(body, _SIGHT, 4, cbor.NUMBERS)
        heard = tuple(map(_heard, want_items(rows, "heard", MOST_MEMBERS + MOST_GUESTS)))
        members = [one.member for one in heard]
        if members != sorted(set(members)):
            raise Malformed("who is heard is sorted by member, each once")
        return MeshSight(
            want_text(lease, "lease", 64),
            want_int(version, "version"),
            want_int(number, "number", 1),
            heard,
        )


def _heard(value: object) -> Heard:
    member, rtt, sent, received, path = want_list(value, 5, "heard")
    return Heard(
        want_number(member),
        want_int(rtt, "rtt_us"),
        want_int(sent, "sent"),
        want_int(received, "received"),
        _kind(path),
    )


def _kind(value: object) -> PathKind:
    if value not in tuple(PathKind):
        raise Malformed(f"{str(value)[:20]!r} is none of {', '.join(PathKind)}")
    return PathKind(str(value))


@dataclass(frozen=True)
class SignedMesh:
    """A place or a sight as its adapter signed it."""

    body: bytes
    signature: bytes

    @staticmethod
    def sign(adapter: Signer, said: MeshPlace | MeshSight) -> SignedMesh:
        """By the adapter's metering key (``Terms.adapter_vk``)."""
        body = said.encode()
        return SignedMesh(body, adapter.sign(body))

    @cached_property
    def place(self) -> MeshPlace:
        """What it says, of a place; :class:`Malformed`."""
        return MeshPlace.decode(self.body)

    @cached_property
    def sight(self) -> MeshSight:
        """What it says, of a sight; :class:`Malformed`."""
        return MeshSight.decode(self.body)

    def verify(self, adapter_vk: bytes) -> None:
        """:class:`MeshUnproven` unless *adapter_vk* signed it."""
        if not verifies(adapter_vk, self.body, self.signature):
            raise MeshUnproven("the adapter of the lease did not sign what is said of its mesh")

    def to_wire(self) -> list[object]:
        """For a message or a store."""
        return [self.body, self.signature]

    @staticmethod
    def from_wire(value: object) -> SignedMesh:
        """The reverse; :class:`Malformed`. Checks neither signature nor content."""
        body, signature = want_list(value, 2, "mesh")
        return SignedMesh(want_bytes(body, None, "body"), want_bytes(signature, 64, "signature"))
