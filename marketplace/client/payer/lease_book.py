"""One lease as its payer sees it: its own clock, its limits, and what was ordered of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from marketplace.client.payer.ordered import Orders
from marketplace.client.payer.renewal_rule import RenewalRule
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.cluster_order import SignedOrder

UNSEEN_TICKS: Final = 3
"""What an honest adapter may have served unwatched: two ticks of grace, one on the way."""


@dataclass(frozen=True)
class LeaseBook:
    """One lease as its payer sees it.

    *cap*: the most lovelace to approve; *since_ms*: when it may have begun, by the own clock, None
    until then; *base*: what counts as justified beyond own time, because it was signed already
    (after a journal was lost); *paused_ms*: all pauses together, but for the one that lasts;
    *ended_ms*: when the own clock stopped counting for it; *agreed_ms*: when its terms were signed,
    if this payer took it over and its start is in no book; *served_ms*: the time of its receipts,
    less what they call lost; *rule*: how it is renewed by itself; *known_ms*: how long it may run
    as far as others know, while they have not heard of a renewal that was signed; else 0;
    *orders*: to a cluster's member, None for any other lease.
    """

    terms: Terms
    cap: int
    since_ms: int | None = None
    base: int = 0
    approved: int = 0
    last: Receipt | None = None
    paused_at_ms: int | None = None
    paused_ms: int = 0
    ended_ms: int | None = None
    agreed_ms: int | None = None
    served_ms: int = 0
    rule: RenewalRule | None = None
    known_ms: int = 0
    orders: Orders | None = None

    def renewed(self, terms: Terms, cap: int) -> LeaseBook:
        """Under renewed *terms*, of which nobody has heard yet."""
        known_ms = self.known_ms or self.terms.max_duration_ms
        return replace(self, terms=terms, cap=cap, known_ms=known_ms)

    def is_due(self, now_ms: int) -> bool:
        """Whether its rule has it asked for again."""
        left_ms = (self.known_ms or self.terms.max_duration_ms) - self.elapsed_ms(now_ms)
        return self.rule is not None and left_ms < self.rule.left_ms

    def elapsed_ms(self, now_ms: int) -> int:
        """Own time that may have been served until *now_ms*: without its pauses. What was on its
        way when they were heard of is for the one tick that ``allowed`` gives, to all of them
        together.
        """
        if self.since_ms is None:
            return 0
        until = now_ms if self.ended_ms is None else min(now_ms, self.ended_ms)
        still = self._still_ms
        lasting = 0 if still is None else max(0, until - max(self.since_ms, still))
        return max(0, until - self.since_ms - self.paused_ms - lasting)

    @property
    def _still_ms(self) -> int | None:
        """From when nothing is counted, paused or by an order, as long as it lasts."""
        ordered = self.orders.still_ms if self.orders is not None else None
        return min((at for at in (self.paused_at_ms, ordered) if at is not None), default=None)

    def resumed(self, now_ms: int) -> LeaseBook:
        """A pause is over. What an order holds meanwhile is not counted before that is over."""
        paused, orders = self.paused_at_ms, self.orders
        if paused is None:
            return self
        if orders is not None and orders.still_ms is not None and orders.still_ms <= now_ms:
            held = replace(orders, still_ms=min(orders.still_ms, paused))
            return replace(self, paused_at_ms=None, orders=held)
        out = max(0, now_ms - paused)
        return replace(self, paused_at_ms=None, paused_ms=self.paused_ms + out)

    def ordered(self, order: SignedOrder, now_ms: int) -> LeaseBook:
        """*order* was signed at *now_ms*."""
        known = self.orders or Orders()
        billed = self.last.unit_ms_total if self.last is not None else 0
        unheard_ms = UNSEEN_TICKS * self.terms.tick_ms
        more = unit_ms(unheard_ms, self.terms.units_milli)
        after = replace(self, orders=known.signed(order, billed, now_ms + unheard_ms, more))
        held, since = known.still_ms, self.since_ms
        if after.orders is None or after.orders.still_ms is not None:
            return after
        if held is None or held > now_ms or since is None:
            return after
        if self.paused_at_ms is not None:
            return replace(after, paused_at_ms=max(since, min(self.paused_at_ms, held)))
        return replace(after, paused_ms=self.paused_ms + max(0, now_ms - max(since, held)))

    def relearnt(self, order: SignedOrder, now_ms: int) -> LeaseBook:
        """*order* was signed once, and the book lost it: from its start on, as far as is known, the
        lease may have been billed.
        """
        known = replace(self.orders or Orders(), still_ms=None, most=None)
        return replace(self, orders=replace(known, ran=True)).ordered(order, now_ms)

    def lost(self) -> LeaseBook:
        """Its provider is lost: nothing more of a cluster's member is paid for."""
        billed = self.last.unit_ms_total if self.last is not None else 0
        return self if self.orders is None else replace(self, orders=self.orders.lost(billed))

    def unsure(self) -> LeaseBook:
        """The book's end was damaged: an order to it may have been in there."""
        if self.orders is None:
            return self
        return replace(self, orders=replace(self.orders, unsure=True))

    @property
    def is_held(self) -> bool:
        """Whether the newest order keeps it from being billed."""
        return self.orders is not None and self.orders.is_held

    def earliest_ms(self, now_ms: int) -> int:
        """When it may have begun if its first receipt is all that was seen: now. One that was taken
        over may have run unwatched: not before its terms were signed, and for no longer than an
        adapter serves what nobody pays for (``UNSEEN_TICKS``).
        """
        if self.agreed_ms is None:
            return now_ms
        return min(now_ms, max(self.agreed_ms, now_ms - UNSEEN_TICKS * self.terms.tick_ms))

    def heard(self, receipt: Receipt) -> LeaseBook:
        """With *receipt* as its last."""
        lost = sum(part.ms for part in receipt.lost)
        served = self.served_ms + receipt.t1_ms - receipt.t0_ms - lost
        return replace(self, last=receipt, served_ms=served)

    @property
    def longest_ms(self) -> int:
        """The most that can be served under the terms: an adapter stops at ``max_duration_ms``, and
        what it takes to notice, to stop and to tell pauses apart is within their other limits.
        """
        terms = self.terms
        late = terms.grace_ms + terms.pause_limit_ms + UNSEEN_TICKS * terms.tick_ms
        return terms.max_duration_ms + late

    def allowed(self, now_ms: int) -> int:
        """The most lovelace that own time justifies: rate x (elapsed + one tick)."""
        if self.orders is not None and not self.orders.ran:
            return self.base
        terms = self.terms
        held = self.elapsed_ms(now_ms) + terms.tick_ms
        return self.base + owed(unit_ms(held, terms.units_milli), terms.rate_micro)

    def ordered_owed(self, receipt: Receipt) -> int:
        """Of what *receipt* asks, lovelace, what its orders allow."""
        if self.orders is None:
            return receipt.lease_owed
        return owed(self.orders.payable(receipt.unit_ms_total), self.terms.rate_micro)
