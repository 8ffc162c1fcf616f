"""What is worth a transaction on one channel now: the one rule of market, watchtower, adapter and
consumer.

Pure: from what the chain shows, who is owed, what is in flight and the party's own policy. Whoever
looks after one channel sends the step that it answers; who looks after many puts steps together, so
that they share a fee (:mod:`marketplace.chain.settlement.planner`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Final

from marketplace.chain.build import plans
from marketplace.chain.channels.finder import ChannelView, channel_capacity
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.transaction.outputs import Out, least
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.money.channel import BPS, Claim, Close, Closing, Finish, bounty
from marketplace.domain.money.voucher import Voucher

UNREAD_LOOKS: Final = 2
"""In a row, before a channel that cannot be read is claimed from unread: an index may just lag."""


LOSS_WAITS: Final = 3
"""Times as long waits an end that brings less than it costs alone: together less than a consumer
waits for its provider before it closes by itself (an hour)."""

ALARM_BPS: Final = (2500, 5000)
"""Parts of the close period after which an unsettled channel that closes alarms."""


class Why(Enum):
    """Why a channel is left alone."""

    NOTHING_DUE = "nothing is due"
    NOT_WORTH_IT = "not worth its share of a fee yet"
    BELOW_LEAST = "below the least that an output may hold"
    REFUSED = "the contract would refuse its step"
    IN_FLIGHT = "a transaction of ours has its output already"
    CLOSE_PERIOD = "its close period is not over"
    BATCH = "it waits to be ended together with others"


@dataclass(frozen=True)
class Due:
    """A channel and the greatest voucher for it. *payout_address*: where its provider is paid,
    empty if not known. *end*: the party wants it finished now; *drain*: claim at once, whoever
    serves it stops. *owed*: what the provider's receipts say was delivered, where that is known: no
    more is taken, even if more was signed ahead; *batch_until_ms*: so long (the chain's clock) its
    end waits for others' (:func:`batch_until_ms`).
    """

    view: ChannelView
    voucher: Voucher | None
    payout_address: bytes
    end: bool = False
    drain: bool = False
    owed: int | None = None
    batch_until_ms: int = 0

    @property
    def signed(self) -> int:
        """What was paid for and delivered, since the channel's beginning."""
        paid = 0 if self.voucher is None else self.voucher.cumulative
        return paid if self.owed is None else min(paid, self.owed)

    @property
    def unclaimed(self) -> int:
        """What of it is not on chain, whether or not the channel can pay it."""
        return max(0, self.signed - self.view.claimed)

    @property
    def urgent(self) -> bool:
        """Whether nothing of it may wait: its close period runs, or whoever serves it stops."""
        return self.drain or self.view.closing


@dataclass(frozen=True)
class Policy:
    """What a party finds worth a transaction.

    *claim_above* and *claim_drained*: the least that a claim brings, of a channel that goes on and
    of one that is drained; *finish_expired*: a claim on a channel whose close period is over ends
    it in the same step; *rescue_only*: leave channels alone unless they are closing (a watchtower);
    *consumer*: the channel's own consumer, who claims nothing, but closes what is to end and
    finishes it after the close period; *batch_ms*: how long an end waits to be put together with
    others', and *end_cost*: lovelace that it costs alone.

    For many channels at once: *target_bps*: the most a fee may be of what it claims;
    *headroom_bps*: claim when less than this part of a channel is left; *own_payouts*: payout
    hashes that this settler tops up as far as it takes; *gift_most*: lovelace that it may add to a
    stranger's.
    """

    claim_above: int = 1
    claim_drained: int = 1
    finish_expired: bool = True
    rescue_only: bool = False
    consumer: bool = False
    batch_ms: int = 0
    end_cost: int = 0
    target_bps: int = 50
    headroom_bps: int = 1000
    own_payouts: frozenset[bytes] = frozenset()
    gift_most: int = 0

    def least(self, due: Due) -> int:
        """The least that a claim on it brings."""
        return self.claim_drained if due.drain else self.claim_above


def next_step(
    due: Due,
    snapshot: Snapshot,
    policy: Policy,
    adapter_vkh: bytes | None = None,
    busy: AbstractSet[OutRef] = frozenset(),
) -> Claim | Close | Finish | Why:
    """The one step to take on a channel now, or why none is.

    *adapter_vkh* is the adapter whose key the party holds, if any; *busy* are the outputs that
    unfinished transactions of the party's own spend
    (:func:`~marketplace.chain.node.submit.in_flight`).
    """
    view = due.view
    if view.utxo.ref in busy:
        return Why.IN_FLIGHT
    expired = isinstance(view.stage, Closing) and snapshot.tip.time_ms >= view.stage.expire_at_ms
    if policy.consumer:
        return _way_out(due, snapshot, expired)
    claim = _claim(due, snapshot)
    mine = adapter_vkh is not None and view.consts.adapter_vkh == adapter_vkh
    if due.end and mine and not due.urgent and snapshot.tip.time_ms < due.batch_until_ms:
        return Why.BATCH
    if (due.end and (mine or expired)) or (policy.finish_expired and expired and claim is not None):
        return Finish(claim)  # sending only a stranger's rest home is left to whoever asks for it
    if claim is None or (policy.rescue_only and not view.closing):
        return Why.NOTHING_DUE
    if claim.take_to - view.claimed < policy.least(due):
        return Why.NOT_WORTH_IT
    return claim


def batch_until_ms(due: Due, snapshot: Snapshot, policy: Policy, since_ms: int) -> int:
    """Until when (the chain's clock) an end that is wanted since *since_ms* waits for others'; 0:
    not at all.

    A deadline waits for nobody. Who pays for a batch adds nothing to what is due, but takes the
    bounty, which may be no more than an end alone costs. What brings less than that waits longest.
    """
    if due.urgent or not policy.batch_ms:
        return 0
    given, pay = _brings(due, _claim(due, snapshot))
    if given > policy.end_cost:
        return 0
    return since_ms + policy.batch_ms * (1 if pay > policy.end_cost else LOSS_WAITS)


def batched_end(due: Due, snapshot: Snapshot, policy: Policy, since_ms: int) -> Finish:
    """The end that is offered to be put together with others', wanted since *since_ms*.

    What is too little to be an output by itself waits for other ends of its payout, to be one with
    them. If none came in time it is given up where it is no more than an end alone costs: to get it
    would cost as much.
    """
    claim = _claim(due, snapshot)
    _, pay = _brings(due, claim)
    in_vain = snapshot.tip.time_ms >= since_ms + policy.batch_ms
    if 0 < pay <= policy.end_cost and in_vain and not stands(due, pay, 0, snapshot):
        return Finish(None)
    return Finish(claim)


def _brings(due: Due, claim: Claim | None) -> tuple[int, int]:
    """What *claim* gives to whoever settles it, and to the provider."""
    taken = 0 if claim is None else claim.take_to - due.view.claimed
    given = bounty(taken, due.view.consts.fee_bps)
    return given, taken - given


def _way_out(due: Due, snapshot: Snapshot, expired: bool) -> Close | Finish | Why:
    """The consumer's: Close, and after the close period Finish, which pays what is due where that
    can stand as an output: below that (about 1 ADA) paying would cost the purse more than it owes.
    """
    if not due.end:
        return Why.NOTHING_DUE
    if not due.view.closing:
        return Close()
    if not expired:
        return Why.CLOSE_PERIOD
    pay = due.unclaimed - bounty(due.unclaimed, due.view.consts.fee_bps)
    paid = pay > 0 and due.payout_address != b"" and stands(due, pay, 0, snapshot)
    return plans.finish_step(due.voucher if paid else None, due.view.claimed, due.owed)


def _claim(due: Due, snapshot: Snapshot) -> Claim | None:
    """All that the voucher gives, as far as it is due and the channel can pay it and still be
    closed.
    """
    if due.voucher is None:
        return None
    most = channel_capacity(snapshot, due.view).most
    upto = min(due.voucher.cumulative, most if due.owed is None else min(most, due.owed))
    return plans.claim_step(due.voucher, upto) if upto > due.view.claimed else None


def stands(due: Due, pay: int, helped: int, snapshot: Snapshot) -> bool:
    """Whether *pay*, of the channel's asset, makes an output at the payout; *helped*: lovelace that
    are added to it.
    """
    unit = due.view.unit
    lovelace, assets = (0, ((unit, pay),)) if unit else (pay, ())
    return lovelace + helped >= least(snapshot, Out(due.payout_address, lovelace, assets))


def alarms(stage: Closing, period_ms: int, now_ms: int) -> tuple[int, ...]:
    """Those of :data:`ALARM_BPS` that the close period, *period_ms* long, has reached."""
    period = max(1, period_ms)
    passed = period - max(0, stage.expire_at_ms - now_ms)
    return tuple(level for level in ALARM_BPS if passed * BPS >= level * period)
