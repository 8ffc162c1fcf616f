"""What passes between a consumer, a router and a provider once a routed lease runs.

A state and its effects are values: whoever decides gets both, writes the state down, and then
sends. Payments that were taken and receipts that were checked are in the state before anything that
rests on them leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from marketplace.domain.errors import Refusal
from marketplace.domain.money.route.hop import Payment
from marketplace.domain.money.route.paid import Paid

S = TypeVar("S")


class LeaseUnknown(Refusal):
    """A message about a lease that is not carried here, or for a hop that is another's."""

    code = "ROUTE_LEASE_UNKNOWN"
    remedy = "a route names one router and two hops: send it there"


class HeadroomShort(Refusal):
    """A hop that cannot pay what a lease would reserve."""

    code = "ROUTE_HEADROOM"
    remedy = "rent over a direct channel, or with a smaller reserve"


@dataclass(frozen=True)
class Owes:
    """A checked receipt of the lease whose terms hash to *terms*: it owes *owed* lovelace."""

    terms: bytes
    owed: int


Message = Owes | Payment | Paid


@dataclass(frozen=True)
class Send:
    """*message*, to whoever is at the other end of hop *hop* (its session key)."""

    hop: bytes
    message: Message


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """What is written down, and then done."""

    state: S
    effects: tuple[Send, ...] = ()
