"""A router's own eye on the chain: it believes no market and no consumer about a hop."""

from __future__ import annotations

from marketplace.chain.channels.finder import (
    ChannelEnded,
    ChannelFinder,
    ChannelView,
    channel_capacity,
    check_channel,
)
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChannelUnknown
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.domain.money.channel_refusals import ChannelRefused, ChannelUnfit
from marketplace.domain.money.transaction import FINAL_DEPTH, depth
from marketplace.router.exposure import Fund
from marketplace.router.sights import Sight
from marketplace.router.state import HopIn, HopOut, Seen


class Eye:
    """Looks at channels in ADA; remembers where each was last seen."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain
        self._scripts = scripts_for()
        self._finder = ChannelFinder(chain, self._scripts)

    async def find(self, hop: HopIn | HopOut) -> ChannelView | ChannelEnded:
        """The channel; :class:`ChannelUnknown` while no block shows it, or for another output."""
        return await self._finder.find(hop.session_vk, origin(hop))

    async def look(self, hop: HopIn | HopOut) -> Sight:
        """What stands there, after every check that an adapter makes of a channel."""
        try:
            view = await self.find(hop)
        except ChannelUnknown as unknown:
            return Sight(Seen.UNFIT if unknown.in_block else Seen.AWAITED)
        snapshot = await self._chain.snapshot(self._scripts)
        if isinstance(view, ChannelEnded):
            deep = bool(view.height) and depth(snapshot.tip.height, view.height) >= FINAL_DEPTH
            return Sight(
                Seen.ENDED, view.claimed, view.claimed, settled=deep, refunded=view.refunded
            )
        if view.closing:
            can = channel_capacity(snapshot, view)
            return Sight(Seen.CLOSING, can.most, view.claimed, can.reserve)
        try:
            can = check_channel(hop, view, snapshot)
        except (ChannelUnfit, ChannelRefused):
            return Sight(Seen.UNFIT)
        funds = tuple(Fund(one.tx, one.amount, one.depth) for one in view.fundings)
        return Sight(Seen.OPEN, can.most, view.claimed, can.reserve, funds)


def origin(hop: HopIn | HopOut) -> OutRef:
    """Where it was opened."""
    return OutRef(bytes.fromhex(hop.tx), hop.index)
