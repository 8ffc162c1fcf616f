"""What this client reads of a cluster's members (see ``answers``).

Orders, places and sights are the exact bytes that were signed, hex, as the market keeps them: each
is checked against the lease's terms before anything is done by it.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class SignedAnswer(TypedDict):
    """Bytes and the signature over them, hex: an order's, a place's or a sight's."""

    body: str
    signature: str


class ClusterMemberAnswer(TypedDict):
    """One member, from 0; *role*: as its job file calls it. *lease* and *state* (of the lease) are
    None while it has no lease; *needs*: what its job waits for (``session_vk``: a fresh key for its
    replacement), else empty; *started*: its workload is up; *lost*: it lost its place and its
    replacement has not started.
    """

    member: int
    role: NotRequired[str]
    job: str
    lease: str | None
    state: str | None
    stage: str
    needs: str
    started: bool
    lost: bool
    order: SignedAnswer | None
    place: SignedAnswer | None
    sight: SignedAnswer | None


class GuestPassAnswer(TypedDict):
    """A guest's leave to use the market's relay at *endpoint*, whose *count* ports begin at
    *first*; *number*: which of them is its own; *ticket* and *key*, hex.
    """

    endpoint: str
    first: int
    count: int
    number: int
    ticket: str
    key: str


class ClusterAnswer(TypedDict):
    """A cluster and its members, by number; *least*, *stall* (``pause`` or ``run``) and *mesh* as
    its job says; *over*: no member is wanted any more.
    """

    id: str
    members: list[ClusterMemberAnswer]
    least: int
    stall: str
    mesh: bool
    over: bool


class StoreAnswer(TypedDict):
    """A store of the market's own; *entries*: files and folders; ms since 1970."""

    name: str
    bytes: int
    entries: int
    used_at_ms: int


class StorePassAnswer(TypedDict):
    """Where a store of the market's own is, and what lets in there until then, ms since 1970."""

    url: str
    token: str
    expires_at_ms: int
