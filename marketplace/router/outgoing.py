"""Hops out, on chain: opened for who earned one, topped up in time, ended when they are idle."""

from __future__ import annotations

from dataclasses import replace

import structlog

from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding.utxo import OutRef
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.errors import Halt, TallyError
from marketplace.domain.money.route.messages import Outcome
from marketplace.market.base.ports import Clock
from marketplace.router import supply
from marketplace.router.desk import RouterDesk
from marketplace.router.eye import Eye, origin
from marketplace.router.home import send_home
from marketplace.router.keys import RouterKeys
from marketplace.router.post import Post
from marketplace.router.sights import sighted_out
from marketplace.router.state import HopOut, Seen, State
from marketplace.router.supply import Candidate

log = structlog.get_logger("router")
SPEAKS_MS = 60_000
"""After a restore: so long a provider that is connected has to say what it was paid."""


class Outgoing:
    """*till* is the router's purse; *cold*: where the rest of hops that ended goes on to, empty: it
    stays in the purse.
    """

    def __init__(
        self,
        desk: RouterDesk,
        eye: Eye,
        till: Till,
        keys: RouterKeys,
        post: Post,
        clock: Clock,
        cold: bytes = b"",
    ) -> None:
        self._desk = desk
        self._eye = eye
        self._till = till
        self._keys = keys
        self._post = post
        self._clock = clock
        self._cold = cold
        self._coming: dict[bytes, int] = {}  # capacity that a top-up on its way will make
        self._settled: set[bytes] = set()

    @property
    def _hops(self) -> list[HopOut]:
        return [hop for vk, hop in self._desk.state.hops_out.items() if vk not in self._settled]

    async def turn(self, candidates: list[Candidate]) -> None:
        """One look at each and what follows; one that fails holds up no other."""
        limits, now = self._desk.limits, self._clock.now_ms()
        await self._till.follow()
        for one in supply.to_open(self._desk.state, candidates, limits, now):
            await self._plan(one, now)
        planned = supply.together(self._desk.state, limits, now)
        if len(planned) > 1:
            await self._open_together(planned)
        for hop in self._hops:
            if hop.tx or hop in planned:
                await self._alone(hop, now)

    async def _alone(self, hop: HopOut, now: int) -> None:
        try:
            await self._turn(hop, now)
        except Halt:
            raise
        except TallyError as error:
            log.warning("hop_out", hop=hop.session_vk.hex()[:16], error=error.line())

    async def _open_together(self, hops: list[HopOut]) -> None:
        """One transaction for several; what goes wrong with it is left to each alone."""
        amount = self._desk.limits.hop_out + supply.KEPT
        try:
            refs = await self._till.open_all([(hop, amount) for hop in hops])
        except Halt:
            raise
        except TallyError as error:
            log.warning("hops_out", count=len(hops), error=error.line())
            return
        for hop, ref in zip(hops, refs, strict=True):
            await self._opened(hop, ref)

    async def _plan(self, one: Candidate, now: int) -> None:
        """Its key and its constants are on disk before anything is built."""
        session, owner = self._keys.new_session(), self._till.purse.signer.key_hash
        hop = supply.new_hop(one, session.verify_key, owner, self._till.chain.magic, now)
        await self._desk.writer.change(lambda s: Outcome(supply.planned(s, hop, one.claims)))

    async def _turn(self, hop: HopOut, now: int) -> None:
        vk = hop.session_vk
        if not hop.tx:
            await self._open(hop)
            return
        sight = await self._eye.look(hop)
        was = hop.seen
        hop = (await self._change(lambda s: sighted_out(s, vk, sight, now))).hops_out[vk]
        if hop.seen is not was:
            log.info("hop_out", hop=vk.hex()[:16], was=was.value, seen=hop.seen.value)
            self._desk.bell.ring()
        if hop.seen is Seen.ENDED and sight.settled:
            if not self._cold or await send_home(self._till, self._cold, hop, sight.refunded):
                self._settled.add(vk)
            return
        welcomed = self._desk.welcomed.get(hop.provider, now)
        if hop.unsure and now - welcomed >= SPEAKS_MS:
            await self._desk.spoke(vk)
        state, limits = self._desk.state, self._desk.limits
        if supply.idle(state, hop, limits, now):
            await self._change(lambda s: supply.ended(s, s.hops_out[vk], now))
            self._post.opened(self._desk.state, vk)
        elif supply.overdue(hop, limits, now):
            await self._leave(hop)
        else:
            await self._top_up(hop)

    async def _change(self, decide: supply.Change) -> State:
        return await self._desk.writer.change(lambda state: Outcome(decide(state)))

    async def _open(self, hop: HopOut) -> None:
        """Repeatable: an open that was built before is taken up."""
        await self._opened(hop, await self._till.open(hop, self._desk.limits.hop_out + supply.KEPT))

    async def _opened(self, hop: HopOut, ref: OutRef) -> None:
        vk = hop.session_vk
        opened = replace(hop, tx=ref.tx_id.hex(), index=ref.index)
        await self._change(lambda s: s.with_out(opened))
        log.info("hop_out_opened", hop=vk.hex()[:16], provider=hop.provider[:16], tx=opened.tx)
        self._post.opened(self._desk.state, vk)

    async def _top_up(self, hop: HopOut) -> None:
        vk, state = hop.session_vk, self._desk.state
        if self._coming.get(vk, 0) > state.book.room[vk]:
            return  # one is on its way
        more = supply.short(state, hop, self._desk.limits)
        if more:
            self._coming[vk] = await self._till.top_up(vk, origin(hop), more)
            log.info("hop_out_topped_up", hop=vk.hex()[:16], by=more)

    async def _leave(self, hop: HopOut) -> None:
        """Its provider does not end it: Close, the close period, Finish."""
        view = await self._eye.find(hop)
        last = self._desk.state.book.hops_out[hop.session_vk].last
        if isinstance(view, ChannelView):
            await self._till.leave(view, last.voucher if last else None, hop.payout_address)
