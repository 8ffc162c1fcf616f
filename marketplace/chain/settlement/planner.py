"""What to settle, when, and together with what: pure, from what the chain shows and who is owed.

A channel is settled when it is worth its share of the fee, and sooner when it must be: it is
closing, it ends, it runs low, or whoever serves it drains. What cannot pay for itself even then is
left for another day, so that nobody's dust can drain a settler.

Every run of neighbours with one payout makes one output, and an output holds a least amount. All
that is due goes into one transaction where each run clears it; what does not is put together by
payout, in a transaction of its own; what is still below waits, unless the payout is the settler's
own, which it tops up (the top-up arrives at its own address).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import Final

from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import ChannelView, channel_capacity
from marketplace.chain.transaction.outputs import Out, least
from marketplace.chain.transaction.snapshot import Params, Snapshot, Units
from marketplace.domain.errors import TallyError
from marketplace.domain.money.channel import BPS, Claim, Closing, Finish, Witness, bounty, will
from marketplace.domain.money.channel_refusals import ChannelRefused, ChannelUnfit
from marketplace.domain.money.voucher import Voucher, VoucherRefused

# Sizes and units of docs/costs.md, for deciding only: a transaction's fee is always exact.
_BASE_BYTES: Final = 500
_BASE_UNITS: Final = Units(45_000, 15_000_000)
_CHANNEL_BYTES: Final = 320
_CHANNEL_UNITS: Final = Units(60_000, 80_000_000)


class Why(Enum):
    """Why a channel is not in any transaction of a plan."""

    NOTHING_DUE = "nothing is due"
    NOT_WORTH_IT = "not worth its share of a fee yet"
    BELOW_LEAST = "below the least that an output may hold"
    REFUSED = "the contract would refuse its step"


@dataclass(frozen=True)
class Due:
    """A channel and the greatest voucher for it. *end*: the adapter wants it finished now (its key
    is at hand); *drain*: claim at once, whoever serves it stops. *owed*: what the provider's
    receipts say was delivered, where that is known: no more is taken, even if more was signed
    ahead.
    """

    view: ChannelView
    voucher: Voucher | None
    payout_address: bytes
    end: bool = False
    drain: bool = False
    owed: int | None = None


@dataclass(frozen=True)
class Policy:
    """*target_bps*: the most a fee may be of what it claims; *headroom_bps*: claim when less than
    this part of a channel is left; *own_payouts*: payout hashes that this settler tops up
    as far as it takes; *gift_most*: lovelace that it may add to a stranger's;
    *rescue_only*: leave channels alone unless they are closing (a watchtower).
    """

    target_bps: int = 50
    headroom_bps: int = 1000
    own_payouts: frozenset[bytes] = frozenset()
    gift_most: int = 0
    rescue_only: bool = False


@dataclass(frozen=True)
class Plan:
    """Transactions to make, in order, and why the other channels wait (by session key)."""

    batches: tuple[Batch, ...]
    waiting: Mapping[bytes, Why] = field(default_factory=dict[bytes, Why])
    refused: Mapping[bytes, TallyError] = field(default_factory=dict[bytes, TallyError])


@dataclass(frozen=True)
class Costs:
    """Lovelace of a transaction without channels, and of each channel in it."""

    fixed: int
    channel: int

    @staticmethod
    def of(params: Params, ref_bytes: int) -> Costs:
        """At today's parameters."""
        fixed = params.fee(_BASE_BYTES, _BASE_UNITS, ref_bytes)
        both = Units(_BASE_UNITS.mem + _CHANNEL_UNITS.mem, _BASE_UNITS.steps + _CHANNEL_UNITS.steps)
        return Costs(fixed, params.fee(_BASE_BYTES + _CHANNEL_BYTES, both, ref_bytes) - fixed)


@dataclass(frozen=True)
class _Candidate:
    due: Due
    move: Move
    taken: int
    pay: int
    must: bool
    mine: bool

    @property
    def payout(self) -> bytes:
        return self.due.view.consts.payout


