"""Clusters: the orders of their members, and how they stand."""

from __future__ import annotations

from pydantic import Field

from marketplace.api.schemas.requests import Body
from marketplace.api.schemas.shape import Answer, told
from marketplace.domain.work.cluster import Stall
from marketplace.domain.work.mesh_net import FIRST_GUEST, MOST_GUESTS

_MOST: int = 16_384


class OrderBody(Body):
    """An order to the cluster's member that a lease runs."""

    body: str = Field(
        pattern="^([0-9a-f]{2})+$",
        max_length=_MOST,
        examples=["85"],
        description="its exact bytes, canonical CBOR, hex",
    )
    signature: str = Field(
        pattern="^[0-9a-f]{128}$",
        examples=["5e" * 64],
        description="of these bytes, by the session key of the lease, hex",
    )


class GuestBody(Body):
    """A machine of the caller's own that joins a cluster's mesh."""

    number: int = Field(
        ge=FIRST_GUEST,
        le=FIRST_GUEST + MOST_GUESTS - 1,
        examples=[FIRST_GUEST],
        description="which guest: the number under which orders name it",
    )


class GuestPass(Answer):
    """A guest's leave to use the market's relay."""

    endpoint: str = told("the relay's IPv4 address")
    first: int = told("its first UDP port, which is member 0's")
    count: int = told("how many ports it has")
    number: int = told("which of them, from 0, is the guest's own")
    ticket: str = told("what binds a port, hex")
    key: str = told("of the ticket: 32 bytes, hex; it signs what binds")


class OrderKept(Answer):
    """What is kept of an order that was taken."""

    lease: str = told("the lease's id")
    version: int = told("the order's, of the newest that the market keeps")


class SignedBytes(Answer):
    """Exact bytes and the signature over them, for whoever is told to check."""

    body: str = told("what was signed, canonical CBOR, hex")
    signature: str = told("over it, hex")


class ClusterMember(Answer):
    """One member of a cluster."""

    member: int = told("which one, from 0: `TALLY_MEMBER`")
    role: str = told("as `cluster.roles` of the job file calls it; empty where members are equal")
    job: str = told("its job's id")
    lease: str | None = told("the lease that runs it; null while it has none")
    state: str | None = told("where that lease stands, as `Lease.state`; null while it has none")
    stage: str = told("how far the provider is with it; may be empty")
    needs: str = told("what its job waits for, e.g. `session_vk`; empty: nothing")
    started: bool = told("its workload is up, if only unbilled")
    lost: bool = told("it lost its place, and what replaces it has not started yet")
    order: SignedBytes | None = told("the newest order to it, by the lease's session key")
    place: SignedBytes | None = told("where its mesh is reached, by the lease's adapter")
    sight: SignedBytes | None = told("whom it hears in its mesh, by the lease's adapter")


class Cluster(Answer):
    """A cluster: how each of its members stands."""

    id: str = told("the gang's name in this market")
    members: list[ClusterMember] = told("in their order")
    least: int = told("how many must be up for it to begin")
    stall: str = told("what becomes of those that are left when fewer are",
                      json_schema_extra={"enum": [one.value for one in Stall]})  # fmt: skip
    mesh: bool = told("the members have a network of their own")
    over: bool = told("no member of it is wanted any more")
