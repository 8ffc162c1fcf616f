"""What a settler is asked to settle, and what one round of it did."""

from __future__ import annotations

from dataclasses import dataclass, field

from marketplace.chain.actions.session import Settled
from marketplace.chain.channels.finder import ChannelEnded, ChannelView
from marketplace.chain.channels.mempool import Ahead
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.follow import Change
from marketplace.chain.settlement.next_step import Why
from marketplace.domain.errors import TallyError
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.voucher import Voucher


@dataclass(frozen=True)
class Wanted:
    """A channel that somebody wants settled: where it was opened, its greatest voucher, where its
    provider is paid. *end*, *drain* and *owed* as in
    :class:`~marketplace.chain.settlement.next_step.Due`; *consts* is what the terms promised: a
    channel that keeps others (its bounty, say) is left alone.
    """

    session_vk: bytes
    origin: OutRef
    voucher: Voucher | None
    payout_address: bytes
    end: bool = False
    drain: bool = False
    consts: Consts | None = None
    owed: int | None = None


@dataclass
class Round:
    """What one round did. By session key: why a channel waits, what is wrong with it, how it ended;
    *behind*: those of which somebody's transaction waits in the mempool.
    """

    sent: list[Settled] = field(default_factory=list[Settled])
    changes: list[Change] = field(default_factory=list[Change])
    waiting: dict[bytes, Why] = field(default_factory=dict[bytes, Why])
    refused: dict[bytes, TallyError] = field(default_factory=dict[bytes, TallyError])
    ended: dict[bytes, ChannelEnded] = field(default_factory=dict[bytes, ChannelEnded])
    views: dict[bytes, ChannelView] = field(default_factory=dict[bytes, ChannelView])
    in_flight: set[bytes] = field(default_factory=set[bytes])
    behind: dict[bytes, Ahead] = field(default_factory=dict[bytes, Ahead])

    @property
    def idle(self) -> bool:
        """Nothing was sent, moved, or is on its way."""
        return not self.sent and not self.changes and not self.in_flight
