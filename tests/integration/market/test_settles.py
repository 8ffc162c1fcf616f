"""The market's claims: what is due is the chain's to say, and one bad channel stops no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import pytest

from marketplace.chain.encoding import address as addresses
from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.node.submit import MemoryLog
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.transaction import TxState
from marketplace.domain.money.voucher import Voucher
from marketplace.market.base.ports import (
    Change,
    ChannelOnChain,
    Claimable,
    Claimed,
    ClaimRound,
    Sighting,
    TxLook,
)
from marketplace.market.base.records import Channel, ReceiptRecord, Tx, VoucherRecord
from marketplace.market.context import Market
from marketplace.market.money import settle
from marketplace.process.main import Config, assemble
from marketplace.store.errors import StoreFault
from marketplace.store.migrate import migrate
from tests.fakes import seed
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run
from tests.unit.support.adapter import core_job, offer, terms_for

SESSION = seed("session")


class Script:
    """A ledger that answers what the test says and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Sequence[Claimable]] = []
        self.answer = ClaimRound([], {})
        self.looks: dict[str, TxLook] = {}
        self.sent: list[bytes] = []
        self.shown: ChannelOnChain | None = None

    async def fees(self) -> None:
        return None

    async def claim(self, channels: Sequence[Claimable]) -> ClaimRound:
        self.asked.append(channels)
        return self.answer

    async def look(self, tx: str, body: bytes) -> TxLook:
        return self.looks[tx]

    async def channel(self, terms: Terms, open_tx: str) -> ChannelOnChain | None:
        return self.shown

    async def submit(self, signed: bytes) -> str:
        self.sent.append(signed)
        return ""


def with_market(folder: Path, story: Callable[[Market, Script], Awaitable[None]]) -> None:
    async def main() -> None:
        url, ledger = f"sqlite:///{folder}/market.db", Script()
        await anyio.to_thread.run_sync(migrate, url)
        made: Any = ledger
        running = assemble(Config(url, str(folder), ledger=made))
        try:
            await story(running.market, ledger)
        finally:
            running.database.close()

    anyio.run(main)


async def with_voucher(market: Market, cumulative: int, delivered: int | None = None) -> bytes:
    terms = terms_for(offer(), core_job(), session=SESSION)
    vk = SESSION.verify_key
    channel = Channel(vk, "a", "p", terms.encode(), "addr", 1, "ab" * 32, ChannelStage.OPEN)
    signature = Voucher.sign(SESSION, cumulative).signature
    voucher = VoucherRecord(vk, cumulative, signature, "lease_1", 1)
    owed = cumulative if delivered is None else delivered
    stated = ReceiptRecord(vk, 1, "lease_1", 1, b"", b"", 1, owed, owed, False, 1)
    await market.store.apply(Change(puts=[channel, stated], raises=[voucher]))
    return vk


def test_a_claim_that_was_sent_and_never_included_is_tried_again(tmp_path: Path) -> None:
    async def story(market: Market, ledger: Script) -> None:
        vk = await with_voucher(market, 100)
        ledger.answer = ClaimRound(
            [Claimed("cd" * 32, b"", 1, {vk: 100})], {vk: Sighting(ChannelStage.OPEN, 0)}
        )
        assert await settle.claim_round(market) == 1
        channel = await market.store.get(Channel, vk)
        assert channel is not None and channel.claimed == 0  # sent is not claimed
        ledger.answer = ClaimRound([], {vk: Sighting(ChannelStage.OPEN, 100)})
        await settle.claim_round(market)
        channel = await market.store.get(Channel, vk)
        assert channel is not None and channel.claimed == 100
        ledger.answer = ClaimRound([], {vk: Sighting(ChannelStage.OPEN, 0)})  # rolled back
        await settle.claim_round(market)
        channel = await market.store.get(Channel, vk)
        assert channel is not None and channel.claimed == 0
        assert [len(asked) for asked in ledger.asked] == [1, 1, 1]

    with_market(tmp_path, story)


def test_no_more_is_claimed_than_was_delivered(tmp_path: Path) -> None:
    async def story(market: Market, ledger: Script) -> None:
        await with_voucher(market, 100, delivered=60)  # 40 signed ahead
        await settle.claim_round(market)
        (asked,) = ledger.asked
        assert [(one.voucher.cumulative, one.owed) for one in asked] == [(100, 60)]

    with_market(tmp_path, story)


