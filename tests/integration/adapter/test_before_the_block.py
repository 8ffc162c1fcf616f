"""A lease before its channel's first block, on a real ledger: each way in which an open that was
handed over can be false, fail, or be taken back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapter.core import before_block
from adapter.core.events import Alarm, Passed
from adapter.core.state import PauseCause
from adapter.core.wish import Wish
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Opening
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import plutus
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit import HANDED, MemoryLog
from marketplace.chain.transaction.signing import join
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import EndReason, LeaseState
from tests.integration.support.chain import ADA, BY_HAND, World, key, run
from tests.integration.support.door import Answer, door
from tests.integration.support.handed import Adapter, Handed, deep, opening, rival

Body = Callable[[World], Awaitable[None]]


def story(body: Body) -> None:
    run(body, block_ms=BY_HAND)


async def serve(adapter: Adapter, seconds: int, handed: Handed) -> None:
    """The workload runs so long, its payer answering each receipt."""
    if not adapter.lease().handle:
        await adapter.perform(adapter.start())
    for _ in range(seconds):
        await adapter.perform(adapter.tick(pay=False))
        owed = adapter.channel(handed.session).owed
        voucher = Voucher.sign(handed.session, owed)
        await adapter.perform(adapter.hear(wire.VoucherSent("lease_1", voucher)))


# ---- the way in ----------------------------------------------------------------------------------


def test_it_is_sent_and_served_without_a_block_and_paid_with_one(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        await handed.over()
        assert adapter.refused() == [] and adapter.lease().wish is Wish.RUN
        assert await world.chain.waits(handed.tx.tx_id)  # it submitted it itself
        await adapter.look()
        await serve(adapter, 5, handed)
        assert adapter.lease().state is LeaseState.ACTIVE
        world.devnet.mint()
        await adapter.look()
        channel = adapter.channel(handed.session)
        assert channel.young is not None and channel.young.in_block
        assert channel.limit > before_block.LEASE_MS  # by depth, as ever
        assert channel.due == channel.owed > 0

    story(body)


def test_a_payer_that_sent_it_first_changes_nothing(tmp_path: Path) -> None:
    """A door refuses what waits in it already: it is there, and that is what counts."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        await world.chain.submit(handed.tx.bytes)
        await handed.over()
        assert adapter.refused() == [] and adapter.lease().wish is Wish.RUN

    story(body)


def test_a_block_that_took_it_between_the_look_and_the_door_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        submit = world.chain.submit

        async def late(raw: bytes, **more: Any) -> Any:
            await submit(raw)
            world.devnet.mint()
            return await submit(raw, **more)

        monkeypatch.setattr(world.chain, "submit", late)
        await handed.over()
        assert not await world.chain.waits(handed.tx.tx_id)
        assert adapter.refused() == [] and adapter.lease().wish is Wish.RUN

    story(body)


