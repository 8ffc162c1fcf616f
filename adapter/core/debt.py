"""Who owes, and what follows: two ticks for a consumer's key, not for each of its leases.  Pure.

*A tick of a consumer* is what all of its running leases cost in one tick of each, at least that of
the lease in question.  Unpaid over all of its channels here are at most two such ticks; then all of
its leases pause.  A consumer that has paid nothing yet runs one lease, and further ones begin as
far as two ticks of all but the dearest are no more than it has paid: the dearest could have been
its first. A lease that a router pays is reckoned by itself, two ticks of its own; that it ended
unpaid is remembered against its router. Members of one cluster begin beside each other: none is
billed, and none can be paid for, before all of them may run. While one waits it is no part of its
consumer's tick. Two ticks of each are at risk once they run, which is less than the waiting that
their provider bears. Whoever owes gets no new lease; after an end for want of payment there is a
wait besides, which doubles each time and is forgotten with time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from adapter.core import clusters, routed
from adapter.core.draft import Draft
from adapter.core.state import Channel, Debtor, Lease, Now, PauseCause, State
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms

TICKS_BEYOND: Final = 2
"""What may be served beyond the last voucher, in ticks (design of the channel)."""
TOLERATED: Final = 10
"""A tenth of a tick is no debt: the payer's own clock may have ended a moment earlier."""
NEW_PAUSE_TICKS: Final = 4
"""The pauses, in ticks, of a lease whose channel never paid: with two ticks served its devices are
free again within ten seconds where a tick is one."""
BORNE: Final = 1_000
"""A thousandth of the time that was billed may pass in pauses beside the limit of the terms."""
UNDERWAY_MS: Final = 2_000
"""So long after a last receipt its voucher may still be on its way."""
WAIT_MS: Final = 10_000
WAIT_MOST_MS: Final = 3_600_000
FORGOTTEN_MS: Final = 3_600_000
"""Of what is remembered against a consumer, one is forgotten in each such time."""

_MEANT_TO_PAY: Final = (PauseCause.UNPAID, PauseCause.OFFLINE)


@lru_cache(maxsize=4096)
def _consumer(terms: bytes) -> bytes:
    return Terms.decode(terms).consumer_vkh


def channels(state: State, consumer: bytes) -> Iterator[Channel]:
    """The channels of one consumer's key, over or not; a router's hops are nobody's."""
    own = (one for one in state.channels.values() if one.hop is None)
    return (one for one in own if _consumer(one.terms) == consumer)


def unpaid(state: State, consumer: bytes) -> int:
    """Lovelace served on its channels, over which there is no voucher."""
    living = (one for one in channels(state, consumer) if one.stage is not ChannelStage.ENDED)
    return sum(max(0, one.owed - one.paid) for one in living)


def beyond(state: State, lease: Lease) -> bool:
    """True when another tick of *lease* would leave its consumer more than two ticks in debt; of
    a routed lease, when it would leave that lease so.
    """
    consumer, tick = lease.terms.consumer_vkh, lease.terms.tick_owed()
    next_tick = tick - tick // TOLERATED
    if lease.routed is not None:
        return routed.unpaid(lease, state.channels[lease.channel]) + next_tick > TICKS_BEYOND * tick
    running = sum(
        one.terms.tick_owed() for one in _leases(state, consumer)
        if one.runs and not clusters.waits(one)
    )  # fmt: skip
    return unpaid(state, consumer) + next_tick > TICKS_BEYOND * max(running, tick)


def owes(state: State, consumer: bytes, now: Now) -> int:
    """Lovelace that it should have answered by now: of leases that are over or wait for it."""
    total = 0
    for one in channels(state, consumer):
        if one.stage is ChannelStage.ENDED or one.last is None or one.owed <= one.paid:
            continue
        running = [x for x in state.on(one.session_vk) if x.runs]
        late = any(x.pause in _MEANT_TO_PAY for x in running)
        quiet = not running and now.wall_ms - one.last.wall_ms >= UNDERWAY_MS
        total += one.owed - one.paid if late or quiet else 0
    return total


def refusal(state: State, terms: Terms, now: Now) -> tuple[str, str] | None:
    """(code, why) if its consumer gets no new lease now."""
    debt = owes(state, terms.consumer_vkh, now)
    if debt > terms.tick_owed() // TOLERATED:
        return "PAYMENT_OWED", f"{debt} lovelace are owed here: pay or answer what is owed first"
    left = waits_ms(state, terms.consumer_vkh, now)
    if left > 0:
        return "UNPAID_WAIT", f"a lease ended unpaid: ask again in {-(-left // 1000)} s"
    return None


def may_begin(state: State, lease: Lease, now: Now) -> bool:
    """Whether it may start beside what its consumer runs, and while it owes nothing: see the
    module.
    """
    consumer = lease.terms.consumer_vkh
    if owes(state, consumer, now) > lease.terms.tick_owed() // TOLERATED:
        return False
    others = [
        one for one in _leases(state, consumer)
        if one.id != lease.id and one.signed_for and not one.exited
        and not clusters.together(lease, one)
    ]  # fmt: skip
    ticks = [one.terms.tick_owed() for one in (lease, *others)]
    beside = sum(ticks) - max(ticks)
    return not others or TICKS_BEYOND * beside <= sum(o.paid for o in channels(state, consumer))


def pause_limit_ms(lease: Lease, channel: Channel | None) -> int:
    """How long *lease* may be paused for want of payment in all; one that was paid for weeks is
    borne a little longer than one of an hour (``BORNE``).
    """
    limit = lease.terms.pause_limit_ms
    if channel is not None and routed.signed(lease, channel):
        return limit + max((meter.delivered_ms for meter in lease.meters), default=0) // BORNE
    return min(limit, NEW_PAUSE_TICKS * lease.terms.tick_ms)


# ---- the wait ------------------------------------------------------------------------------------


def waits_ms(state: State, consumer: bytes, now: Now) -> int:
    """How long it still has to wait after its last end for want of payment."""
    known = state.debtors.get(consumer)
    if known is None:
        return 0
    wait = min(WAIT_MOST_MS, WAIT_MS << min(known.strikes - 1, 20))
    return known.at_wall_ms + wait - now.wall_ms


def strike(draft: Draft, consumer: bytes) -> None:
    """Remember an end for want of payment, of a tip, or of a cluster; who is forgotten by now goes
    out of the book.
    """
    now = draft.now.wall_ms
    kept = {vkh: one for vkh, one in draft.state.debtors.items() if _left(one, now)}
    before = _left(kept[consumer], now) if consumer in kept else 0
    kept[consumer] = Debtor(before + 1, now)
    draft.state = replace(draft.state, debtors=kept)
    draft.durable = True


def strike_once(draft: Draft, consumer: bytes) -> None:
    """The same for one of several that end together: while it waits already, nothing new began."""
    if waits_ms(draft.state, consumer, draft.now) <= 0:
        strike(draft, consumer)


def _left(known: Debtor, now_wall_ms: int) -> int:
    return max(0, known.strikes - max(0, now_wall_ms - known.at_wall_ms) // FORGOTTEN_MS)


def _leases(state: State, consumer: bytes) -> Iterator[Lease]:
    direct = (one for one in state.leases.values() if one.routed is None)
    return (one for one in direct if one.terms.consumer_vkh == consumer)
