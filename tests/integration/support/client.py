"""A consumer's whole world in one process: devnet, market, a scripted provider that settles, a
purse.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import anyio

from marketplace.chain.actions.session import Desk, deploy, finish_channels
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder, ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.client.net import http
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.one_open import consts_of
from marketplace.client.wallet.purse import Purse
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.domain.work.job import JobSpec
from marketplace.keystore import Keystore
from tests.fakes import FakeAdapter, gpu, offer, seed, spec, until, working
from tests.integration.support.chain import devnet
from tests.integration.support.market import fast, market

PASSPHRASE = "a passphrase of the tests"
PATIENT_S: Final = 30.0
ADA = 1_000_000


@dataclass
class Provider:
    """A scripted provider with a real payout: starts what is signed, ticks when told, settles."""

    name: str
    chain: ChainReader
    adapter: FakeAdapter
    signed: dict[str, wire.LeaseSigned] = field(default_factory=dict)

    @staticmethod
    def at(market_url: str, name: str, chain: ChainReader, **more: Any) -> Provider:
        signer = seed(f"adapter {name}")
        payout = addresses.key_address(seed(f"payout {name}").key_hash, None, False)
        standing = offer(
            signer,
            payout=addresses.payout_hash(payout),
            payout_address=addresses.to_text(payout),
            close_period_ms=600_000,  # longer than any test's commands take
            **more,
        )
        return Provider(name, chain, FakeAdapter(market_url, signer, standing))

    async def keeps(self, market: Market, keep_ms: int = 86_400_000) -> None:
        """From now on it keeps idle channels open for their consumers."""
        self.adapter.offer = replace(self.adapter.offer, keep_most_ms=keep_ms)
        await self.adapter.send(wire.OfferPosted(self.adapter.offer, False))

        async def listed() -> bool:
            offers = await market.offers()
            return any(
                o["provider"] == self.adapter.offer.provider and o.get("keep_most_ms")
                for o in offers
            )

        await until(listed)

    @property
    def payout(self) -> bytes:
        return addresses.from_text(self.adapter.offer.payout_address)

    @property
    def desk(self) -> Desk:
        return Desk(self.chain, Wallet(self.adapter.signer, False))

    async def lease(self, number: int = 1) -> str:
        """The *number*-th lease that both signed, once it is there."""
        runs = self.adapter.leases
        await until(lambda: sum(r.signed is not None for r in runs.values()) >= number)
        return [name for name, run in runs.items() if run.signed is not None][number - 1]

    async def start(self, lease: str) -> None:
        await self.adapter.progress(lease, "STARTING")
        await self.adapter.progress(lease, "STARTED")

    async def ticks(self, lease: str, count: int, ms: int = 200) -> None:
        """*count* honest ticks, each once the one before was paid for."""
        for _ in range(count):
            await anyio.sleep(ms / 1000)
            receipt = await self.adapter.tick(lease, ms)
            await self.paid(receipt.session_vk, receipt.channel_owed)

    async def log(self, lease: str, data: bytes, offset: int = 0) -> None:
        await self.adapter.send(wire.LogChunk(lease, offset, "stdout", data))

    async def paid(self, session_vk: bytes, owed: int) -> None:
        vouchers = self.adapter.vouchers
        await until(lambda: session_vk in vouchers and vouchers[session_vk].cumulative >= owed)

    async def settle(self, session_vk: bytes, open_tx: str, lease: str) -> bytes:
        """After the consumer's end, or its order to keep: finish the channel, the rest goes home in
        the same transaction.
        """
        heard = self.adapter
        await until(lambda: session_vk in {x.session_vk for x in (*heard.ends, *heard.keeps)})
        view = await self.look(session_vk, open_tx)
        assert isinstance(view, ChannelView)
        payouts = {view.consts.payout: self.payout}
        voucher = self.adapter.vouchers.get(session_vk)
        done = await finish_channels(self.desk, [(view, voucher)], payouts, self.adapter.signer)
        await self.adapter.progress(lease, "SETTLED", tx=done.sent.tx_id.hex())
        return done.sent.tx_id

    async def look(self, session_vk: bytes, open_tx: str) -> ChannelView | ChannelEnded:
        finder = ChannelFinder(self.chain, scripts_for())
        return await finder.find(session_vk, await self._origin(session_vk, open_tx))

    async def _origin(self, session_vk: bytes, open_tx: str) -> OutRef:
        """A transaction may open several channels."""
        moves = await self.chain.moves(bytes.fromhex(open_tx))
        assert moves is not None
        read = {one.utxo.ref: consts_of(one.utxo) for one in moves.outputs}
        return next(ref for ref, found in read.items() if found and found.session_vk == session_vk)


@dataclass
class World:
    """Everybody, and where they are."""

    served: Any
    chain: ChainReader
    url: str
    running: Any
    folder: Path
    providers: list[Provider]

    @property
    def provider(self) -> Provider:
        return self.providers[0]

    def purse(self, name: str = "home", ada: int = 100) -> Purse:
        """A purse of its own home with *ada* in it."""
        Keystore(self.folder / name / "keys").make(PASSPHRASE, drawn=True)  # no test is about it
        purse = Purse.create(self.folder / name, passphrase=PASSPHRASE)
        if ada:
            self.served.devnet.faucet(purse.address(mainnet=False), ada * ADA)
        return purse

    async def home(self, purse: Purse) -> int:
        wallet = purse.wallet(mainnet=False)
        return sum(u.lovelace for u in await self.chain.utxos(wallet.address))


@asynccontextmanager
async def world(
    served: Any, folder: Path, providers: int, **settings: Any
) -> AsyncGenerator[World]:
    """*providers* scripted providers (dearer one by one) at one market over the devnet *served*."""
    chain = await connect(served.url)
    for index in range(providers):
        adapter = Wallet(seed(f"adapter p{index}"), False)
        served.devnet.faucet(addresses.to_text(adapter.address), 50 * ADA)
        served.devnet.faucet(addresses.to_text(adapter.address), 5 * ADA)
    deployer = Wallet(Signer(b"\x05" * 32), False)
    served.devnet.faucet(addresses.to_text(deployer.address), 100 * ADA)
    await deploy(Desk(chain, deployer))
    async with market(f"sqlite:///{folder}/market.db", folder, fast(**settings)) as (url, run):
        made = [
            Provider.at(url, f"p{i}", chain, core_rate=(5 + i) * 1_000_000)
            for i in range(providers)
        ]
        async with working(*(p.adapter for p in made)):
            for provider in made:
                await until(lambda p=provider: p.adapter.welcomes)
            await until(lambda: len(run.market.directory.offers()) >= providers)
            yield World(served, chain, url, run, folder, made)


def story(
    folder: Path, tell: Callable[[World], Awaitable[None]], *, providers: int = 1, **settings: Any
) -> None:
    """*tell* in a fresh world; generous, for slow machines: the market runs in this very loop, and
    whoever dials it waits for what the loop does.
    """
    with patch.object(http, "FIRST_CONNECT_S", PATIENT_S), devnet() as served:

        async def main() -> None:
            with anyio.fail_after(800):
                async with world(served, folder, providers, **settings) as made:
                    await tell(made)

        anyio.run(main)


__all__ = [
    "ADA",
    "PASSPHRASE",
    "JobSpec",
    "Provider",
    "World",
    "gpu",
    "spec",
    "story",
    "until",
    "world",
]
