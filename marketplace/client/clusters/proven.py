"""What is said of a cluster's members, held against the terms that were signed for each lease."""

from __future__ import annotations

from typing import TypeVar

from marketplace.client.net.cluster_answers import SignedAnswer
from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh import MeshPlace, MeshSight, MeshUnproven, SignedMesh

Said = TypeVar("Said", MeshPlace, MeshSight)


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