def plan(
    dues: Sequence[Due], snapshot: Snapshot, policy: Policy, adapter_vkh: bytes | None = None
) -> Plan:
    """What to send now. *adapter_vkh* is the adapter whose key this settler holds, if any.

    Channels of one asset: one plan for each instance of the scripts.
    """
    waiting: dict[bytes, Why] = {}
    refused: dict[bytes, TallyError] = {}
    candidates: list[_Candidate] = []
    for due in dues:
        try:
            candidate = _candidate(due, snapshot, policy, adapter_vkh)
        except (ChannelRefused, ChannelUnfit, VoucherRefused) as no:
            waiting[due.view.session_vk], refused[due.view.session_vk] = Why.REFUSED, no
            continue
        if candidate is None:
            waiting[due.view.session_vk] = Why.NOTHING_DUE
        else:
            candidates.append(candidate)
    chosen = _worth(candidates, Costs.of(snapshot.params, snapshot.ref_bytes), policy, waiting)
    unit = dues[0].view.unit if dues else b""
    batches = [
        _batch(group, snapshot, unit, adapter_vkh)
        for group in _groups(chosen, snapshot, policy, unit, waiting)
    ]
    return Plan(tuple(batches), waiting, refused)


def _candidate(
    due: Due, snapshot: Snapshot, policy: Policy, adapter_vkh: bytes | None
) -> _Candidate | None:
    """The step for *due*, if there is anything to do; the twin's refusal if it would be refused."""
    view, stage, now_ms = due.view, due.view.stage, snapshot.tip.time_ms
    if view.claimed < 0 or not 0 <= view.consts.fee_bps <= BPS:
        # Nobody opens one so who means well: settle would take from the sender what it owes then.
        raise ChannelUnfit(f"channel {view.session_vk.hex()[:16]} was opened with odd figures")
    mine = adapter_vkh is not None and view.consts.adapter_vkh == adapter_vkh
    expired = isinstance(stage, Closing) and now_ms >= stage.expire_at_ms
    limits = channel_capacity(snapshot, view)
    step: Claim | Finish
    most = limits.most if due.owed is None else min(limits.most, due.owed)
    claim = _claim_within(due.voucher, view.claimed, most)
    if (due.end and (mine or expired)) or (expired and claim is not None):
        step = Finish(claim)  # sending only a stranger's rest home is left to whoever asks for it
    elif claim is not None and (not policy.rescue_only or view.closing):
        step = claim
    else:
        return None
    witness = Witness(
        frozenset((adapter_vkh,)) if adapter_vkh and mine else frozenset(), now_ms, now_ms
    )
    judged = will(view.channel, step, witness)
    low = (
        limits.most
        and (limits.most - (claim.take_to if claim else 0)) * BPS
        <= limits.most * policy.headroom_bps
    )
    must = view.closing or due.end or due.drain or bool(low)
    return _Candidate(due, Move(view.utxo, step), judged.taken, judged.pay, must, mine)


def _claim_within(voucher: Voucher | None, claimed: int, most: int) -> Claim | None:
    """All that *voucher* gives, as far as it is due and the channel can pay it and still be
    closed.
    """
    if voucher is None:
        return None
    take_to = min(voucher.cumulative, most)
    return plans.claim_step(voucher, take_to) if take_to > claimed else None


def _worth(
    candidates: Sequence[_Candidate], costs: Costs, policy: Policy, waiting: dict[bytes, Why]
) -> list[_Candidate]:
    """Those that pay for their place, if together they (or one that must) pay for the
    transaction.
    """
    kept: list[_Candidate] = []
    for c in candidates:
        target = BPS if c.must else policy.target_bps
        finishes = isinstance(c.move.step, Finish) and not c.taken
        if finishes or c.taken * target >= costs.channel * BPS:
            kept.append(c)
        else:
            waiting[c.due.view.session_vk] = Why.NOT_WORTH_IT
    # Those that must go take the others along once they are worth a transaction of their own.
    must = [c for c in kept if c.must]
    pays = must and sum(c.taken for c in must) >= costs.fixed + costs.channel * len(must)
    together = sum(c.taken for c in kept) * policy.target_bps
    if (
        pays
        or any(_goes_home(c) for c in kept)
        or (kept and together >= (costs.fixed + costs.channel * len(kept)) * BPS)
    ):
        return kept
    waiting |= {c.due.view.session_vk: Why.NOT_WORTH_IT for c in kept}
    return []