def test_a_channel_ends_here_once_no_rollback_can_undo_it(tmp_path: Path) -> None:
    async def story(market: Market, ledger: Script) -> None:
        vk = await with_voucher(market, 100)
        for sighting, state in (
            (Sighting(ChannelStage.CLOSING, 0), ChannelStage.CLOSING),
            (Sighting(ChannelStage.ENDED, 100), ChannelStage.CLOSING),
            (Sighting(ChannelStage.OPEN, 0), ChannelStage.OPEN),
            (Sighting(ChannelStage.ENDED, 100, True), ChannelStage.ENDED),
        ):
            ledger.answer = ClaimRound([], {vk: sighting})
            await settle.claim_round(market)
            channel = await market.store.get(Channel, vk)
            assert channel is not None and channel.state is state
        await settle.claim_round(market)
        assert not ledger.asked[-1]

    with_market(tmp_path, story)


def told_of(vk: bytes) -> Any:
    return SimpleNamespace(id="lease_1", account="a", provider="p", session_vk=vk)


def test_a_reported_finish_that_a_rollback_undid_leaves_the_voucher_to_be_claimed(
    tmp_path: Path,
) -> None:
    async def story(market: Market, ledger: Script) -> None:
        vk, finish = await with_voucher(market, 100), "ef" * 32
        await settle.reported(market, told_of(vk), finish)
        for sighting, state in (
            (Sighting(ChannelStage.ENDED, 100), ChannelStage.OPEN),  # in a block, not deep
            (
                Sighting(ChannelStage.OPEN, 0),
                ChannelStage.OPEN,
            ),  # rolled back, and the adapter is dead: claimed for it
            (Sighting(ChannelStage.ENDED, 100, True), ChannelStage.ENDED),
        ):
            ledger.answer = ClaimRound([], {vk: sighting})
            await settle.claim_round(market)
            assert [one.voucher.cumulative for one in ledger.asked[-1]] == [100]
            channel = await market.store.get(Channel, vk)
            assert channel is not None
            assert (channel.state, channel.settled_tx) == (state, finish)

    with_market(tmp_path, story)


@pytest.mark.parametrize("ended_by", ["ef" * 32, "00" * 32])
def test_a_finish_ends_a_channel_without_a_voucher_once_it_is_deep_and_this_channels(
    tmp_path: Path, ended_by: str
) -> None:
    async def story(market: Market, ledger: Script) -> None:
        vk, finish = await with_voucher(market, 0), "ef" * 32
        await settle.reported(market, told_of(vk), finish)
        ledger.shown = ChannelOnChain(ChannelStage.ENDED, 0, 0, ended_by, 1)
        for depth, state in (
            (1, ChannelStage.OPEN),
            (15, ChannelStage.ENDED if ended_by == finish else ChannelStage.OPEN),
        ):
            ledger.looks[finish] = TxLook(depth, False, False)
            await settle.follow(market)
            channel = await market.store.get(Channel, vk)
            assert channel is not None and channel.state is state

    with_market(tmp_path, story)


def row(tx: str, state: TxState, body: bytes = b"body") -> Tx:
    return Tx(tx, "open", "a", SESSION.verify_key, "", state, body, 0, 10**14)


def test_rows_follow_the_chain_over_rollbacks_to_the_end(tmp_path: Path) -> None:
    async def story(market: Market, ledger: Script) -> None:
        one = "01" * 32
        await market.store.apply(Change(puts=[row(one, TxState.SUBMITTED)]))
        gone, dead = TxLook(0, False, True), TxLook(0, True, True)
        for look, state, sent in (
            (TxLook(1, False, True), TxState.SEEN, 0),
            (TxLook(3, False, True), TxState.SEEN, 0),
            (gone, TxState.SUBMITTED, 1),  # rolled back, and the same bytes sent again
            (TxLook(1, False, True), TxState.SEEN, 1),
            (TxLook(15, False, True), TxState.FINAL, 1),
        ):
            ledger.looks[one] = look
            await settle.follow(market)
            known = await market.store.get(Tx, one)
            assert known is not None and known.state is state
            assert len(ledger.sent) == sent
        two = "02" * 32
        await market.store.apply(Change(puts=[row(two, TxState.SUBMITTED)]))
        ledger.looks[two] = dead
        await settle.follow(market)
        known = await market.store.get(Tx, two)
        assert known is not None and known.state is TxState.EXPIRED

    with_market(tmp_path, story)


