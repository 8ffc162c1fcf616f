"""What is served on a channel that no block holds yet: at most an allowance, at the owner's risk.

Its open transaction was judged and sent through our own door, and can be lost in one way: another
transaction spends one of its inputs first. The owner sets one number, the offer's ``allowance``:
the most that one open is trusted with. Ten times that are out at once, twenty times that are lost
in a day, what is out counted as lost. A loss halves it for a day, three: nothing more is served so
for a day. One open at a time for each owner and each transaction that its money came by. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from adapter.core.admission import Declined
from adapter.core.draft import Draft
from adapter.core.state import Channel, Now, Own, State
from adapter.core.young import Loss, Young
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import owed, unit_ms

LEASE_MS: Final = 60_000
"""The allowance is what so much of the lease costs, within the owner's limits."""
OUT_TIMES: Final = 10
DAY_TIMES: Final = 20
MOST_OUT: Final = 32
"""Opens at once, however cheap their leases are: each is looked after at the chain's door."""
OFF_LOSSES: Final = 3
DAY_MS: Final = 86_400_000
LATE_MS: Final = 180_000
"""How long a lease is kept that used its allowance and whose open no block holds."""


def allowance(
    state: State, own: Own, terms: Terms, marks: frozenset[bytes], now: Now
) -> Declined | int:
    """Lovelace to serve before the first block, at least a tick; or why not. *marks* are the keys
    and transactions that the money belongs to.
    """
    limit, lost = own.offer.allowance, recent(state, now)
    if not limit:
        return Declined("ALLOWANCE_NONE", "this provider serves nothing before the first block")
    if len(lost) >= OFF_LOSSES:
        return Declined("ALLOWANCE_OFF", f"{len(lost)} opens were lost here within a day")
    pending = waiting(state)
    if any(marks & one.young.marks for one in pending if one.young is not None):
        return Declined("ALLOWANCE_TAKEN", "an open of the same money waits for its block already")
    out = sum(one.young.allowance for one in pending if one.young is not None)
    gone = sum(one.lovelace for one in lost)
    granted = min(
        owed(unit_ms(LEASE_MS, terms.units_milli), terms.rate_micro),
        limit >> len(lost),
        OUT_TIMES * limit - out,
        DAY_TIMES * limit - out - gone,
    )
    if granted < terms.tick_owed() or len(pending) >= MOST_OUT:
        return Declined("ALLOWANCE_SPENT", "as much is served before its block as the owner allows")
    return granted


def waiting(state: State) -> list[Channel]:
    """The channels that are served on an allowance now."""
    return [one for one in state.channels.values() if one.young is not None and one.young.waits]


def recent(state: State, now: Now) -> list[Loss]:
    """What was lost within a day."""
    return [one for one in state.losses if now.wall_ms - one.wall_ms < DAY_MS]


def limit(channel: Channel, by_depth: int) -> int:
    """What of *channel* may be relied upon: by its depth, or the allowance if that is more."""
    young = channel.young
    return by_depth if young is None or young.void else max(by_depth, young.allowance)


def seen(channel: Channel, by_depth: int) -> Channel:
    """*channel* with whether a block holds its open transaction, as of this look."""
    young = channel.young
    if young is None or young.void or young.in_block == (by_depth > 0):
        return channel
    held = by_depth > 0
    now = replace(young, in_block=held, was_in_block=young.was_in_block or held)
    return replace(channel, young=now)


def begin(channel: Channel, granted: int, marks: frozenset[bytes]) -> Channel:
    """*channel*, trusted with the allowance *granted*."""
    return replace(channel, limit=granted, young=Young(granted, marks))


def lose(draft: Draft, channel: Channel) -> Channel:
    """Its open can be in no block any more: what was served on it is lost, and remembered."""
    assert channel.young is not None
    running = sum(one.terms.tick_owed() for one in draft.state.on(channel.session_vk) if one.runs)
    served = max(0, channel.owed - channel.claimed) + running
    amount = min(channel.young.allowance, served)
    if amount:
        kept = tuple(recent(draft.state, draft.now))
        draft.state = replace(draft.state, losses=(*kept, Loss(draft.now.wall_ms, amount)))
    young = replace(channel.young, void_wall_ms=max(1, draft.now.wall_ms))
    return draft.put_channel(replace(channel, young=young))


def given_up(channel: Channel | None, frozen_ms: int) -> bool:
    """Whether a lease of *channel*, frozen for so long for want of depth, is ended: its allowance
    is used and no block has come.
    """
    young = None if channel is None else channel.young
    return young is not None and young.waits and not young.was_in_block and frozen_ms > LATE_MS
