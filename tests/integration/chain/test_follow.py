"""Our transactions followed to their end, and a CIP-30 wallet's put in place, on the devnet."""

from __future__ import annotations

import anyio
import cbor2
import pytest

from marketplace.chain.actions.external_wallet import (
    ForeignWallet,
    restore,
    signed_by_wallet,
    unsigned_close,
    unsigned_open,
    unsigned_top_up,
)
from marketplace.chain.actions.session import claim, close_channel, pay
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Opening
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.channels.mempool import Mempool
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.errors import ChainFault, ScriptRefused, TxRefused
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.follow import Follower
from marketplace.chain.node.submit import CONSENT, MemoryLog, TxRecord, send
from marketplace.chain.transaction.outputs import Out
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Closing, Consts
from marketplace.domain.money.transaction import TxEvent, TxState
from tests.integration.support.chain import ADA, BY_HAND, DAY_MS, Provider, World, key, run


def test_seen_rolled_back_sent_again_and_final() -> None:
    async def story(world: World) -> None:
        world.fund("payer", 50 * ADA)
        world.devnet.mint(2)
        log = MemoryLog()
        follower = Follower(world.chain, log, final_depth=3)
        sent = await pay(world.desk("payer", log), [Out(world.wallet("friend").address, 5 * ADA)])

        async def states() -> list[TxState]:
            await follower.look()
            return [r.state for r in log.records.values()]

        assert await states() == [TxState.SUBMITTED]
        world.devnet.mint()
        assert await states() == [TxState.SEEN]
        world.devnet.rollback(1, drop=True)
        changes = await follower.look()
        assert [c.event for c in changes] == [TxEvent.VANISHED, TxEvent.SENT]
        assert [r.state for r in log.records.values()] == [TxState.SUBMITTED]
        world.devnet.mint()
        assert await follower.wait(sent.tx_id, blocks=1, poll_s=0) > 0
        world.devnet.mint()
        assert await states() == [TxState.SEEN]
        world.devnet.mint()
        assert await states() == [TxState.FINAL]
        assert await follower.look() == []
        assert await world.balance(world.wallet("friend").address) == 5 * ADA

    run(story, block_ms=BY_HAND)


def test_what_can_never_be_included_is_expired() -> None:
    async def story(world: World) -> None:
        world.fund("payer", 50 * ADA)
        world.devnet.mint()
        log = MemoryLog()
        follower = Follower(world.chain, log)
        desk = world.desk("payer", log)
        snapshot, funds, _ = await desk.look()
        to = world.wallet("friend").address
        first = plans.pay(snapshot, funds, [Out(to, 5 * ADA)]).finish().sign(desk.wallet.signer)
        rival = plans.pay(snapshot, funds, [Out(to, 6 * ADA)]).finish().sign(desk.wallet.signer)
        await send(world.chain, MemoryLog(), rival, "rival")
        world.devnet.mint()
        with pytest.raises(TxRefused) as refused:
            await send(world.chain, log, first, "pay")
        assert refused.value.conflict
        assert [r.state for r in log.records.values()] == [TxState.EXPIRED]

        late = await pay(desk, [Out(to, 7 * ADA)])
        world.devnet.advance(24 * 3_600_000)  # its slot passes before any block takes it
        [change] = await follower.look()
        assert (change.event, change.record.tx_id) == (TxEvent.IMPOSSIBLE, late.tx_id)
        with pytest.raises(TxRefused):
            again = await pay(desk, [Out(to, 8 * ADA)])
            world.devnet.rollback(1)
            world.devnet.advance(24 * 3_600_000)
            await follower.wait(again.tx_id, poll_s=0)

    run(story, block_ms=BY_HAND)


def test_what_was_only_consented_to_is_followed_and_never_sent() -> None:
    async def story(world: World) -> None:
        world.fund("payer", 50 * ADA)
        world.devnet.mint()
        log, desk = MemoryLog(), world.desk("payer")
        snapshot, funds, _ = await desk.look()
        out = Out(world.wallet("friend").address, 5 * ADA)
        tx = plans.pay(snapshot, funds, [out]).finish().sign(desk.wallet.signer)
        await log.put(TxRecord(tx.tx_id, tx.bytes, CONSENT))
        follower = Follower(world.chain, log, final_depth=3)
        assert await follower.look() == [] and not await world.chain.waits(tx.tx_id)
        own = world.desk("payer", log)  # what it makes is nobody's money yet
        assert (await own.funds())[0].spendable == funds.spendable
        await world.chain.submit(tx.bytes)  # its sender's
        world.devnet.mint()
        assert [c.event for c in await follower.look()] == [TxEvent.INCLUDED]

    run(story, block_ms=BY_HAND)


def test_sending_the_same_bytes_twice_is_sending_them_once() -> None:
    async def story(world: World) -> None:
        world.fund("payer", 50 * ADA)
        desk = world.desk("payer")
        snapshot, funds, _ = await desk.look()
        draft = plans.pay(snapshot, funds, [Out(world.wallet("friend").address, 5 * ADA)])
        signed = draft.finish().sign(desk.wallet.signer)
        for _ in range(3):
            assert (await send(world.chain, MemoryLog(), signed, "pay")).tx_id == signed.tx_id
        assert await world.balance(world.wallet("friend").address) == 5 * ADA

    run(story)


