"""Answers about a market's router, the hops to it, and the routes of leases."""

from __future__ import annotations

from typing import Literal

from marketplace.api.schemas.shape import Answer, told

_HOP = "the hop's session key, hex"


class Router(Answer):
    """A router's standing offer, and what it could carry now."""

    offer: str = told("its offer's exact bytes, hex: docs/invoice.md, Routed leases")
    signature: str = told("the router's signature over them, hex")
    free: int = told("what it could still reserve over all its hops out, lovelace")
    hops_out: int = told("so many providers' channels it has")


class Hop(Answer):
    """An account's channel to the router, as the router sees it."""

    session_vk: str = told("its session key, hex: its name")
    state: Literal["ANNOUNCED", "SEEN", "FINAL", "CLOSING", "ENDED", "FORKED"] = told(
        "ANNOUNCED: no block shows it; SEEN: too young to rely on; FINAL: it pays leases; FORKED:"
        " it contradicted itself, and pays none"
    )
    capacity: int = told("the most that it can pay in all, what was claimed included, lovelace")
    spoken_for: int = told("what leases reserve beyond what is signed, lovelace")
    total: int = told("signed in all, lovelace")
    claimed: int = told("of that on chain, lovelace")
    depth: int = told("blocks on top")


class QuotedRoute(Answer):
    """A lease's route, with what opens its commitment to the consumer's own hop."""

    body: str = told("the route's exact bytes, hex")
    signature: str = told("the router's signature over them, hex")
    hop: str = told(_HOP)
    salt: str = told("opens the route's `in_commit`, hex")


class Opening(Answer):
    """What a commitment of a route stands for."""

    hop: str = told(_HOP)
    salt: str = told("opens the commitment, hex")


class Paid(Answer):
    """The provider's word of what has reached it."""

    amount: int = told("of the lease, in all, lovelace")
    signature: str = told("the provider's, hex")


class InvoiceRoute(Answer):
    """The route of a lease; of its two hops the one that is shown."""

    body: str = told("the route's exact bytes, hex")
    signature: str = told("the router's signature over them, hex")
    into: Opening | None = told("the consumer's hop; null: not shown", alias="in")
    out: Opening | None = told("the router's hop to the provider; null: not shown")
    paid: Paid | None = told("the greatest; null: none")


class Signed(Answer):
    """Exact bytes and who signed them."""

    body: str = told("hex")
    signature: str = told("hex")


class Leaf(Answer):
    """What a hop's voucher holds for one lease."""

    terms: str = told("the hash of the lease's terms, or of the router's offer, hex")
    amount: int = told("lovelace")


class HopVoucher(Answer):
    """A hop's promise, which its channel's script pays out."""

    cumulative: int = told("all that it promised, lovelace")
    signature: str = told("the hop's session key's signature, hex")


class InvoiceHop(Answer):
    """A hop that routed leases were paid over: its last statement with all its leaves."""

    session_vk: str = told(_HOP)
    open_tx: str = told("the transaction that opened it, hex; empty: not told")
    index: int = told("of the output that opened it")
    offer: Signed | None = told("the router's, on a hop to it; null on one from it")
    statement: Signed = told("the last that was signed")
    leaves: list[Leaf] = told("all of it, in their order")
    voucher: HopVoucher | None = told("the greatest; null: none")
