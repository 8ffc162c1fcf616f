"""What an invoice's evidence says of routes and hops: ``docs/invoice.md``, "The evidence".

Types and limits are checked here, no signature: that is
:mod:`marketplace.domain.money.invoice.routes` and ``hops``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marketplace.domain.canonical import want_int
from marketplace.domain.money.evidence_fields import (
    a_list,
    a_map,
    a_signed,
    a_voucher,
    some_bytes,
)
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.offer import SignedRouterOffer
from marketplace.domain.money.route.route import SignedRoute
from marketplace.domain.money.route.statement import SignedStatement
from marketplace.domain.money.voucher import MAX_CUMULATIVE, Voucher


@dataclass(frozen=True)
class Opening:
    """*hop* (a session key) is what a route's commitment stands for; *salt* opens it."""

    hop: bytes
    salt: bytes


@dataclass(frozen=True)
class RouteEvidence:
    """The route of one lease, and what is shown of its two hops.

    *hop_in*, *hop_out*: None where whoever shows this does not know that hop. *paid*: the greatest
    amount and the adapter's signature over it.
    """

    signed: SignedRoute
    hop_in: Opening | None
    hop_out: Opening | None
    paid: tuple[int, bytes] | None


@dataclass(frozen=True)
class HopEvidence:
    """One hop: its last statement with all its leaves, and its voucher.

    *offer*: the router's, on a hop into it; None on a hop out of it. *open_tx* (hex, empty while
    nothing was opened) and *index* say where to find its channel on the ledger.
    """

    session_vk: bytes
    open_tx: str
    index: int
    offer: SignedRouterOffer | None
    statement: SignedStatement
    leaves: tuple[Leaf, ...]
    voucher: Voucher | None


def route_of(value: object) -> RouteEvidence | None:
    """A lease's ``route``; None for a direct lease."""
    if value is None:
        return None
    row = a_map(value, "route")
    paid = None
    if row.get("paid") is not None:
        found = a_map(row["paid"], "paid")
        paid = (want_int(found.get("amount"), "amount"), some_bytes(found, "signature", 64))
    return RouteEvidence(
        SignedRoute(*a_signed(row, "route")), _opening(row, "in"), _opening(row, "out"), paid
    )


def hop_of(row: Mapping[str, Any]) -> HopEvidence:
    """One of ``hops``."""
    session_vk = some_bytes(row, "session_vk", 32)
    offer = row.get("offer")
    return HopEvidence(
        session_vk=session_vk,
        open_tx=some_bytes(row, "open_tx", 32, or_none=True).hex(),
        index=want_int(row.get("index", 0), "index", 0, 65_535),
        offer=None if offer is None else SignedRouterOffer(*a_signed(offer, "offer")),
        statement=SignedStatement(*a_signed(row.get("statement"), "statement")),
        leaves=tuple(
            Leaf(
                some_bytes(one, "terms", 32),
                want_int(one.get("amount"), "amount", 0, MAX_CUMULATIVE),
            )
            for one in a_list(row, "leaves")
        ),
        voucher=a_voucher(row.get("voucher"), session_vk),
    )


def route_json(route: RouteEvidence) -> dict[str, Any]:
    """The reverse of :func:`route_of`."""
    return {
        "body": route.signed.body.hex(),
        "signature": route.signed.signature.hex(),
        "in": _plain(route.hop_in),
        "out": _plain(route.hop_out),
        "paid": (
            None
            if route.paid is None
            else {"amount": route.paid[0], "signature": route.paid[1].hex()}
        ),
    }


def hop_json(hop: HopEvidence) -> dict[str, Any]:
    """The reverse of :func:`hop_of`."""
    return {
        "session_vk": hop.session_vk.hex(),
        "open_tx": hop.open_tx,
        "index": hop.index,
        "offer": None if hop.offer is None else _signed(hop.offer),
        "statement": _signed(hop.statement),
        "leaves": [{"terms": leaf.terms.hex(), "amount": leaf.amount} for leaf in hop.leaves],
        "voucher": (
            None
            if hop.voucher is None
            else {
                "cumulative": hop.voucher.cumulative,
                "signature": hop.voucher.signature.hex(),
            }
        ),
    }


def _opening(row: Mapping[str, Any], name: str) -> Opening | None:
    if row.get(name) is None:
        return None
    found = a_map(row[name], name)
    return Opening(some_bytes(found, "hop", 32), some_bytes(found, "salt", 32))


def _plain(opening: Opening | None) -> dict[str, str] | None:
    return opening and {"hop": opening.hop.hex(), "salt": opening.salt.hex()}


def _signed(one: SignedRouterOffer | SignedStatement) -> dict[str, str]:
    return {"body": one.body.hex(), "signature": one.signature.hex()}