def test_a_cip_30_wallet_opens_tops_up_and_closes() -> None:
    async def story(world: World) -> None:
        provider, me = Provider("p"), world.wallet("browser")
        world.fund("browser", 200 * ADA)
        session = key("browser session")
        consts = Consts(
            session.verify_key,
            provider.adapter.key_hash,
            provider.payout,
            me.signer.key_hash,
            DAY_MS,
            0,
        )
        log = MemoryLog()

        async def wallet() -> ForeignWallet:
            return ForeignWallet(me.address, tuple(await world.chain.utxos(me.address)))

        def sign(tx: bytes) -> bytes:
            """What ``signTx`` of a browser's wallet returns."""
            return cbor2.dumps({0: [[me.signer.verify_key, me.signer.sign(restore(tx).tx_id)]]})

        opening = Opening(40 * ADA, lambda _r, _i: consts, Credential(me.stake or b""))
        unsigned = await unsigned_open(world.chain, await wallet(), [opening])
        with pytest.raises(TxRefused):  # a witness set of somebody else's key
            other = key("other")
            strange = cbor2.dumps({0: [[other.verify_key, other.sign(unsigned.tx_id)]]})
            await send(world.chain, log, signed_by_wallet(unsigned, strange), "open")
        with pytest.raises(Malformed):
            wrong = cbor2.dumps({0: [[me.signer.verify_key, me.signer.sign(bytes(32))]]})
            await send(world.chain, log, signed_by_wallet(unsigned, wrong), "open")
        sent = await send(
            world.chain,
            log,
            signed_by_wallet(restore(unsigned.bytes), sign(unsigned.bytes)),
            "open",
        )
        assert sent.tx_id == unsigned.tx_id
        found = await world.finder.find(session.verify_key, sent.made[0].ref)
        assert isinstance(found, ChannelView)
        assert (found.amount, found.claimed) == (40 * ADA, 0)

        more = await unsigned_top_up(world.chain, await wallet(), found, 5 * ADA)
        await send(world.chain, log, signed_by_wallet(more, sign(more.bytes)), "top up")
        found = await world.finder.find(session.verify_key, sent.made[0].ref)
        assert isinstance(found, ChannelView)
        close = await unsigned_close(world.chain, await wallet(), found)
        await send(world.chain, log, signed_by_wallet(close, sign(close.bytes)), "close")
        found = await world.finder.find(session.verify_key, sent.made[0].ref)
        assert isinstance(found, ChannelView)
        assert found.amount == 45 * ADA and isinstance(found.stage, Closing)

    run(story)


def test_a_wallets_own_collateral_is_used_and_not_spent() -> None:
    async def story(world: World) -> None:
        provider, me = Provider("p"), world.wallet("browser")
        world.fund("browser", 200 * ADA)
        world.fund("browser", 5 * ADA)
        [live] = await world.open("browser", provider, [40 * ADA])
        utxos = await world.chain.utxos(me.address)
        kept: Utxo = next(u for u in utxos if u.lovelace == 5 * ADA)
        wallet = ForeignWallet(me.address, tuple(utxos), kept)
        unsigned = await unsigned_top_up(world.chain, wallet, await world.view(live), 5 * ADA)
        assert kept.ref not in unsigned.inputs
        assert len(unsigned.signers) == 1

    run(story)


def test_a_door_that_does_not_answer_is_a_fault() -> None:
    async def nothing() -> None:
        with pytest.raises(ChainFault):
            await connect("http://127.0.0.1:9/api/v0", deadline_s=5)

    anyio.run(nothing)

    async def story(world: World) -> None:
        chain = await connect(world.served.url + "/")
        assert chain.magic == 42 and not chain.mainnet
        assert await chain.utxos(world.wallet("nobody").address) == []
        assert await chain.transaction(bytes(32)) is None
        assert await chain.moves(bytes(32)) is None
        with pytest.raises(TxRefused):
            await chain.submit(b"\x84\xa0\xa0\xf5\xf6")
        with pytest.raises((TxRefused, ScriptRefused, ChainFault)):
            await chain.evaluate(b"\x00")

    run(story)


def test_an_unconfirmed_close_is_seen_in_the_mempool() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 100 * ADA)
        world.fund("settler", 50 * ADA)
        world.devnet.mint()
        [live] = await world.open("consumer", provider, [40 * ADA])
        world.devnet.mint()
        view = await world.view(live)

        async def waiting(view: ChannelView) -> list[bytes]:
            ahead = await Mempool(world.chain).ahead(view, lambda one: one.amount)
            return [tx_id for _, tx_id in ahead.spenders]

        assert await waiting(view) == []
        closed = await close_channel(world.desk("consumer"), view)
        assert await waiting(view) == [closed.sent.tx_id]
        world.devnet.mint()
        assert (await world.view(live)).closing
        assert await waiting(await world.view(live)) == []
        payouts = {provider.payout: provider.payout_address}
        pushed = await claim(
            world.desk("settler"), [(await world.view(live), live.voucher(5 * ADA))], payouts
        )
        assert await waiting(await world.view(live)) == [pushed.sent.tx_id]

    run(story, block_ms=BY_HAND)
