"""What passes for a cluster's members: orders to them, and what they say of their mesh. A part of
``wire``, by which name they are used.
"""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.protocol.message import Message
from marketplace.domain.work.cluster_order import SignedOrder
from marketplace.domain.work.cluster_store import StorePass
from marketplace.domain.work.mesh import SignedMesh
from marketplace.domain.work.mesh_relay import RelayPass


@dataclass(frozen=True)
class OrderSent(Message):
    """Its consumer's newest order to the member that the lease runs (capability ``cluster``); said
    again after every welcome.
    """

    lease: str
    order: SignedOrder


@dataclass(frozen=True)
class MeshPlaced(Message):
    """Where the member is reached, once its mesh is up; said again after every welcome."""

    lease: str
    place: SignedMesh


@dataclass(frozen=True)
class MeshSeen(Message):
    """Whom the member hears: when that changes, and every 10 s."""

    lease: str
    sight: SignedMesh


@dataclass(frozen=True)
class MeshRelay(Message):
    """The member may use the market's relay: a word on each place and sight of its mesh, as what is
    given holds for some minutes only.
    """

    lease: str
    given: RelayPass


@dataclass(frozen=True)
class StoreAsked(Message):
    """The member's host is to show it the store that the market keeps, and wants leave for that."""

    lease: str


@dataclass(frozen=True)
class StoreGiven(Message):
    """The member may use its store for as long as its lease lives."""

    lease: str
    given: StorePass
