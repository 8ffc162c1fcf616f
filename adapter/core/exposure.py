"""Money that was served and does not come on chain: how much of it an owner bears, and for how
long.

A claim may be kept out of blocks: by other transactions of its channel that always come first, or
by a chain that cannot be reached.  Unclaimed money above the owner's limit is borne for
``claim_wait_ms``; then the channel is *starved*: its leases pause, unbilled, and the owner is told,
until what was due when the limit was passed is on chain.  A claim of less does not help: it costs a
spammer a lovelace.

So no more is ever at risk on a channel than ``claim_above``, what ``claim_wait_ms`` of service
costs, and the two ticks that are owed at any time.  Pure; boot time in milliseconds, lovelace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from adapter.core.state import Channel, Lease, Now, PauseCause, Rules, State
from marketplace.domain.money.channel_stage import ChannelStage

GIVEN_UP_MS: Final = 1_800_000
"""How long devices are kept for the leases of a starved channel while the chain can be read."""
SEEN_MS: Final = 120_000


def limit(channel: Channel, rules: Rules) -> int:
    """Unclaimed lovelace that is borne without a limit of time: a closing channel's have a
    deadline, so that there all that is worth a fee counts.
    """
    return rules.claim_drained if channel.stage is ChannelStage.CLOSING else rules.claim_above


def follow(channel: Channel, rules: Rules, boot_ms: int) -> Channel:
    """*channel* with its exposure as of now."""
    over = channel.stage in (ChannelStage.OPEN, ChannelStage.CLOSING)
    if not over or channel.unclaimed < limit(channel, rules):
        return _with(channel, 0, 0, False)
    if not channel.exposed_at_ms or channel.claimed >= channel.exposed_due:
        return _with(channel, max(1, boot_ms), channel.due, False)
    late = boot_ms - channel.exposed_at_ms > rules.claim_wait_ms
    return _with(channel, channel.exposed_at_ms, channel.exposed_due, channel.starved or late)


def _with(channel: Channel, at_ms: int, due: int, starved: bool) -> Channel:
    if (channel.exposed_at_ms, channel.exposed_due, channel.starved) == (at_ms, due, starved):
        return channel
    return replace(channel, exposed_at_ms=at_ms, exposed_due=due, starved=starved)


def given_up(state: State, lease: Lease, now: Now) -> bool:
    """Whether a lease was frozen for so long over a starved channel that its devices are given
    free. A chain that cannot be read is nobody's starving: then it is kept.
    """
    seen = now.boot_ms - state.sight(lease.channel).seen_ms < SEEN_MS
    frozen_ms = lease.frozen_ms - lease.paused_ms
    return seen and lease.pause is PauseCause.EXPOSED and frozen_ms > GIVEN_UP_MS


def words(channel: Channel, rules: Rules) -> str:
    """The alarm, the same for as long as it stands."""
    minutes = f"{rules.claim_wait_ms / 60_000:g} min"
    closing = channel.stage is ChannelStage.CLOSING
    then = "it is closing" if closing else "its leases are paused"
    return (
        f"channel {channel.session_vk.hex()[:16]}: of more than {limit(channel, rules)} lovelace"
        f" that are due, no claim came on chain for {minutes}; {then}. Other transactions of the"
        " channel may always come first: name a second door in submit_urls"
    )