def test_what_was_handed_over_is_no_money_of_the_adapters(tmp_path: Path) -> None:
    """An open whose change goes to the hot key's address is not counted on before a block."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        hot = adapter.agent._desk.wallet.address  # pyright: ignore[reportPrivateUsage]
        handed = await Handed.by(
            world, adapter, coins=lambda funds: Funds(hot, funds.spendable, None)
        )
        await handed.over()
        assert adapter.lease().wish is Wish.RUN
        funds, _ = await adapter.agent._desk.funds()  # pyright: ignore[reportPrivateUsage]
        assert funds.lovelace == 0
        assert [one.purpose for one in adapter.journal.transactions()] == [HANDED]

    story(body)


# ---- double-spent, never included, rolled back ---------------------------------------------------


def test_open_double_spent(tmp_path: Path) -> None:
    """Our door took it and no other did; another transaction takes its coins. The loss is what was
    served, its lease ends with the reason, and the money of nobody else is touched.
    """

    false: list[str] = []

    def cut_off(method: str, path: str, forward: Callable[[], Answer]) -> Answer | None:
        """A door that takes what it is sent and passes nothing on."""
        if method == "POST" and path.endswith("/tx/submit"):
            return 200, f'"{false[0]}"'.encode(), "application/json"
        return forward()

    async def body(world: World) -> None:
        with door(world.served.url) as between:
            between.keeper = cut_off
            adapter = Adapter.at(world, tmp_path, chain=await connect(between.url))
            await deep(world, "consumer")
            handed = await Handed.by(world, adapter)
            false[:] = [handed.tx.tx_id.hex()]
            other = await rival(world, "consumer", handed.tx)
            await handed.over()
            await adapter.look()
            await serve(adapter, 10, handed)
            await world.chain.submit(other.bytes)
            world.devnet.mint()
            between.keeper = lambda _method, _path, forward: forward()  # the network heals
            await adapter.look()
            await adapter.look()
            lease, (lost,) = adapter.lease(), adapter.state.losses
            assert lease.reason is EndReason.CHANNEL_REFUSED and lease.hard
            assert lease.message == (
                "OPEN_VOID: no block can hold the open: another transaction spent its inputs"
            )
            assert adapter.channel(handed.session).owed <= lost.lovelace <= 20_001 * 11
            told = [e.code for o in adapter.outcomes for e in o.effects if isinstance(e, Alarm)]
            assert "OPEN_VOID" in told

    story(body)


def test_open_never_included(tmp_path: Path) -> None:
    """Its time to live passes: void; what was served is the loss."""

    async def body(world: World) -> None:
        with door(world.served.url) as between:
            adapter = Adapter.at(world, tmp_path, chain=await connect(between.url))
            await deep(world, "consumer")
            handed = await Handed.by(world, adapter)
            name = f'"{handed.tx.tx_id.hex()}"'.encode()
            between.keeper = lambda method, path, forward: (
                (200, name, "application/json")
                if method == "POST" and path.endswith("/tx/submit")
                else forward()
            )
            await handed.over()
            await serve(adapter, 3, handed)
            world.devnet.advance(880_000)  # of 900 s, since it was built: that too takes time
            await adapter.look()
            assert not adapter.state.losses
            world.devnet.advance(80_000)
            await adapter.look()
            assert adapter.lease().message.endswith("its time to live passed")
            assert len(adapter.state.losses) == 1

    story(body)


def test_open_never_included_holds_no_devices_beyond_its_allowance(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        await handed.over()
        allowed = adapter.channel(handed.session).limit
        await serve(adapter, 61, handed)
        assert adapter.lease().pause is PauseCause.DEPTH
        assert adapter.channel(handed.session).owed <= allowed
        for _ in range(19):
            adapter.boot_ms += 10_000
            await adapter.look()
            await adapter.perform(adapter.do(Passed()))
        assert adapter.lease().message.startswith("OPEN_LATE: ")
        assert not adapter.state.losses  # a block may still come: then what was served is claimed

    story(body)


def test_open_rolled_back(tmp_path: Path) -> None:
    """The same bytes are sent again by the adapter, and what it serves meanwhile is the
    allowance.
    """

    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        await handed.over()
        allowed = adapter.channel(handed.session).limit
        world.devnet.mint()
        await adapter.look()
        assert adapter.channel(handed.session).limit > allowed
        world.devnet.rollback(1, drop=True)
        assert not await world.chain.waits(handed.tx.tx_id)
        await adapter.look()
        assert adapter.channel(handed.session).limit == allowed
        assert await world.chain.waits(handed.tx.tx_id)
        adapter.killed()
        world.devnet.mint()
        await adapter.look()
        assert adapter.channel(handed.session).limit > allowed and not adapter.state.losses

    story(body)


def test_open_rolled_back_and_double_spent(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        other = await rival(world, "consumer", handed.tx)
        await handed.over()
        await serve(adapter, 5, handed)
        world.devnet.mint()
        await adapter.look()
        world.devnet.rollback(1, drop=True)
        await world.chain.submit(other.bytes)
        await adapter.look()
        assert not adapter.state.losses  # only a block says so
        world.devnet.mint()
        await adapter.look()
        assert adapter.lease().reason is EndReason.CHANNEL_REFUSED
        assert adapter.channel(handed.session).stage is ChannelStage.ENDED
        assert len(adapter.state.losses) == 1

    story(body)


def test_void_and_included_after_all_it_is_claimed(tmp_path: Path) -> None:
    """A rollback takes the rival away and the open comes in: what is due is taken from it."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        hot = adapter.agent.fee_address
        for _ in range(2):
            world.devnet.faucet(hot, 10 * ADA)  # pyright: ignore[reportUnknownMemberType]
        world.devnet.mint()
        handed = await Handed.by(world, adapter)
        other = await rival(world, "consumer", handed.tx)
        await handed.over()
        await serve(adapter, 5, handed)
        world.devnet.mint()
        world.devnet.rollback(1, drop=True)
        await world.chain.submit(other.bytes)
        world.devnet.mint()
        await adapter.look()
        assert adapter.channel(handed.session).young is not None
        assert adapter.state.losses
        await adapter.perform(adapter.exit())
        due = adapter.channel(handed.session).due
        world.devnet.rollback(1, drop=True)
        await world.chain.submit(handed.tx.bytes)
        world.devnet.mint()
        for _ in range(3):
            await adapter.look()
            world.devnet.mint()
        assert adapter.channel(handed.session).settled_tx
        assert await world.balance(adapter.provider.payout_address) >= due > 0

    story(body)


