"""What is said of a cluster's members, held against the terms that were signed for each lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from marketplace.client.net.cluster_answers import SignedAnswer
from marketplace.domain.errors import Malformed
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder
from marketplace.domain.work.mesh import MeshPlace, MeshSight, MeshUnproven, SignedMesh

Said = TypeVar("Said", MeshPlace, MeshSight)
Read = TypeVar("Read", MeshPlace, MeshSight, ClusterOrder)


@dataclass
class Known:
    """What was proven already, by its very bytes and the key that signed it: the newest of each
    kind and lease. The same again, with every look, is not checked again.
    """

    _kept: dict[tuple[str, str], tuple[object, Any]] = field(
        default_factory=dict[tuple[str, str], tuple[object, Any]]
    )

    def place(self, lease: str, adapter_vk: bytes, said: SignedAnswer) -> MeshPlace:
        """:func:`place_of`."""
        by = (adapter_vk, said["body"], said["signature"])
        return self._of(lease, "place", by, lambda: place_of(lease, adapter_vk, said))

    def sight(self, lease: str, adapter_vk: bytes, said: SignedAnswer) -> MeshSight:
        """:func:`sight_of`."""
        by = (adapter_vk, said["body"], said["signature"])
        return self._of(lease, "sight", by, lambda: sight_of(lease, adapter_vk, said))

    def order(self, lease: str, session_vk: bytes, said: SignedOrder) -> ClusterOrder:
        """:meth:`SignedOrder.verify`."""
        by = (session_vk, said.body, said.signature)
        return self._of(lease, "order", by, lambda: said.verify(lease, session_vk))

    def _of(self, lease: str, kind: str, by: object, prove: Callable[[], Read]) -> Read:
        known = self._kept.get((lease, kind))
        if known is not None and known[0] == by:
            return cast("Read", known[1])
        found = prove()
        self._kept[lease, kind] = (by, found)
        return found


def place_of(lease: str, adapter_vk: bytes, said: SignedAnswer) -> MeshPlace:
    """Where the member that *lease* runs is reached; :class:`MeshUnproven` unless its adapter said
    so, of this lease.
    """
    signed = _signed(said, adapter_vk)
    try:
        return _of(lease, signed.place)
    except Malformed as error:
        raise MeshUnproven(f"lease {lease}: {error.message}") from error


def sight_of(lease: str, adapter_vk: bytes, said: SignedAnswer) -> MeshSight:
    """Whom the member that *lease* runs hears; :class:`MeshUnproven` as for :func:`place_of`."""
    signed = _signed(said, adapter_vk)
    try:
        return _of(lease, signed.sight)
    except Malformed as error:
        raise MeshUnproven(f"lease {lease}: {error.message}") from error


def _signed(said: SignedAnswer, adapter_vk: bytes) -> SignedMesh:
    try:
        body, signature = bytes.fromhex(said["body"]), bytes.fromhex(said["signature"])
    except ValueError:
        raise MeshUnproven("what is said of a mesh is no hex") from None
    signed = SignedMesh(body, signature)
    signed.verify(adapter_vk)
    return signed


def _of(lease: str, said: Said) -> Said:
    if said.lease != lease:
        raise MeshUnproven(f"what is said of lease {lease} was signed for {said.lease[:64]}")
    return said