def test_what_no_wallet_signed_is_never_sent(tmp_path: Path) -> None:
    async def story(market: Market, ledger: Script) -> None:
        one = "01" * 32
        await market.store.apply(Change(puts=[row(one, TxState.BUILT)]))
        ledger.looks[one] = TxLook(0, False, False)
        await settle.follow(market)
        known = await market.store.get(Tx, one)
        assert known is not None and known.state is TxState.BUILT and not ledger.sent

    with_market(tmp_path, story)


def claimable(live: Live, provider: Provider, cumulative: int, **changes: Any) -> Claimable:
    terms = terms_for(
        offer(
            adapter_vkh=provider.adapter.key_hash,
            payout=provider.payout,
            close_period_ms=live.consts.close_period_ms,
            fee_bps=live.consts.fee_bps,
        ),
        core_job(),
        session=live.session,
        consumer_vkh=live.consts.consumer_vkh,
    )
    made = Claimable(
        terms, live.ref.tx_id.hex(), live.voucher(cumulative),
        addresses.to_text(provider.payout_address), True, cumulative,
    )  # fmt: skip
    return replace(made, **changes)


@pytest.mark.prove
def test_one_channel_told_wrongly_stops_no_other_and_pays_no_other_bounty() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("alice", 300 * ADA)
        world.fund("market", 50 * ADA)
        world.devnet.mint()
        good, mean, late = await world.open("alice", provider, [30 * ADA] * 3)
        world.devnet.mint()
        ledger = ChainLedger(world.chain, world.desk("market", MemoryLog()))
        promised = claimable(mean, provider, 5 * ADA)
        asked = [
            claimable(good, provider, 5 * ADA),
            replace(promised, terms=replace(promised.terms, fee_bps=100)),  # the datum says 0
            claimable(late, provider, 5 * ADA, open_tx="z" * 64),
            claimable(late, provider, 5 * ADA, payout_address="nowhere"),
        ]
        done = await ledger.claim(asked)
        assert [list(claim.channels) for claim in done.sent] == [[good.session.verify_key]]
        assert list(done.seen) == [good.session.verify_key]
        (sent,) = done.sent
        assert (await ledger.look(sent.id, sent.body)) == TxLook(0, False, True)
        world.devnet.mint()
        assert (await ledger.look(sent.id, sent.body)) == TxLook(1, False, True)
        again = await ledger.claim(asked)
        assert again.seen[good.session.verify_key] == Sighting(ChannelStage.OPEN, 5 * ADA)
        assert not again.sent

    run(story, block_ms=BY_HAND)


def test_a_death_between_two_writes_loses_no_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter says its finish again until it is acknowledged; the second time nothing lacks."""

    def dies_at(market: Market, which: int) -> Callable[[Change], Awaitable[None]]:
        write, count = market.store.apply, 0

        async def apply(change: Change, /) -> None:
            nonlocal count
            count += 1
            if count == which:
                raise StoreFault("the process died here")
            await write(change)

        return apply

    async def story(market: Market, _: Script) -> None:
        vk, whole = await with_voucher(market, 5_000_000), market.store.apply
        lease: Any = SimpleNamespace(id="lease_1", session_vk=vk, account="a", provider="p")
        for which in (1, 2):
            tx = f"{which:02d}" * 32
            monkeypatch.setattr(market.store, "apply", dies_at(market, which))
            with pytest.raises(StoreFault):
                await settle.reported(market, lease, tx)
            monkeypatch.setattr(market.store, "apply", whole)
            await settle.reported(market, lease, tx)
            channel = await market.store.get(Channel, vk)
            assert channel is not None and channel.settled_tx == tx
            assert await market.store.get(Tx, tx) is not None

    with_market(tmp_path, story)
