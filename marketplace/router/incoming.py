"""Hops in, on chain: looked at, claimed from when that is worth it, ended when they are over."""

from __future__ import annotations

from typing import Final

import structlog

from marketplace.chain.settlement.next_step import Policy
from marketplace.chain.settlement.settler import Settler
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.errors import Halt, TallyError
from marketplace.domain.keys import Signer
from marketplace.market.base.ports import Clock
from marketplace.router import claims
from marketplace.router.desk import RouterDesk
from marketplace.router.eye import Eye
from marketplace.router.sights import Sight, sighted_in
from marketplace.router.state import HopIn, Seen

_FEES_MS: Final = 600_000
log = structlog.get_logger("router")


class Incoming:
    """*till* pays for what is sent, *end* signs that a hop is over; both are the router's."""

    def __init__(self, desk: RouterDesk, eye: Eye, till: Till, end: Signer, clock: Clock) -> None:
        self._desk = desk
        self._eye = eye
        self._till = till
        self._clock = clock
        mine = frozenset(hop.terms.payout for hop in desk.state.hops_in.values())
        policy = Policy(own_payouts=mine | {desk.terms.payout}, finish_expired=False)
        self._settler = Settler(till.desk(), policy, adapter=end)
        self._cost = (0, 0)  # of an end alone, and until when that holds

    async def turn(self) -> None:
        """One look at each, and one round of claims and ends."""
        for hop in list(self._desk.state.hops_in.values()):
            if not self._settled(hop):
                await self.look(hop)
        state, now = self._desk.state, self._clock.now_ms()
        cost = await self._end_cost(now) if claims.waiting(state) else 0
        wanted = claims.wanted(state, self._desk.limits, now, cost)
        if not wanted and not await self._till.log.pending():
            return
        async with self._till.turn():
            done = await self._settler.round(wanted)
        for sent in done.sent:
            log.info(
                "hops_settled", tx=sent.sent.tx_id.hex(), hops=len(sent.moves), fee=sent.sent.fee,
                claimed=sent.claimed,
            )  # fmt: skip
        for vk, why in done.refused.items():
            log.warning("hop_not_settled", hop=vk.hex()[:16], code=why.code, why=why.message[:200])

    async def _end_cost(self, now_ms: int) -> int:
        """Parameters change with an epoch."""
        if now_ms >= self._cost[1]:
            self._cost = ((await self._till.fees()).end, now_ms + _FEES_MS)
        return self._cost[0]

    async def look(self, hop: HopIn) -> None:
        """What stands there, and what follows; one that cannot be read holds up no other."""
        try:
            sight = await self._eye.look(hop)
        except Halt:
            raise
        except TallyError as error:
            log.warning("hop_not_read", hop=hop.session_vk.hex()[:16], error=error.line())
            return
        await self.saw(hop.session_vk, sight)

    async def saw(self, hop: bytes, sight: Sight) -> None:
        """Written down, if it is new."""
        desk = self._desk
        old, desk.sights[hop] = desk.state.hops_in[hop].seen, sight
        keys = desk.writer.signers
        state = await desk.writer.change(
            lambda s: sighted_in(s, hop, sight, desk.limits, self._clock.now_ms(), keys(s))
        )
        if state.hops_in[hop].seen is not old:
            log.info("hop_in", hop=hop.hex()[:16], was=old.value, seen=sight.seen.value)

    def _settled(self, hop: HopIn) -> bool:
        """Whether nothing more can happen to it."""
        sight = self._desk.sights.get(hop.session_vk)
        return hop.seen is Seen.ENDED and sight is not None and sight.settled
