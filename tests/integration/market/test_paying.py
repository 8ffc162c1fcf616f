"""What counts as having paid is what the market itself sees: two keys of one person may say
anything.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.node.submit import MemoryLog
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import Placement
from marketplace.market.base.ports import ChannelOnChain, Claimable, ClaimRound
from marketplace.market.base.records import Channel, Lease, Standing, VoucherRecord
from marketplace.market.base.settings import Settings
from marketplace.market.core.standing import most_quotes
from marketplace.market.money import paying
from marketplace.market.state.counted_channels import Paying
from tests.fakes import FakeAdapter, FakePayer, offer, seed, spec, until, working
from tests.integration.market.test_settles import claimable
from tests.integration.market.test_spine import body, quoted, sign
from tests.integration.support.chain import ADA, BY_HAND, Provider, World, run
from tests.integration.support.market import fast, market, sign_in


@dataclass
class Chain:
    """What a chain shows, by open transaction."""

    shows: dict[str, ChannelOnChain] = field(default_factory=dict[str, ChannelOnChain])
    looks: int = 0

    async def channel(self, terms: Terms, open_tx: str) -> ChannelOnChain | None:
        self.looks += 1
        return self.shows.get(open_tx)

    async def fees(self) -> None:
        return None

    async def claim(self, channels: list[Claimable]) -> ClaimRound:
        return ClaimRound([], {})


@dataclass
class Crook:
    """An account, and the adapter that it rents from: one person."""

    client: httpx.AsyncClient
    inside: Any
    adapter: FakeAdapter
    payer: FakePayer
    account: Signer
    session: Signer
    chain: Chain
    tx: str = field(default_factory=lambda: os.urandom(32).hex())

    async def leased(self) -> str:
        own = Placement(providers=(self.adapter.signer.verify_key.hex(),))
        asked = body(spec(placement=own), self.session, self.account)
        answer = await self.client.post("/v1/jobs", json=asked)
        assert answer.status_code == 201, answer.text
        view = await quoted(self.client, answer.json()["id"])
        lease = await sign(self.client, view, self.session, self.tx)
        await until(lambda: bool(self.adapter.leases[lease].signed))
        for stage in ("CHANNEL_SEEN", "STARTED"):
            await self.adapter.progress(lease, stage)
        await until(lambda: bool(self.payer.subscribed))
        return lease

    async def pays_itself(self) -> str:
        lease = await self.leased()
        await self.adapter.tick(lease, 1000)

        async def there() -> bool:
            vk = self.session.verify_key
            voucher = await self.inside.market.store.get(VoucherRecord, vk)
            return voucher is not None and voucher.cumulative > 0

        await until(there)
        return lease

    async def paid(self, least: int = 0) -> int:
        """Of its standing, once it is *least* and everything that is noted was looked at."""

        async def enough() -> bool:
            return await self._paid() >= least

        await until(enough)
        await anyio.sleep(2.5)
        return await self._paid()

    async def _paid(self) -> int:
        name = self.account.key_hash.hex()
        known = await self.inside.market.store.get(Standing, name)
        return known.paid if known is not None else 0


@asynccontextmanager
async def crooked(folder: Path, **more: Any):
    """A market on a chain, an honest adapter, and a crook with one of its own."""
    honest, evil, chain = seed("provider"), seed("crook's host"), Chain()
    session, account = Signer(os.urandom(32)), seed("crook")
    async with market(f"sqlite:///{folder}/m.db", folder, fast(**more), ledger=chain) as (
        url,
        run_,
    ):
        good = FakeAdapter(url, honest, offer(honest))
        bad = FakeAdapter(url, evil, offer(evil))
        payer = FakePayer(url, {session.verify_key: session})
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(good, bad, payer):
            await sign_in(client, account)

            async def listed() -> bool:
                return len((await client.get("/v1/offers")).json()["items"]) == 2

            await until(listed)
            yield Crook(client, run_, bad, payer, account, session, chain), good


def test_who_pays_itself_over_a_channel_that_never_was_has_paid_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        limits = {"quotes_new": 4, "quotes_address": 4, "quotes_paying": 64}
        async with crooked(tmp_path, **limits) as (crook, good):
            await crook.pays_itself()
            assert await crook.paid() == 0
            await until(lambda: crook.chain.looks)
            codes: list[int] = []
            for _ in range(9):
                session = Signer(os.urandom(32))
                elsewhere = Placement(not_providers=(crook.adapter.signer.verify_key.hex(),))
                asked = body(spec(placement=elsewhere), session, crook.account)
                answer = await crook.client.post("/v1/jobs", json=asked)
                codes.append(answer.status_code)
                if answer.status_code == 201:
                    view = await quoted(crook.client, answer.json()["id"])
                    await sign(crook.client, view, session, os.urandom(32).hex())
            assert codes.count(201) == 4 and codes.count(429) == 5
            assert not any(one.signed for one in good.leases.values())  # its turn is its own host's
            for lease in await crook.inside.market.store.find(
                Lease, provider=good.signer.verify_key.hex()
            ):
                assert lease.expires_ms - lease.created_ms <= 60_000
            async with httpx.AsyncClient(base_url=crook.client.base_url, timeout=30) as client:
                await sign_in(client, seed("consumer"))
                elsewhere = Placement(not_providers=(crook.adapter.signer.verify_key.hex(),))
                asked = body(spec(placement=elsewhere), Signer(os.urandom(32)), seed("consumer"))
                answer = await client.post(
                    "/v1/jobs", json=asked, headers={"X-Forwarded-For": "9.9.9.9"}
                )
                assert answer.status_code == 201, answer.text

    anyio.run(story)


def test_a_channel_counts_once_and_only_with_its_terms_and_what_it_holds(tmp_path: Path) -> None:
    async def story() -> None:
        async with crooked(tmp_path) as (crook, _):
            lease = await crook.pays_itself()
            shown = ChannelOnChain(ChannelStage.OPEN, 10 * ADA, 0, "", 1, agreed=True)
            poor = ChannelOnChain(ChannelStage.OPEN, 1, 0, "", 1, agreed=True)
            other = ChannelOnChain(ChannelStage.OPEN, 10 * ADA, 0, "", 1, agreed=False)
            ended = ChannelOnChain(ChannelStage.ENDED, 0, 10 * ADA, "", 1)
            vk = crook.session.verify_key
            for wrong in (poor, other, ended):
                crook.chain.shows[crook.tx] = wrong
                await paying.look(crook.inside.market, vk)
                assert await crook.paid() == 0
            crook.chain.shows[crook.tx] = shown
            await paying.look(crook.inside.market, vk)
            await crook.adapter.tick(lease, 1000)
            assert await crook.paid(1) == 1
            channel = await crook.inside.market.store.get(Channel, vk)
            assert channel is not None and channel.paid
            crook.inside.market.paying = Paying()  # as after a restart
            await crook.adapter.tick(lease, 1000)
            assert await crook.paid(1) == 1
            assert crook.inside.market.paying.counts(vk)

    anyio.run(story)


def test_a_voucher_above_every_ceiling_is_refused_and_counts_for_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with crooked(tmp_path) as (crook, _):
            shown = ChannelOnChain(ChannelStage.OPEN, 10 * ADA, 0, "", 1, agreed=True)
            crook.chain.shows[crook.tx] = shown
            crook.payer.pays = False
            lease = await crook.leased()
            await crook.adapter.tick(lease, 1000)
            await until(lambda: bool(crook.payer.receipts))
            ceiling = crook.adapter.leases[lease].terms.ceiling
            for cumulative in (2**62, ceiling + 1):
                air = Voucher.sign(crook.session, cumulative)
                await crook.payer.socket.send(wire.VoucherSent(lease, air))
            await until(lambda: len(crook.payer.socket.rejected) == 2)
            assert {one.code for one in crook.payer.socket.rejected} == {"VOUCHER_REFUSED"}
            assert await crook.paid() == 0
            most = Voucher.sign(crook.session, ceiling)
            await crook.payer.socket.send(wire.VoucherSent(lease, most))
            assert await crook.paid(1) == 1

    anyio.run(story)


def test_connections_are_strangers_until_money_moves_over_their_channel(tmp_path: Path) -> None:
    async def story() -> None:
        async with crooked(tmp_path) as (crook, _):
            lease = await crook.pays_itself()
            hubs = crook.inside.parts.payers.hub, crook.inside.parts.hub.hub
            keys = crook.payer.socket.client.signer.verify_key, crook.adapter.signer.verify_key

            def ticked() -> list[bool]:
                return [hub.live[key].ticked for hub, key in zip(hubs, keys, strict=True)]

            assert await crook.paid() == 0 and ticked() == [False, False]
            shown = ChannelOnChain(ChannelStage.OPEN, 10 * ADA, 0, "", 1, agreed=True)
            crook.chain.shows[crook.tx] = shown
            await paying.look(crook.inside.market, crook.session.verify_key)
            await crook.adapter.tick(lease, 1000)
            await until(lambda: ticked() == [True, True])

    anyio.run(story)


def test_each_channel_that_paid_doubles_the_quotes_up_to_the_most() -> None:
    settings = Settings()
    found = [most_quotes(settings, Standing("me", paid=n), 0) for n in range(6)]
    assert found == [4, 8, 16, 32, 64, 64]
    assert most_quotes(settings, Standing("me", paid=1, lapses=1), 0) == 4


@pytest.mark.prove
def test_the_chain_says_whether_a_channel_is_what_both_signed() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("alice", 300 * ADA)
        world.devnet.mint()
        good, _ = await world.open("alice", provider, [30 * ADA] * 2)
        world.devnet.mint()
        ledger = ChainLedger(world.chain, world.desk("market", MemoryLog()))
        asked = claimable(good, provider, 5 * ADA)
        shown = await ledger.channel(asked.terms, asked.open_tx)
        assert shown is not None and shown.agreed and shown.value >= 30 * ADA
        shown = await ledger.channel(replace(asked.terms, fee_bps=100), asked.open_tx)
        assert shown is not None and not shown.agreed
        assert await ledger.channel(asked.terms, "00" * 32) is None

    run(story, block_ms=BY_HAND)