def test_a_kill_at_any_point_leaves_the_allowance_booked(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await deep(world, "consumer", "another")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        await handed.over()
        await serve(adapter, 3, handed)
        before = adapter.channel(handed.session)
        adapter.killed()
        assert adapter.channel(handed.session) == before
        assert before_block.waiting(adapter.state) == [before]
        world.devnet.mint()
        await adapter.look()
        assert not before_block.waiting(adapter.state)

    story(body)


# ---- false bytes ---------------------------------------------------------------------------------


def test_replayed_to_two_adapters(tmp_path: Path) -> None:
    """What opens a channel to one provider is refused by another, whatever its terms say."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        first = Adapter.at(world, tmp_path / "1", "p")
        second = Adapter.at(world, tmp_path / "2", "q")
        handed = await Handed.by(world, first)
        await second.quote(world.wallet("consumer").signer, handed.session)
        await second.signed(handed.session, handed.tx.tx_id, handed.tx.bytes)
        assert second.refused() == ["OPEN_CHANNEL"] and second.lease().wish is Wish.WAIT
        assert not await world.chain.waits(handed.tx.tx_id)
        await handed.over()
        assert first.lease().wish is Wish.RUN

    story(body)


def _rewritten(handed: Handed, old: bytes, new: bytes) -> bytes:
    """The body with *old* as *new*, signed again by its owner; its id is said to be the new one."""
    body = handed.parts.body
    assert body.count(old) == 1
    body = body.replace(old, new)
    owner = key("consumer")
    tx_id = blake2b_256(body)
    handed.tx = replace(handed.tx, tx_id=tx_id)
    return join(body, [(owner.verify_key, owner.sign(tx_id))], None)


def _forged(handed: Handed) -> bytes:
    return join(handed.parts.body, [(key("consumer").verify_key, bytes(64))], None)


def _strangers(handed: Handed) -> bytes:
    other = key("another")
    return join(handed.parts.body, [(other.verify_key, other.sign(handed.tx.tx_id))], None)


def _twice(handed: Handed) -> bytes:
    owner = key("consumer")
    one = (owner.verify_key, owner.sign(handed.tx.tx_id))
    return join(handed.parts.body, [one, one], None)


def _key_twice(handed: Handed) -> bytes:
    """The fee a second time, which a careless reader takes for the first."""
    body = handed.parts.body
    assert body[0] == 0xA4
    fee = b"\x02" + plutus.head(0, handed.tx.fee)
    return _rewritten(handed, body, b"\xa5" + body[1:] + fee)


def _redeemers(handed: Handed) -> bytes:
    """One redeemer, twice: as scripts are told, though none runs."""
    owner, one = key("consumer"), bytes.fromhex("840000d8798082190100190100")
    witness = (owner.verify_key, owner.sign(handed.tx.tx_id))
    return join(handed.parts.body, [witness], b"\x82" + one + one)


def _another_field(handed: Handed) -> bytes:
    """A validity interval's start, which may lie in a far future."""
    body = handed.parts.body
    return _rewritten(handed, body, b"\xa5" + body[1:] + b"\x08\x00")


def _fee(handed: Handed) -> bytes:
    fee = b"\x02" + plutus.head(0, handed.tx.fee)
    return _rewritten(handed, fee, b"\x02" + plutus.head(0, handed.tx.fee - 1))


def _cheap(handed: Handed) -> bytes:
    """A fee that is one too small, with the rest given to the change."""
    (change,) = [u for u in handed.tx.made if u.datum is None]
    size = len(handed.tx.bytes) - 1
    least = 44 * size + 155_381
    less = handed.tx.fee - least + 1
    body = handed.parts.body.replace(
        plutus.head(0, change.lovelace), plutus.head(0, change.lovelace + less)
    )
    old = b"\x02" + plutus.head(0, handed.tx.fee)
    assert body.count(old) == 1
    body = body.replace(old, b"\x02" + plutus.head(0, least - 1))
    owner, tx_id = key("consumer"), blake2b_256(body)
    handed.tx = replace(handed.tx, tx_id=tx_id)
    return join(body, [(owner.verify_key, owner.sign(tx_id))], None)


def _trailing(handed: Handed) -> bytes:
    return handed.tx.bytes + b"\x00"


def _long(handed: Handed) -> bytes:
    return handed.tx.bytes + bytes(5000)


def _invalid(handed: Handed) -> bytes:
    return handed.tx.bytes[:-2] + b"\xf4\xf6"


@pytest.mark.parametrize(
    ("forge", "code"),
    [
        (_forged, "OPEN_WITNESSES"),
        (_strangers, "OPEN_WITNESSES"),
        (_twice, "OPEN_WITNESSES"),
        (_key_twice, "OPEN_BYTES"),
        (_redeemers, "OPEN_FIELDS"),
        (_another_field, "OPEN_FIELDS"),
        (_fee, "OPEN_BALANCE"),
        (_cheap, "OPEN_FEE"),
        (_trailing, "OPEN_BYTES"),
        (_long, "OPEN_BYTES"),
        (_invalid, "OPEN_BYTES"),
    ],
)
def test_forged_bytes(tmp_path: Path, forge: Callable[[Handed], bytes], code: str) -> None:
    """Each is one change away from an open that is taken, and is refused before it is sent."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        right = handed.tx
        await handed.over(forge(handed))
        assert adapter.refused() == [code]
        assert adapter.lease().wish is Wish.WAIT and not adapter.journal.transactions()
        assert not await world.chain.waits(right.tx_id)

    story(body)


def test_a_market_that_swaps_the_bytes(tmp_path: Path) -> None:
    """Another open of the same consumer, or a stranger's: not the one that was named."""

    async def body(world: World) -> None:
        await deep(world, "consumer", "another")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        swapped = await opening(world, "another", handed.terms.consts())
        await handed.over(swapped.bytes)
        assert adapter.refused() == ["OPEN_OTHER"] and adapter.lease().wish is Wish.WAIT
        await world.chain.submit(handed.tx.bytes)  # its payer sent the right one
        world.devnet.mint()
        await adapter.look()
        assert adapter.lease().wish is Wish.RUN and adapter.channel(handed.session).young is None

    story(body)


def test_inputs_too_young(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        world.fund("consumer", 50 * ADA)
        world.devnet.mint(4)
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        await handed.over()
        assert adapter.refused() == ["OPEN_YOUNG"]

    story(body)


def test_inputs_that_wait_for_a_block_themselves(tmp_path: Path) -> None:
    """A chain of opens: the second spends the change of the first."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        first = await opening(world, "consumer", _consts_of("first"))
        await world.chain.submit(first.bytes)
        (change,) = [u for u in first.made if u.address == world.wallet("consumer").address]
        handed = await Handed.by(
            world, adapter, coins=lambda funds: replace(funds, spendable=(change,))
        )
        await handed.over()
        assert adapter.refused() == ["OPEN_INPUTS"]

    story(body)


def _consts_of(name: str) -> Consts:
    vk = key(f"session {name}").verify_key
    return Consts(vk, bytes(28), bytes(28), key("consumer").key_hash, 86_400_000, 0)


def test_inputs_in_another_pending_open(tmp_path: Path) -> None:
    """Two opens that spend one coin: whichever the door has, the other is not relied upon."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        first = Adapter.at(world, tmp_path / "1", "p")
        second = Adapter.at(world, tmp_path / "2", "q")
        one, two = await Handed.by(world, first), await Handed.by(world, second, lease="lease_2")
        await one.over()
        await two.over()
        assert first.lease().wish is Wish.RUN
        assert second.refused() == ["OPEN_CONFLICT"] and second.lease("lease_2").wish is Wish.WAIT

    story(body)


@pytest.mark.parametrize(("until_s", "good"), [(590, False), (7_300, False), (7_100, True)])
def test_a_time_to_live_that_is_short_or_endless(tmp_path: Path, until_s: int, good: bool) -> None:
    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter, until_s=until_s)
        await handed.over()
        assert adapter.refused() == ([] if good else ["OPEN_EXPIRY"])

    story(body)


def test_a_pair_of_consumer_keys_with_one_funding_transaction(tmp_path: Path) -> None:
    """One open of two channels for two consumers is trusted with one allowance."""

    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        owner, friend = world.wallet("consumer").signer, key("friend")
        sessions = key("session a"), key("session b")
        terms = [
            await adapter.quote(who, session, f"lease_{n}")
            for n, (who, session) in enumerate(zip((owner, friend), sessions, strict=True))
        ]
        desk = world.desk("consumer", MemoryLog())
        snapshot, funds, _ = await desk.look()
        openings = [Opening(5 * ADA, lambda _f, _i, t=t: t.consts(), None) for t in terms]
        tx = plans.open_channels(snapshot, funds, openings).finish().sign(owner)
        for n, session in enumerate(sessions):
            await adapter.signed(session, tx.tx_id, tx.bytes, f"lease_{n}")
        assert [adapter.lease(f"lease_{n}").wish for n in (0, 1)] == [Wish.RUN, Wish.WAIT]
        assert adapter.refused() == ["ALLOWANCE_TAKEN"]

    story(body)


@pytest.mark.parametrize("change", [{"close_period_ms": 60_000}, {"adapter_vkh": bytes(28)}])
def test_another_channel_than_the_terms_say(tmp_path: Path, change: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        await deep(world, "consumer")
        adapter = Adapter.at(world, tmp_path)
        handed = await Handed.by(world, adapter)
        consts = replace(handed.terms.consts(), **change)
        handed.tx = await opening(world, "consumer", consts)
        await handed.over()
        assert adapter.refused() == ["OPEN_CHANNEL"]

    story(body)
