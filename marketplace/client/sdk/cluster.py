"""How a cluster stands, by what its consumer and its adapters signed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

from marketplace.client.clusters.proven import place_of, sight_of
from marketplace.client.net.cluster_answers import (
    ClusterAnswer,
    ClusterMemberAnswer,
    SignedAnswer,
)
from marketplace.client.net.reading import read
from marketplace.client.sdk.read_only import Reader
from marketplace.domain.errors import Malformed, NotFound, Refusal
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder
from marketplace.domain.work.mesh import Heard, MeshPlace, MeshUnproven


class NoCluster(NotFound):
    """What was named is no cluster, and no member of one."""

    code = "NO_CLUSTER"
    remedy = "name a gang or a job of a job file with `cluster:`; `tally job list` has them"


@dataclass(frozen=True)
class Standing:
    """One *member*; *role*: as its job file calls it. *state* is its lease's, both empty while it
    has none; *order*: the newest to it; *follows*: the version of the order under which it said
    whom it hears, 0: it said nothing; *place*: where its mesh is reached; *terms*: of the lease,
    where something is shown of it; *unproven*: why something that the market shows of it is left
    out.
    """

    member: int
    job: str
    lease: str
    state: str
    order: ClusterOrder | None = None
    follows: int = 0
    hears: tuple[Heard, ...] = ()
    unproven: str = ""
    place: MeshPlace | None = None
    terms: Terms | None = None
    role: str = ""


@dataclass(frozen=True)
class ClusterStanding:
    """A cluster. *mesh*: its members have a network of their own; *over*: none is wanted more."""

    gang: str
    mesh: bool
    over: bool
    members: tuple[Standing, ...]


class _LeaseTerms(TypedDict):
    terms: str
    adapter_signature: str
    session_signature: str


async def standing(reader: Reader, name: str) -> ClusterStanding:
    """Of the cluster *name*, a gang's id or one of its jobs'. :class:`NoCluster`."""
    gang = name
    if not name.startswith("gang_"):
        gang = (await reader.job(name).refresh())["gang"]
    if not gang:
        raise NoCluster(f"{name} is a job of its own")
    try:
        answer = await reader.http.get(f"/v1/gangs/{gang}/cluster")
    except Refusal as refusal:
        if refusal.code != NotFound.code:
            raise
        raise NoCluster(f"{gang} is no cluster of this account") from refusal
    seen = read(ClusterAnswer, answer, "cluster")
    members = [await _standing(reader, row) for row in seen["members"]]
    return ClusterStanding(gang, seen["mesh"], seen["over"], tuple(members))


async def _standing(reader: Reader, row: ClusterMemberAnswer) -> Standing:
    member, job, lease = row["member"], row["job"], row["lease"] or ""
    known = Standing(member, job, lease, row["state"] or "", role=row.get("role", ""))
    if not lease or not any((row["order"], row["place"], row["sight"])):
        return known
    try:
        terms = await _terms(reader, job, lease)
        known = replace(known, order=_order(row["order"], terms), terms=terms)
        if row["place"] is not None:
            place = place_of(lease, terms.adapter_vk, row["place"])
            known = replace(known, place=place)
        if row["sight"] is not None:
            sight = sight_of(lease, terms.adapter_vk, row["sight"])
            known = replace(known, follows=sight.version, hears=sight.heard)
    except Refusal as refusal:
        return replace(known, unproven=refusal.line())
    return known


async def _terms(reader: Reader, job: str, lease: str) -> Terms:
    """That this purse signed for it."""
    row = read(_LeaseTerms, await reader.http.get(f"/v1/leases/{lease}"), "lease")
    try:
        signatures = (row["adapter_signature"], row["session_signature"])
        signed = SignedTerms(bytes.fromhex(row["terms"]), *map(bytes.fromhex, signatures))
    except ValueError as error:
        raise Malformed(f"lease {lease}: terms that are no hex") from error
    terms = signed.verify()
    if (terms.lease, terms.job) != (lease, job) or terms.session_vk not in reader.session_keys():
        raise MeshUnproven(f"this purse agreed to no terms of lease {lease}")
    return terms


def _order(said: SignedAnswer | None, terms: Terms) -> ClusterOrder | None:
    if said is None:
        return None
    try:
        signed = SignedOrder(bytes.fromhex(said["body"]), bytes.fromhex(said["signature"]))
    except ValueError as error:
        raise Malformed("an order that is no hex") from error
    return signed.verify(terms.lease, terms.session_vk)
