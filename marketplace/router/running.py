"""A router put together: from its folder and a chain, until it is told to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import structlog

from marketplace.chain.encoding import address as addresses
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.client.wallet.chain_wallet import Till
from marketplace.disk import private_folder
from marketplace.domain.errors import Halt, TallyError
from marketplace.domain.money.route.offer import RouterOffer, SignedRouterOffer
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.market.base.ports import Clock, Ids
from marketplace.router.desk import RouterDesk
from marketplace.router.eye import Eye
from marketplace.router.incoming import Incoming
from marketplace.router.journal import Journal
from marketplace.router.keys import RouterKeys
from marketplace.router.limits import Limits
from marketplace.router.outgoing import Outgoing
from marketplace.router.post import Post
from marketplace.router.supply import Candidate
from marketplace.router.writer import Writer

LOOK_S: Final = 10.0
DEVNET_S: Final = 0.5
"""Between two looks: a block of mainnet takes 20 s on average."""
log = structlog.get_logger("router")


@dataclass(frozen=True)
class Place:
    """Where a router lives: *folder* has its keys and books; *tower* is the second copy of these,
    best on another disk; *payout* (Bech32, empty: its purse) is what hops in pay, and
    where the rest of hops out goes.
    """

    folder: Path
    tower: Path
    payout: str = ""

    @property
    def books(self) -> Path:
        """The first copy."""
        return self.folder / "journal.jsonl"

    @staticmethod
    def of(folder: Path, tower: Path | None = None, payout: str = "") -> Place:
        """With the second copy in a folder of its own, where nothing else is said."""
        return Place(folder, tower or folder / "tower" / "book.jsonl", payout)


@dataclass
class RouterRun:
    """A router of one process: *desk* is the market's port."""

    desk: RouterDesk
    till: Till
    incoming: Incoming
    outgoing: Outgoing
    journal: Journal

    async def run(self, candidates: Callable[[], Awaitable[list[Candidate]]]) -> None:
        """Until cancelled; a failing disk ends it."""

        async def out() -> None:
            await self.outgoing.turn(await candidates())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._forever, self.incoming.turn)
            tasks.start_soon(self._forever, out)

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        pause = DEVNET_S if self.till.chain.magic == DEVNET_MAGIC else LOOK_S
        while True:
            try:
                await work()
            except Halt:
                raise
            except TallyError as error:
                log.warning("router", error=error.line())
            with anyio.move_on_after(pause):
                await self.desk.bell.heard()

    def close(self) -> None:
        """Give the books back."""
        with suppress(OSError):
            self.journal.close()


async def assemble(
    place: Place, chain: ChainReader, clock: Clock, ids: Ids, phrase: str | None = None
) -> RouterRun:
    """Keys are made at the first start. :class:`~marketplace.router.journal.RouterHeld`, and the
    refusals of a keystore, of books and of limits.
    """
    folder = private_folder(place.folder)
    limits = Limits.of(folder, chain.magic)
    keys = await anyio.to_thread.run_sync(RouterKeys.load, folder, phrase)
    till = Till(keys.purse, chain)
    payout = place.payout or till.address
    cold = addresses.from_text(payout) if payout != till.address else b""
    offer = _offer(keys, limits, chain.magic, payout)
    journal, opened = await anyio.to_thread.run_sync(Journal.hold, place.books, place.tower)
    post = Post(keys, limits)
    writer = Writer(journal, opened.state, keys, post, clock, limits)
    eye = Eye(chain)
    desk = RouterDesk(writer, keys, post, limits, offer, payout, eye.look, clock, ids)
    log.info("router", address=till.address, hops_in=len(desk.state.hops_in))
    return RouterRun(
        desk,
        till,
        Incoming(desk, eye, till, keys.end, clock),
        Outgoing(desk, eye, till, keys, post, clock, cold),
        journal,
    )


def _offer(keys: RouterKeys, limits: Limits, magic: int, payout: str) -> SignedRouterOffer:
    body = RouterOffer(
        magic, keys.router.verify_key, keys.end.key_hash,
        addresses.payout_hash(addresses.from_text(payout)), limits.close_period_ms,
        limits.route_bps, limits.hop_fee, limits.hop_ms, limits.hop_cap, limits.lease_cap,
    ).encode()  # fmt: skip
    return SignedRouterOffer(body, keys.router.sign(body))
