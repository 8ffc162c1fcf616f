"""A purse's hop to its market's router: taken up, opened, announced, and given to jobs.

A hop is a channel like others, to the router instead of a provider, and stays open until its
consumer ends it. The router counts it once enough blocks lie on it; what it says of that is asked
over HTTP, and costs at most time if it lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import anyio

from marketplace.chain.encoding.utxo import OutRef
from marketplace.client.jobs.channel_watch import ChannelWatch
from marketplace.client.jobs.core.effects import BeginRoute, ExpectRoute
from marketplace.client.jobs.core.quotes import Quote
from marketplace.client.jobs.core.route_mode import RouteMode as RouteMode
from marketplace.client.jobs.core.routes import OwnHop
from marketplace.client.jobs.left_behind import bury
from marketplace.client.net.http import Http
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.hop_payer import HopPayer
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Malformed, NotFound, Refusal
from marketplace.domain.money.keep import KEEP_MS
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.offer import SignedRouterOffer
from marketplace.domain.money.terms import ADA
from marketplace.domain.work.job import JobSpec

ROOM: Final = 5_000_000
"""Lovelace beyond what the first job may cost: for jobs to come."""
_LOOK_S: Final = 0.5
_FINAL_S: Final = 600.0


class RouterMissing(NotFound):
    """The market passes nothing on."""

    code = "ROUTER_MISSING"
    remedy = "rent over a direct channel (`--route direct`), or at another market"


class HopSlow(Refusal):
    """The router does not count the hop in time."""

    code = "HOP_SLOW"
    remedy = "its money is safe: run the job again later, or with `--route direct`"


@dataclass
class Hops:
    """One purse's hops to one market's router. *mode*: what its jobs ask for."""

    http: Http
    purse: Purse
    till: Till
    payers: Payers
    watch: ChannelWatch
    mode: RouteMode = RouteMode.AUTO

    def own(self) -> dict[bytes, OwnHop]:
        """Those that this process holds, with what is free on them."""
        return {
            held.session_vk: OwnHop(held.offer, held.free(held.book.capacity or 0))
            for held in self.payers.hops
            if _usable(held)
        }

    async def for_job(self, spec: JobSpec) -> bytes:
        """The session key of the hop that may pay the job; empty for none. Only where routed jobs
        are asked for, one is opened or filled up first, and waited for.
        """
        if self.mode is RouteMode.DIRECT:
            return b""
        if self.mode is RouteMode.AUTO:
            wanted = [vk for vk, hop in self.own().items() if hop.free > 0]
            return wanted[0] if wanted else b""
        return (await self.ready(spec.price.budget)).session_vk

    async def take_up(self, held: HopPayer) -> None:
        """What is free on it is known once the chain was asked, and once leases that a killed
        process left are over in its book; one that still runs is paid for by this process.
        """
        await self.watch.confirm(held)
        for lease in await self.payers.take_routed(held, self.purse.session):
            if await bury(self.http, lease):
                await lease.ended("")
                await self.payers.release(lease.session_vk)

    async def ready(self, amount: int) -> HopPayer:
        """A hop that the router counts, with room for *amount* lovelace and its fee."""
        offer = await self.offered()
        needed = with_fee(amount, offer.verify().route_bps)
        held = next((one for one in self.payers.hops if _usable(one)), None)
        if held is None:
            held = await self._open(offer, needed)
        await self.announce(held)
        return await self._with_room(held, needed)

    async def offered(self) -> SignedRouterOffer:
        """What the market's router asks, signed by it. :class:`RouterMissing`."""
        try:
            row = await self.http.get("/v1/router")
        except NotFound as error:
            raise RouterMissing(error.message) from error
        signed = SignedRouterOffer(_hex(row, "offer"), _hex(row, "signature"))
        if signed.verify().magic != self.till.chain.magic:
            raise RouterMissing("the market's router is on another network")
        return signed

    async def _open(self, signed: SignedRouterOffer, needed: int) -> HopPayer:
        """Into the book first, as any channel; the keys are the purse's own."""
        offer = signed.verify()
        session = self.purse.new_session()
        owner = self.purse.signer.key_hash
        pays = min(needed + offer.hop_fee + ROOM, offer.hop_cap)
        facts = ChannelFacts(
            session_vk=session.verify_key,
            market=self.payers.market,
            magic=offer.magic,
            provider=offer.router_vk.hex(),
            asset=ADA,
            amount=0,
            keep_ms=KEEP_MS,
            router=(signed.body.hex(), signed.signature.hex(), owner.hex()),
        )
        with self.payers.pinned(session.verify_key):
            held = await self.payers.create(facts, session)
            assert isinstance(held, HopPayer)
            amount = pays + await self.till.reserve(held.agreed, pays)
            ref = await self.till.open(held.agreed, amount)
            await held.opened(ref.tx_id.hex(), ref.index, None)
        return held

    async def announce(self, held: HopPayer) -> None:
        """The router is told where the hop is; again and again does no harm."""
        facts = held.facts
        body = {
            "session_vk": held.session_vk.hex(),
            "consumer_vkh": facts.router[2],
            "tx": facts.open_tx,
            "index": facts.index,
        }
        await self.http.post("/v1/router/hops", body)

    async def _with_room(self, held: HopPayer, needed: int) -> HopPayer:
        """Waits until the router counts enough of it; what lacks is put in, once."""
        filled = False
        with anyio.move_on_after(_FINAL_S):
            while True:
                if held.book.capacity is None:
                    await self.watch.confirm(held)
                row = await self._seen(held)
                capacity = held.book.capacity
                if capacity is not None:
                    lacking = needed - held.free(capacity)
                    if lacking > 0 and not filled and row["state"] == "FINAL":
                        filled = True
                        at = OutRef(bytes.fromhex(held.facts.open_tx), held.facts.index)
                        more = lacking + ROOM
                        now = await self.till.top_up(held.session_vk, at, more, ADA)
                        await held.topped_up(more, now)
                    counted = int(row["capacity"]) - int(row["total"]) - int(row["spoken_for"])
                    if lacking <= 0 and row["state"] == "FINAL" and counted >= needed:
                        return held
                await anyio.sleep(_LOOK_S)
        raise HopSlow(f"after {_FINAL_S:.0f} s the router does not count {needed} lovelace of it")

    async def _seen(self, held: HopPayer) -> dict[str, Any]:
        return cast(
            "dict[str, Any]", await self.http.get(f"/v1/router/hops/{held.session_vk.hex()}")
        )

    async def perform(self, quote: Quote, step: ExpectRoute | BeginRoute) -> None:
        """A step of an agreement that is the hop's."""
        route = quote.route
        assert route is not None  # only routed quotes have these steps
        held = self.payers.held(route.hop)
        if not isinstance(held, HopPayer):
            raise RouterMissing("the hop of this quote is not held by this process any more")
        match step:
            case ExpectRoute():
                await held.expect(route.terms.hash, route.bought)
            case BeginRoute():
                await held.begin(route.terms.hash)


def is_busy_hop(held: ChannelPayer) -> bool:
    """Whether leases are still paid over it."""
    return isinstance(held, HopPayer) and held.busy


def _usable(held: HopPayer) -> bool:
    return held.facts.usable and not held.end_sent and not held.book.stopped


def _hex(row: object, name: str) -> bytes:
    try:
        return bytes.fromhex(str(cast("dict[str, Any]", row)[name]))
    except (KeyError, ValueError) as error:
        raise Malformed(f"the router's {name} cannot be read: {error}") from error
