"""One lease that a router pays for: its receipts are checked and approved as any other's, and what
is approved is paid over the hop.

The book lies under the lease's own key, which signs its terms and never a voucher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from marketplace.client.payer import journal as rows
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.hop_payer import HopPayer
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.money.channel_stage import ChannelStage, after
from marketplace.domain.protocol import wire

FindHop = Callable[[bytes], HopPayer | None]


class RoutedPayer(ChannelPayer):
    """A lease over a hop, whose book this process holds; *find*: the hop, if it holds that too."""

    def __init__(self, *given: Any, find: FindHop) -> None:
        super().__init__(*given)
        self._find = find

    @property
    def agreed(self) -> None:
        """There is no channel under the lease's own key."""

    @property
    def _hop(self) -> HopPayer | None:
        return self._find(bytes.fromhex(self.facts.hop))

    def _hashes(self) -> list[bytes]:
        return [blake2b_256(signed.body) for signed in self.terms.values()]

    async def _send_voucher(self, lease: str, cumulative: int) -> None:
        hop = self._hop
        if hop is None:
            return  # whoever takes the hop up says it again
        for terms in self._hashes():
            await hop.owes(terms, cumulative)

    async def _end_if_idle(self, lost: bool = False) -> None:
        if set(self.terms) <= self.final:
            await self._over()

    async def _end(self) -> None:
        """Nobody ends what is no channel: its leases are stopped."""
        living = [lease for lease in self.terms if lease not in self.final]
        for lease in living:
            await self._link.send(wire.StopAsked(lease, "CANCELLED"))
        if not living:
            await self._over()

    async def _over(self) -> None:
        if self.facts.state is ChannelStage.ENDED:
            return
        self.facts = replace(self.facts, state=after(self.facts.state, ChannelStage.ENDED))
        await self._write(rows.channel_row(self.facts))
        hop = self._hop
        if hop is not None:
            for terms in self._hashes():
                await hop.lease_over_at(terms)
        await self._tell(Paid("settled", self.session_vk, "", self.book.signed, detail={"tx": ""}))

    async def _order_keep(self) -> None:
        """It is no channel that could stay open."""

    async def say_again(self) -> None:
        """After a reconnect, or when the hop was taken up: what is approved, over the hop."""
        async with self._own_turn():
            await self._send_voucher("", self.book.signed)
