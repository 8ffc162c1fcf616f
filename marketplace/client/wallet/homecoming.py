"""How each channel of a purse comes home: decided from what is known of it. Pure.

Kindly, where somebody can be asked: a signed End through the market, which its provider answers by
finishing the channel at its own cost. Alone otherwise: Close, the close period, Finish, each a
transaction of the purse's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from marketplace.client.wallet.holdings import Holding
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.units import show_duration


class Way(StrEnum):
    """What is done with one channel."""

    END = "END"
    CLOSE = "CLOSE"
    FINISH = "FINISH"
    LEFT = "LEFT"


@dataclass(frozen=True)
class Step:
    """One channel and what is to be done with it; *why* is for people."""

    holding: Holding
    way: Way
    why: str

    @property
    def costs(self) -> bool:
        """Whether it is a transaction of the purse's own."""
        return self.way in (Way.CLOSE, Way.FINISH)


def end_all(holdings: Sequence[Holding], now_ms: int) -> list[Step]:
    """Every channel that no process uses comes home. *now_ms*: Unix, of the chain."""
    return [_step(one, now_ms) for one in holdings]


def sweep(holdings: Sequence[Holding], now_ms: int) -> list[Step]:
    """What is over comes home, and nothing else: close periods that ran out, ends that nobody
    answered, channels that were idle for longer than they were kept for.
    """
    return [_step(one, now_ms) if _over(one, now_ms) else _kept(one, now_ms) for one in holdings]


def _over(one: Holding, now_ms: int) -> bool:
    if one.state is ChannelStage.CLOSING or one.end_asked or not one.book:
        return True
    return not one.leases and (one.idle_until_ms is None or one.idle_until_ms <= now_ms)


def _kept(one: Holding, now_ms: int) -> Step:
    if one.leases:
        return Step(one, Way.LEFT, f"lease {one.leases[0]} is not over")
    left = show_duration((one.idle_until_ms or now_ms) - now_ms)
    return Step(one, Way.LEFT, f"kept for {left} more; `tally channel close --all` ends it now")


def _step(one: Holding, now_ms: int) -> Step:
    if one.holder:
        return Step(one, Way.LEFT, f"process {one.holder} signs for it")
    if one.state is ChannelStage.OPENING:
        return Step(one, Way.LEFT, "its open transaction is in no block")
    if one.expire_at_ms is not None and one.expire_at_ms > now_ms:
        left = show_duration(one.expire_at_ms - now_ms)
        return Step(one, Way.LEFT, f"its close period lasts {left}; then `tally channel sweep`")
    if one.expire_at_ms is not None:
        return Step(one, Way.FINISH, "its close period is over")
    if one.book and one.market:
        return Step(one, Way.END, "its provider is asked, at no cost of yours")
    return Step(one, Way.CLOSE, "no book of it is here, so nobody can be asked")
