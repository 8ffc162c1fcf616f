"""What to settle together: pure, from the next step of each channel and what a transaction costs.

Which step is due on a channel, :func:`~marketplace.chain.settlement.next_step.next_step` says. It
is taken when it is worth its share of the fee, and sooner when it must be: the channel is closing,
it ends, it runs low, or whoever serves it drains. What cannot pay for itself even then is left for
another day, so that nobody's dust can drain a settler.

Every run of neighbours with one payout makes one output, and an output holds a least amount. All
that is due goes into one transaction where each run clears it; what does not is put together by
payout, in a transaction of its own; what is still below waits, unless the payout is the settler's
own, which it tops up (the top-up arrives at its own address).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import channel_capacity
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.settlement.next_step import Due, Policy, Why, next_step, stands
from marketplace.chain.transaction.snapshot import Params, Snapshot, Units
from marketplace.domain.errors import TallyError
from marketplace.domain.money.channel import (
    BPS,
    Claim,
    Close,
    Closing,
    Finish,
    Witness,
    bounty,
    will,
)
from marketplace.domain.money.channel_refusals import ChannelRefused, ChannelUnfit
from marketplace.domain.money.voucher import VoucherRefused

# Sizes and units of docs/costs.md, for deciding only: a transaction's fee is always exact.
_BASE_BYTES: Final = 500
_BASE_UNITS: Final = Units(45_000, 15_000_000)
_CHANNEL_BYTES: Final = 320
_CHANNEL_UNITS: Final = Units(60_000, 80_000_000)


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
    dues: Sequence[Due],
    snapshot: Snapshot,
    policy: Policy,
    adapter_vkh: bytes | None = None,
    busy: AbstractSet[OutRef] = frozenset(),
) -> Plan:
    """What to send now; *adapter_vkh* and *busy* as in
    :func:`~marketplace.chain.settlement.next_step.next_step`.

    Channels of one asset: one plan for each instance of the scripts.
    """
    waiting: dict[bytes, Why] = {}
    refused: dict[bytes, TallyError] = {}
    candidates: list[_Candidate] = []
    for due in dues:
        try:
            candidate = _candidate(due, snapshot, policy, adapter_vkh, busy)
        except (ChannelRefused, ChannelUnfit, VoucherRefused) as no:
            waiting[due.view.session_vk], refused[due.view.session_vk] = Why.REFUSED, no
            continue
        if isinstance(candidate, Why):
            waiting[due.view.session_vk] = candidate
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
    due: Due,
    snapshot: Snapshot,
    policy: Policy,
    adapter_vkh: bytes | None,
    busy: AbstractSet[OutRef],
) -> _Candidate | Why:
    """The step for *due*, or why there is none; the twin's refusal if it would be refused."""
    view = due.view
    if view.claimed < 0 or not 0 <= view.consts.fee_bps <= BPS:
        # Nobody opens one so who means well: settle would take from the sender what it owes then.
        raise ChannelUnfit(f"channel {view.session_vk.hex()[:16]} was opened with odd figures")
    step = next_step(due, snapshot, policy, adapter_vkh, busy)
    if isinstance(step, Why):
        return step
    mine = adapter_vkh is not None and view.consts.adapter_vkh == adapter_vkh
    now_ms = snapshot.tip.time_ms
    witness = Witness(
        frozenset((adapter_vkh,)) if adapter_vkh and mine else frozenset(), now_ms, now_ms
    )
    judged = will(view.channel, step, witness)
    must = view.closing or due.end or due.drain or _low(due, step, snapshot, policy)
    return _Candidate(due, Move(view.utxo, step), judged.taken, judged.pay, must, mine)


def _low(due: Due, step: Claim | Close | Finish, snapshot: Snapshot, policy: Policy) -> bool:
    """Whether the channel can pay little more than *step* takes."""
    most = channel_capacity(snapshot, due.view).most
    claim = step.claim if isinstance(step, Finish) else step
    rest = most - (claim.take_to if isinstance(claim, Claim) else 0)
    return most > 0 and rest * BPS <= most * policy.headroom_bps


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
    earned = 0 if unit else sum(bounty(c.taken, c.due.view.consts.fee_bps) for c in run)
    return stands(run[0].due, owed, earned + policy.gift_most, snapshot)


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
