"""What the owner is told of money: gross beside net, by day and by lease, and the next payment.

Pure, over the journal's payments and the state. ``earned`` is by vouchers; ``claimed`` is in a
block; ``net`` is claimed, less fees and bounties: what the payout and the fee key have more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapter.core.state import Channel, Lease, Rules, State
from adapter.journal.payments import Payment, Payments, Sum
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.units import show_ada

DAYS: Final = 31
NEXT: Final = 3


@dataclass(frozen=True, slots=True)
class Fees:
    """The fee key. *address*: where ADA for fees goes; *lovelace*: what it may spend beside its
    *collateral*, None until the chain was seen; *end_cost*: what ending one channel alone costs;
    *enough_for*: so many more ends, each at the dearest, with its payout topped up.
    """

    address: str
    lovelace: int | None = None
    end_cost: int = 0
    enough_for: int = 0
    collateral: int = 0

    def to_wire(self) -> dict[str, Any]:
        """For the status."""
        return {
            "address": self.address, "lovelace": self.lovelace, "end_cost": self.end_cost,
            "enough_for": self.enough_for, "collateral": self.collateral,
        }  # fmt: skip


def money(payments: Payments, state: State, rules: Rules) -> dict[str, Any]:
    """Sums of all time and of today's day, the last payment, and when the next one comes."""
    rows = [one for one in payments.rows() if one.claimed]
    days = payments.days()
    return {
        "total": _sum(payments.total),
        "days": [{"day": day, **_sum(one)} for day, one in list(days.items())[-DAYS:]],
        "last": _payment(rows[-1]) if rows else None,
        "next": next_payments(state, rules),
    }


def next_payments(state: State, rules: Rules) -> list[str]:
    """When what is due comes, in words; the largest sums first."""
    waiting = [c for c in state.channels.values() if c.unclaimed]
    waiting.sort(key=lambda one: (-one.unclaimed, one.session_vk))
    said = [
        f"{show_ada(one.unclaimed)} of channel {one.session_vk.hex()[:8]}:"
        f" {_when(one, state, rules)}"
        for one in waiting[:NEXT]
    ]
    rest = sum(one.unclaimed for one in waiting[NEXT:])
    return said + ([f"{show_ada(rest)} of {len(waiting) - NEXT} more"] if rest else [])


def _when(channel: Channel, state: State, rules: Rules) -> str:
    if channel.stage is ChannelStage.ENDED:
        return "its last transaction is on the way"
    if channel.settling:
        return "it is being ended, within minutes (batch_wait)"
    if channel.stage is ChannelStage.CLOSING:
        return "claimed now: the consumer closes the channel"
    least = rules.claim_drained if state.draining else rules.claim_above
    if channel.unclaimed >= least:
        return "claimed now"
    leases = [one for one in state.leases.values() if one.channel == channel.session_vk]
    end = "its lease ends" if leases else "it ends: nothing runs on it, its consumer may keep it"
    return f"when {end}; sooner from {show_ada(least)} on, or when the market claims"


def by_lease(
    payments: Payments, channels: Iterable[Channel], leases: Sequence[Lease]
) -> list[dict[str, Any]]:
    """Of each lease whose channel is known: owed, and its part of what the channel's transactions
    cost, so that the parts are exactly the whole.
    """
    cost = _cost_by_channel(payments.rows())
    known = {one.id: one for one in leases}
    found: list[dict[str, Any]] = []
    for channel in channels:
        mine = [known[id_] for id_ in channel.leases if id_ in known]
        parts = shares(cost.get(channel.session_vk, 0), [one.owed for one in mine])
        for lease, part in zip(mine, parts, strict=True):
            found.append(
                {
                    "lease": lease.id, "job": lease.terms.job, "state": lease.state.name,
                    "channel": channel.session_vk.hex(), "routed": lease.routed is not None,
                    "owed": lease.owed, "cost": part,
                    "net": lease.owed - part, "ended": channel.stage is ChannelStage.ENDED,
                }
            )  # fmt: skip
    return found


def _cost_by_channel(rows: Iterable[Payment]) -> Mapping[bytes, int]:
    cost: dict[bytes, int] = {}
    for one in rows:
        names = sorted(one.channels)
        parts = shares(one.claimed - one.net, [one.channels[vk] for vk in names])
        for vk, part in zip(names, parts, strict=True):
            cost[vk] = cost.get(vk, 0) + part
    return cost


def shares(whole: int, weights: Sequence[int]) -> list[int]:
    """*whole* in parts by *weights* (equal ones, if all are 0); together they are *whole*."""
    weigh = list(weights) if sum(weights) else [1] * len(weights)
    total, given, before = sum(weigh), 0, 0
    parts: list[int] = []
    for weight in weigh:
        before += weight
        upto = whole * before // total
        parts.append(upto - given)
        given = upto
    return parts


def earnings(
    payments: Payments, state: State, rules: Rules, leases: Sequence[Lease]
) -> dict[str, Any]:
    """All of it: ``tally adapter earnings``."""
    return {
        **money(payments, state, rules),
        "leases": by_lease(payments, state.channels.values(), leases),
        "payments": [_payment(one) for one in payments.rows()[-DAYS:]],
    }


def _sum(one: Sum) -> dict[str, int]:
    return {
        "transactions": one.transactions, "claimed": one.claimed, "fees": one.fees,
        "moved": one.moved, "net": one.net,
    }  # fmt: skip


def _payment(one: Payment) -> dict[str, Any]:
    return {
        "tx": one.tx.hex(), "at_ms": one.at_ms, "purpose": one.purpose, "claimed": one.claimed,
        "fee": one.fee, "moved": one.moved, "net": one.net,
    }  # fmt: skip
