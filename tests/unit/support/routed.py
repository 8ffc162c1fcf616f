"""Evidence of routed leases on paper: one consumer's hop to a router, the router's hop to a provider,
two leases of two jobs, and hands that sign again what they bent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import Signer
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.offer import RouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import Route, commit
from marketplace.domain.money.route.statement import FIRST, Statement
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import Terms
from tests.unit.support import invoice
from tests.unit.support.invoice import (
    KEYS,
    Case,
    channel_row,
    lease_row,
    opened,
    sign_terms,
    voucher_row,
)
from tests.unit.support.payer import ADAPTER, Paper, terms

ROUTER: Final = Signer(b"\x21" * 32)
HOP_IN: Final = Signer(b"\x22" * 32)
HOP_OUT: Final = Signer(b"\x23" * 32)
LEASE_1: Final = Signer(b"\x24" * 32)
LEASE_2: Final = Signer(b"\x25" * 32)
FOREIGN: Final = Signer(b"\x26" * 32)
HOPS: Final = {one.verify_key.hex(): one for one in (HOP_IN, HOP_OUT, FOREIGN)}
KEYS.update({one.verify_key: one for one in (LEASE_1, LEASE_2)})
BPS: Final = 50
OFFER: Final = RouterOffer(
    magic=42, router_vk=ROUTER.verify_key, adapter_vkh=ROUTER.key_hash, payout=b"\x17" * 28,
    close_period_ms=90_000, route_bps=BPS, hop_fee=25_000, hop_ms=250, hop_cap=100_000_000,
    lease_cap=10_000_000,
)  # fmt: skip
ROUTE: Final = {  # positions in the signed array, 0 being the tag
    "magic": 1, "router_vk": 2, "lease": 3, "lease_vk": 4, "in_commit": 5, "out_commit": 6,
    "route_bps": 7, "hop_ms": 8, "reserve": 9, "expires_at_ms": 10,
}  # fmt: skip
ROUTED: Final = 25
"""Where terms have their route."""
STATEMENT: Final = {"session_vk": 1, "n": 2, "total": 3, "count": 4, "root": 5, "previous": 6}
ROUTER_OFFER: Final = {
    "magic": 1, "router_vk": 2, "adapter_vkh": 3, "payout": 4, "close_period_ms": 5, "route_bps": 6,
    "hop_fee": 7, "hop_ms": 8, "hop_cap": 9, "lease_cap": 10,
}  # fmt: skip


@dataclass
class Journey:
    """One routed lease: what was agreed, and the provider's receipts."""

    terms: Terms
    key: Signer
    routed: RoutedTerms
    route: Route
    salts: tuple[bytes, bytes]
    paper: Paper

    @property
    def owed(self) -> int:
        return self.paper.last.lease_owed if self.paper.last else 0

    def row(self, paid: int | None, *, into: bool = True, out: bool = True) -> dict[str, Any]:
        """Its row in ``leases``, with the hops that are shown."""
        body, route = self.routed.encode(), self.route.encode()
        mine = (self.terms.session_vk, self.terms.lease)
        said = None if paid is None else Paid.sign(ADAPTER, *mine, paid)
        return {
            **lease_row(self.terms, self.key), "terms": body.hex(),
            "adapter_signature": ADAPTER.sign(body).hex(), "session_signature": self.key.sign(body).hex(),
            "route": {
                "body": route.hex(), "signature": ROUTER.sign(route).hex(),
                "in": opening(HOP_IN, self.salts[0]) if into else None,
                "out": opening(HOP_OUT, self.salts[1]) if out else None,
                "paid": said and {"amount": said.amount, "signature": said.signature.hex()},
            },
        }  # fmt: skip


def signed(body: bytes) -> dict[str, str]:
    """What the router signs, as evidence has it."""
    return {"body": body.hex(), "signature": ROUTER.sign(body).hex()}


def opening(hop: Signer, salt: bytes) -> dict[str, str]:
    return {"hop": hop.verify_key.hex(), "salt": salt.hex()}


def journey(lease: str, key: Signer, *ticks: int, bps: int = BPS, **more: Any) -> Journey:
    """A lease over both hops whose provider sent receipts after so many ms each."""
    salts = (blake2b_256(lease.encode()), blake2b_256(key.verify_key))
    agreed = terms(lease, session_vk=key.verify_key, consumer_vkh=key.key_hash, **more)
    route = Route(
        42, ROUTER.verify_key, lease, key.verify_key, commit(HOP_IN.verify_key, salts[0]),
        commit(HOP_OUT.verify_key, salts[1]), bps, 250, 5_000_000, 2_000_000_000_000,
    )  # fmt: skip
    paper = Paper()
    for number, ms in enumerate(ticks):
        paper.tick(agreed, ms, final=number + 1 == len(ticks))
    return Journey(agreed, key, RoutedTerms(agreed, route.hash), route, salts, paper)


def hop_row(key: Signer, leaves: list[Leaf], *, into: bool) -> dict[str, Any]:
    """A row of ``hops``: its third statement."""
    row = {
        "session_vk": key.verify_key.hex(), "open_tx": ("ef" if into else "fe") * 32, "index": 0,
        "offer": signed(OFFER.encode()) if into else None,
        "leaves": [{"terms": one.terms.hex(), "amount": one.amount} for one in leaves],
    }  # fmt: skip
    state(row, previous=b"\x33" * 32)
    return row