def _goes_home(c: _Candidate) -> bool:
    """A channel that its own adapter ends: the consumer's rest goes home whatever is due."""
    return isinstance(c.move.step, Finish) and c.due.end and c.mine


def _groups(
    chosen: Sequence[_Candidate],
    snapshot: Snapshot,
    policy: Policy,
    unit: bytes,
    waiting: dict[bytes, Why],
) -> list[list[_Candidate]]:
    """One transaction's worth of runs that clear the least output, then one for each other
    payout.
    """
    together, apart = _clearing(chosen, snapshot, policy, unit)
    groups = [together] if together else []
    for _, by_payout in groupby(sorted(apart, key=lambda c: c.payout), key=lambda c: c.payout):
        alone, below = _clearing(list(by_payout), snapshot, policy, unit)
        groups += [alone] if alone else []
        waiting |= {c.due.view.session_vk: Why.BELOW_LEAST for c in below}
    return groups


def _clearing(
    candidates: Sequence[_Candidate], snapshot: Snapshot, policy: Policy, unit: bytes
) -> tuple[list[_Candidate], list[_Candidate]]:
    """(those in runs that clear the least output, the others). Taking one run out may join two."""
    kept = sorted(candidates, key=lambda c: c.move.utxo.ref)
    left: list[_Candidate] = []
    while True:
        short = [run for run in _runs(kept) if not _clears(run, snapshot, policy, unit)]
        if not short:
            return kept, left
        gone = min(short, key=lambda run: sum(c.pay for c in run))
        left += gone
        kept = [c for c in kept if c not in gone]


def _runs(candidates: Iterable[_Candidate]) -> list[list[_Candidate]]:
    return [list(run) for _, run in groupby(candidates, key=lambda c: c.payout)]


def _clears(run: Sequence[_Candidate], snapshot: Snapshot, policy: Policy, unit: bytes) -> bool:
    """Whether *run* makes its own output: its pay, its bounty, or the settler's own purse."""
    owed = sum(c.pay for c in run)
    if owed == 0 or run[0].payout in policy.own_payouts:
        return True
    assets = ((unit, owed),) if unit else ()
    need = least(snapshot, Out(run[0].due.payout_address, 0 if unit else owed, assets))
    earned = 0 if unit else sum(bounty(c.taken, c.due.view.consts.fee_bps) for c in run)
    return (0 if unit else owed) + earned + policy.gift_most >= need


def _batch(
    group: Sequence[_Candidate], snapshot: Snapshot, unit: bytes, adapter_vkh: bytes | None
) -> Batch:
    stages = [c.due.view.stage for c in group if isinstance(c.move.step, Finish)]
    mine = [c for c in group if isinstance(c.move.step, Finish) and c.due.end and c.mine]
    anyones = any(isinstance(s, Closing) and snapshot.tip.time_ms >= s.expire_at_ms for s in stages)
    return Batch(
        moves=tuple(c.move for c in group),
        payouts={c.payout: c.due.payout_address for c in group},
        signers=(adapter_vkh,) if mine and adapter_vkh else (),
        since_ms=snapshot.tip.time_ms if anyones else None,
        unit=unit,
        reserve_collateral=True,
    )


def only(batch: Batch, refs: Sequence[object]) -> Batch:
    """*batch* with none but the channels at *refs*."""
    return replace(batch, moves=tuple(m for m in batch.moves if m.utxo.ref in refs))
