"""A devnet in this process with consumers, providers and channels on it, for tests of the chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import anyio

from marketplace.chain.actions.session import Desk, deploy, open_channels
from marketplace.chain.build.plans import Opening
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder, ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.chain.node.submit import MemoryLog
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.voucher import Voucher
from tests.requires import need_devnet

if TYPE_CHECKING:  # without the ledger it cannot be imported
    from contracts.devnet import Devnet, Served

ADA = 1_000_000
DAY_MS = 86_400_000
BY_HAND = 10**9  # milliseconds between blocks: only a test makes one


def key(name: str) -> Signer:
    """The same key for the same name, in every run."""
    return Signer(sha256(name.encode()).digest())


@dataclass(frozen=True)
class Provider:
    """A provider: its adapter's keys and a payout address with a stake part of its own."""

    name: str

    @property
    def adapter(self) -> Signer:
        """The key that ends channels."""
        return key(f"adapter {self.name}")

    @property
    def fee(self) -> Signer:
        """The key that pays for what the adapter sends."""
        return key(f"fee {self.name}")

    @property
    def fee_address(self) -> bytes:
        return addresses.key_address(self.fee.key_hash, None, False)

    @property
    def payout_address(self) -> bytes:
        stake = key(f"stake {self.name}").key_hash
        return addresses.key_address(key(f"payout {self.name}").key_hash, stake, False)

    @property
    def payout(self) -> bytes:
        return addresses.payout_hash(self.payout_address)


@dataclass(frozen=True)
class Live:
    """A channel that was opened, and the session key that signs its vouchers."""

    session: Signer
    consts: Consts
    ref: OutRef
    amount: int

    def voucher(self, cumulative: int) -> Voucher:
        return Voucher.sign(self.session, cumulative)


@dataclass
class World:
    """One devnet and everybody on it."""

    served: Served
    chain: ChainReader
    asset: str = ""
    opened: int = 0
    finder: ChannelFinder = field(init=False)

    def __post_init__(self) -> None:
        self.finder = ChannelFinder(
            self.chain, self.desk("nobody").scripts, bytes.fromhex(self.asset)
        )

    @property
    def devnet(self) -> Devnet:
        return self.served.devnet

    def wallet(self, name: str) -> Wallet:
        return Wallet(key(name), False, key(f"stake {name}").key_hash)

    def desk(self, name: str, log: MemoryLog | None = None) -> Desk:
        return Desk(self.chain, self.wallet(name), self.asset, log)

    def fund(self, name: str, lovelace: int) -> bytes:
        """From the faucet; the wallet's address."""
        at = self.wallet(name).address
        self.devnet.faucet(addresses.to_text(at), lovelace)
        return at

    async def balance(self, address: bytes) -> int:
        return sum(u.lovelace for u in await self.chain.utxos(address))

    async def open(
        self,
        consumer: str,
        provider: Provider,
        amounts: list[int],
        *,
        close_period_ms: int = DAY_MS,
        fee_bps: int = 0,
    ) -> list[Live]:
        """Channels of *consumer* to *provider*, all by one transaction."""
        wallet = self.wallet(consumer)
        sessions = [key(f"session {self.opened + i}") for i in range(len(amounts))]
        self.opened += len(amounts)
        consts = [
            Consts(
                s.verify_key, provider.adapter.key_hash, provider.payout, wallet.signer.key_hash,
                close_period_ms, fee_bps,
            )
            for s in sessions
        ]  # fmt: skip
        stake = Credential(wallet.stake) if wallet.stake else None
        openings = [
            Opening(amount, lambda _first, _index, c=c: c, stake)
            for amount, c in zip(amounts, consts, strict=True)
        ]
        done = await open_channels(self.desk(consumer), openings)
        return [
            Live(s, c, ref, amount)
            for s, c, ref, amount in zip(sessions, consts, done.refs, amounts, strict=True)
        ]

    async def view(self, live: Live) -> ChannelView:
        found = await self.finder.find(live.session.verify_key, live.ref)
        assert isinstance(found, ChannelView), found
        return found

    async def ended(self, live: Live) -> ChannelEnded:
        found = await self.finder.find(live.session.verify_key, live.ref)
        assert isinstance(found, ChannelEnded), found
        return found


@contextmanager
def devnet(
    block_ms: int = 0, clock: Callable[[], int] | None = None
) -> Generator[Served, None, None]:
    """A served devnet; skips (or fails, see requires.py) where the ledger cannot run."""
    need_devnet()
    from contracts.devnet.node import wall_clock_ms
    from contracts.devnet.server import serve

    with serve(block_ms=block_ms, clock=clock or wall_clock_ms) as served:
        yield served


def run(
    story: Callable[[World], Awaitable[None]],
    *,
    block_ms: int = 0,
    asset: str = "",
    clock: Callable[[], int] | None = None,
) -> None:
    """*story* on a fresh devnet with the contract deployed; *clock*: a time of the test's own
    (ms).
    """
    with devnet(block_ms, clock) as served:

        async def main() -> None:
            chain = await connect(served.url)
            world = World(served, chain, asset)
            world.fund("deployer", 100 * ADA)
            if block_ms:
                served.devnet.mint()
            await deploy(world.desk("deployer"))
            if block_ms:
                served.devnet.mint()
            await story(world)

        anyio.run(main)