def state(row: dict[str, Any], /, previous: bytes = FIRST, **lie: Any) -> None:
    """The hop's key signs a statement of the row's leaves, and a voucher over its total."""
    key = HOPS[row["session_vk"]]
    leaves = [Leaf(bytes.fromhex(one["terms"]), one["amount"]) for one in row["leaves"]]
    made = replace(Statement.of(key.verify_key, 3, leaves, previous), **lie)
    body = made.encode()
    row["statement"] = {"body": body.hex(), "signature": key.sign(body).hex()}
    row["voucher"] = voucher_row(key, made.total)


BLIND: Final = Leaf(b"\x77" * 32, 777)
"""Of a lease at another provider, which is in nobody else's bill."""


def fact_row(agreed: Terms, hop: Signer, taken: int, *, into: bool, **more: Any) -> dict[str, Any]:
    """What the ledger says of a hop that is still open."""
    mine, payer, funded = hop.verify_key, b"\x0e" * 28, 20_000_000
    consts = (
        OFFER.consts(mine, payer)
        if into
        else replace(agreed.consts(), session_vk=mine, consumer_vkh=payer)
    )
    values = [v.hex() if isinstance(v, bytes) else v for v in astuple(consts)]
    return {
        "session_vk": mine.hex(), "consts": values, "funded": funded, "claimed": taken,
        "refunded": 0, "held": funded - taken, "ended": False, **more,
    }  # fmt: skip


def ended(claimed: int) -> dict[str, Any]:
    """Facts of a hop that ended so."""
    return {"claimed": claimed, "held": 0, "refunded": 20_000_000 - claimed, "ended": True}


def routed(
    *, into: bool = True, out: bool = True, blind: bool = True, signed: int = 4020, passed: int = 4000,
    paid: int | None = 4000, claimed: tuple[int, int] = (28_000, 4_000),
    facts: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
) -> Case:  # fmt: skip
    """Job 1's lease owes 4,000 lovelace and job 2's 1, each with the router's fee of half a
    per cent, rounded up: 4,020 and 2. The consumer's hop holds the router's 25,000 for its end and
    another lease's 777 as well.
    """
    one = journey("lease_1", LEASE_1, 1000, 1000)
    two = journey("lease_2", LEASE_2, 1500, job="job_2", rate_micro=1_234_567)
    hops: list[dict[str, Any]] = []
    ledger: list[dict[str, Any] | None] = [None, None]
    if into:
        leaves = [
            Leaf(OFFER.hash, 25_000),
            Leaf(one.routed.hash, signed),
            *([BLIND] if blind else []),
        ]
        hops.append(hop_row(HOP_IN, [*leaves, Leaf(two.routed.hash, 2)], into=True))
        ledger.append(fact_row(one.terms, HOP_IN, claimed[0], into=True, **facts[0]))
    if out:
        leaves = [Leaf(one.routed.hash, passed), Leaf(two.routed.hash, 1)]
        hops.append(hop_row(HOP_OUT, leaves, into=False))
        ledger.append(fact_row(one.terms, HOP_OUT, claimed[1], into=False, **facts[1]))
    rows = [one.row(paid, into=into, out=out), two.row(1, into=into, out=out)]
    channels = [channel_row(way.paper, way.key, None, "") for way in (one, two)]
    evidence = {"job": "job_1", "leases": rows, "channels": channels, "hops": hops}
    return Case(evidence, ledger)


def beside_a_direct_channel() -> Case:
    """One job whose first provider was paid directly and whose second over a router."""
    direct, over = invoice.whole(), routed()
    evidence = {
        "job": "job_1",
        "leases": [direct.evidence["leases"][2], *over.evidence["leases"]],
        "channels": [direct.evidence["channels"][1], *over.evidence["channels"]],
        "hops": over.evidence["hops"],
    }
    return Case(evidence, [direct.ledger[1], *over.ledger])


# --- hands that bend ------------------------------------------------------------------------------


def bend(work: Callable[[Any], object], base: Callable[[], Case] = routed) -> Callable[[], Case]:
    """The routed case with *work* done to its evidence."""
    return lambda: invoice.bend(work, base)


def sign_route(row: dict[str, Any], fields: list[Any], body: bytes | None = None) -> None:
    """The router signs *fields* (or exactly *body*), and both sides the terms that name it."""
    body = invoice.cbor2.dumps(fields, canonical=True) if body is None else body
    row["route"] |= {"body": body.hex(), "signature": ROUTER.sign(body).hex()}
    agreed = opened(row, "terms")
    agreed[ROUTED] = blake2b_256(body)
    sign_terms(row, agreed)


def reroute(evidence: Any, index: int, /, **change: Any) -> None:
    """A lease's route with other fields, signed, and named by the terms."""
    row = evidence["leases"][index]
    fields = opened(row["route"], "body")
    for name, value in change.items():
        fields[ROUTE[name]] = value
    sign_route(row, fields)


def sign_offer(row: dict[str, Any], fields: list[Any], body: bytes | None = None) -> None:
    """The router signs a hop's offer, and the hop's key a statement whose first leaf is it."""
    body = invoice.cbor2.dumps(fields, canonical=True) if body is None else body
    row["offer"] = {"body": body.hex(), "signature": ROUTER.sign(body).hex()}
    row["leaves"][0]["terms"] = blake2b_256(body).hex()
    state(row)


def sign_statement(row: dict[str, Any], fields: list[Any], body: bytes | None = None) -> None:
    """The hop's key signs *fields* (or exactly *body*) as its statement."""
    body = invoice.cbor2.dumps(fields, canonical=True) if body is None else body
    key = HOPS[row["session_vk"]]
    row["statement"] = {"body": body.hex(), "signature": key.sign(body).hex()}


def releaf(evidence: Any, hop: int, at: int, amount: int) -> None:
    """A leaf with another amount, and the statement and voucher that follow."""
    row = evidence["hops"][hop]
    row["leaves"][at]["amount"] = amount
    state(row)
