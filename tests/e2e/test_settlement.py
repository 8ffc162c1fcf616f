"""Settlement end to end: many parties in few transactions, and nobody gains or loses by a
rollback.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from marketplace.chain.actions.session import Desk, claim, close_channel
from marketplace.chain.build import plans
from marketplace.chain.build.wallet import Funds
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.submit import FileLog, MemoryLog, TxRecord
from marketplace.chain.settlement.next_step import Policy, Why
from marketplace.chain.settlement.settler import Settler
from marketplace.chain.settlement.wanted import Wanted
from marketplace.chain.transaction.outputs import Out
from marketplace.domain.money.transaction import TxEvent, TxState
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run
from tests.integration.support.costs_table import committed_rows

TICK_RATE = 30_000  # lovelace a second: a minute of ticks clears the least output of a payout
SECONDS = 60
EAGER = Policy(target_bps=500)  # pays a fee of up to 5 % where the default waits for 0.5 %


@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("drop", [False, True], ids=["back to the mempool", "dropped for good"])
def test_fifty_channels_settle_in_few_transactions_and_again_after_a_rollback(drop: bool) -> None:
    async def story(world: World) -> None:
        providers = [Provider(f"p{i}") for i in range(10)]
        lives = await _fifty(world, providers)
        world.fund("settler", 200 * ADA)
        world.devnet.mint(5)  # opens and funds lie deeper than the rollback goes
        owed = {live.session.verify_key: _a_minute_of_vouchers(live) for live, _ in lives}
        wanted = [
            Wanted(
                live.session.verify_key,
                live.ref,
                live.voucher(owed[live.session.verify_key]),
                p.payout_address,
            )
            for live, p in lives
        ]
        log = MemoryLog()
        settler = Settler(world.desk("settler", log), EAGER, final_depth=100)
        first = await settler.round(wanted)
        assert len(first.sent) <= _lower_bound(len(lives)) + 1
        assert sum(s.claimed for s in first.sent) == sum(owed.values())
        again = await settler.round(wanted)
        assert not again.sent and len(again.in_flight) == len(lives)  # nothing is sent twice
        world.devnet.mint(3)
        assert (await settler.round(wanted)).changes  # seen
        await _is_settled(world, lives, owed)

        world.devnet.rollback(5, drop=drop)
        world.finder = Settler(world.desk("x"))._finder  # an observer who remembers nothing
        resent = await settler.round(wanted)
        assert any(c.event is TxEvent.VANISHED for c in resent.changes)
        world.devnet.mint()
        for _ in range(6):
            if (await settler.round(wanted)).idle:
                break
            world.devnet.mint()
        await _is_settled(world, lives, owed)
        for provider in providers:
            due = sum(owed[live.session.verify_key] for live, p in lives if p == provider)
            assert await world.balance(provider.payout_address) == due
        _nothing_lost(world)

    run(story, block_ms=BY_HAND)


def test_a_conflict_takes_out_only_the_channel_in_the_way() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("alice", 300 * ADA)
        world.fund("settler", 50 * ADA)
        world.fund("rival", 50 * ADA)
        world.devnet.mint()
        lives = await world.open("alice", provider, [30 * ADA] * 4)
        world.devnet.mint()
        wanted = [_want(x, provider, 5 * ADA) for x in lives]
        payouts = {provider.payout: provider.payout_address}
        # A rival's claim of the second channel waits in the mempool, which no block shows.
        rival = await claim(
            world.desk("rival"), [(await world.view(lives[1]), lives[1].voucher(2 * ADA))], payouts
        )
        # It is settled behind the rival's, by itself, which its three ADA must be worth.
        settler = Settler(world.desk("settler", MemoryLog()), Policy(target_bps=1000))
        blind = await settler.round(wanted)
        sent = list(blind.sent)
        world.devnet.mint()
        for _ in range(4):
            done = await settler.round(wanted)
            sent += done.sent
            world.devnet.mint()
            if done.idle:
                break
        views = [await world.view(x) for x in lives]
        assert [v.claimed for v in views] == [5 * ADA] * 4
        assert await world.balance(provider.payout_address) == 20 * ADA
        assert await world.chain.transaction(rival.sent.tx_id) is not None
        assert sum(s.claimed for s in sent) == 18 * ADA
        _nothing_lost(world)

    run(story, block_ms=BY_HAND)


def test_one_bad_channel_does_not_stop_the_others_and_dust_waits() -> None:
    async def story(world: World) -> None:
        provider, tiny = Provider("p"), Provider("tiny")
        world.fund("alice", 400 * ADA)
        settler_at = world.fund("settler", 50 * ADA)
        good, forged, alien, low = await world.open("alice", provider, [30 * ADA] * 4)
        [dust] = await world.open("alice", tiny, [30 * ADA])
        forgery = good.voucher(20 * ADA)
        wanted = [
            _want(good, provider, 20 * ADA),
            Wanted(
                forged.session.verify_key,
                forged.ref,
                type(forgery)(forged.session.verify_key, 20 * ADA, forgery.signature),
                provider.payout_address,
            ),
            Wanted(
                alien.session.verify_key, dust.ref, alien.voucher(20 * ADA), provider.payout_address
            ),
            _want(low, provider, 10_000),
            Wanted(
                dust.session.verify_key,
                dust.ref,
                dust.voucher(300_000),
                tiny.payout_address,
                drain=True,
            ),
        ]
        before = await world.balance(settler_at)
        done = await Settler(world.desk("settler")).round(wanted)
        assert [s.claimed for s in done.sent] == [20 * ADA]
        assert done.refused[forged.session.verify_key].code == "VOUCHER_REFUSED"
        assert done.refused[alien.session.verify_key].code == "CHANNEL_UNKNOWN"
        assert done.waiting[low.session.verify_key] is Why.NOT_WORTH_IT
        assert done.waiting[dust.session.verify_key] is Why.BELOW_LEAST
        assert await world.balance(settler_at) == before - done.sent[0].sent.fee

    run(story)


def test_a_voucher_above_the_channel_is_taken_as_far_as_it_can_pay() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("alice", 100 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("alice", provider, [30 * ADA])
        done = await Settler(world.desk("settler")).round([_want(live, provider, 500 * ADA)])
        view = await world.view(live)
        assert done.sent[0].claimed == view.claimed == 30 * ADA - view.amount
        assert 0 < view.amount < 3 * ADA
        await close_channel(world.desk("alice"), view)  # what stays is enough to close

    run(story)


def test_an_adapter_ends_its_channels_and_a_restart_sends_nothing_twice(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        alice = world.fund("alice", 200 * ADA)
        world.fund("adapter", 50 * ADA)
        world.devnet.mint()
        lives = await world.open("alice", provider, [30 * ADA] * 2)
        world.devnet.mint()
        home = await world.balance(alice)
        wanted = [
            _want(x, provider, n, end=True) for x, n in zip(lives, (4 * ADA, 500_000), strict=True)
        ]
        wanted[1] = Wanted(
            lives[1].session.verify_key, lives[1].ref, None, provider.payout_address, end=True
        )

        def settler() -> Settler:
            desk = world.desk("adapter", FileLog(tmp_path / "log.jsonl"))
            return Settler(desk, adapter=provider.adapter)

        [only] = (await settler().round(wanted)).sent
        restarted = await settler().round(wanted)  # a new process that reads the same log
        assert not restarted.sent and len(restarted.in_flight) == 2
        world.devnet.mint()
        final = await settler().round(wanted)
        assert [final.ended[x.session.verify_key].claimed for x in lives] == [4 * ADA, 0]
        assert await world.balance(alice) == home + 56 * ADA
        assert final.ended[lives[0].session.verify_key].finished_by == only.sent.tx_id

    run(story, block_ms=BY_HAND)


def test_a_crash_between_the_log_and_the_wire_is_made_good() -> None:
    class Wire(Exception):
        """The machine died."""

    class DyingLog(MemoryLog):
        async def put(self, record: TxRecord) -> None:
            await super().put(record)
            if record.state is TxState.BUILT:
                raise Wire

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("alice", 100 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("alice", provider, [30 * ADA])
        log = DyingLog()
        wanted = [_want(live, provider, 9 * ADA)]
        with pytest.raises(Wire):
            await Settler(Desk(world.chain, world.wallet("settler"), "", log), EAGER).round(wanted)
        assert (await world.view(live)).claimed == 0
        survivor = MemoryLog()
        survivor.records = log.records
        desk = Desk(world.chain, world.wallet("settler"), "", survivor)
        settler = Settler(desk, EAGER, final_depth=1)
        while not (done := await settler.round(wanted)).idle:
            assert not done.sent  # the stored bytes went out, nothing new was built
        assert (await world.view(live)).claimed == 9 * ADA

    run(story)


def test_a_lagging_indexer_makes_it_wait_not_err() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("alice", 100 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("alice", provider, [30 * ADA])
        wanted = [_want(live, provider, 9 * ADA)]
        settler = Settler(world.desk("settler", MemoryLog()), EAGER)
        assert (await settler.round(wanted)).sent
        world.devnet.set_lag(1)  # the claim is in a block that the face does not show yet
        lagging = await settler.round(wanted)
        assert not lagging.sent and lagging.in_flight
        world.devnet.set_lag(0)
        assert not (await settler.round(wanted)).sent
        assert (await world.view(live)).claimed == 9 * ADA

    run(story)


def test_a_lost_collateral_costs_a_round_and_no_money() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("alice", 100 * ADA)
        settler_at = world.fund("settler", 40 * ADA)
        world.fund("settler", 5 * ADA)  # what stands behind its scripts
        world.devnet.mint()
        [live] = await world.open("alice", provider, [30 * ADA])
        world.devnet.mint()
        # Another process of the same wallet spends the collateral; no block says so yet.
        desk = world.desk("settler")
        snapshot, funds, _ = await desk.look()
        assert funds.collateral is not None
        thief = Funds(settler_at, (funds.collateral,), None)
        spend = plans.pay(snapshot, thief, [Out(world.wallet("friend").address, 2 * ADA)])
        await desk.send(spend.finish(), "spend")
        settler = Settler(world.desk("settler", MemoryLog()), EAGER)
        wanted = [_want(live, provider, 9 * ADA)]
        blocked = await settler.round(wanted)
        assert not blocked.sent and blocked.refused[live.session.verify_key].code == "TX_REFUSED"
        world.devnet.mint()
        assert (await settler.round(wanted)).sent
        world.devnet.mint()
        assert (await world.view(live)).claimed == 9 * ADA
        assert 5 * ADA in [u.lovelace for u in await world.chain.utxos(settler_at)]  # and a new one
        _nothing_lost(world)

    run(story, block_ms=BY_HAND)


def test_an_unreachable_chain_is_a_fault_and_changes_nothing() -> None:
    async def story(world: World) -> None:
        settler = Settler(world.desk("settler"))
        world.chain._api.base_url = "http://127.0.0.1:9"  # nothing listens on discard
        with pytest.raises(ChainFault):
            await settler.round([])

    run(story)


async def _fifty(world: World, providers: Sequence[Provider]) -> list[tuple[Live, Provider]]:
    """Ten consumers open a channel to each of five of the ten providers."""
    lives: list[tuple[Live, Provider]] = []
    for c in range(10):
        world.fund(f"c{c}", 300 * ADA)
    world.devnet.mint()
    for c in range(10):
        for k in range(5):
            provider = providers[(c + 2 * k) % 10]
            [live] = await world.open(f"c{c}", provider, [40 * ADA])
            lives.append((live, provider))
            world.devnet.mint()
    return lives


def _a_minute_of_vouchers(live: Live) -> int:
    """A voucher every second, as the payer signs them; the last one is what counts."""
    cumulative = 0
    for _ in range(SECONDS):
        cumulative += TICK_RATE
        live.voucher(cumulative).verify()
    return cumulative


def _lower_bound(channels: int) -> int:
    """Transactions that *channels* need at the least, by the committed sizes of docs/costs.md."""
    most = max(
        r["channels"] for r in committed_rows() if r["step"] == "claim" and r["asset"] == "ADA"
    )
    return -(-channels // most)


async def _is_settled(
    world: World, lives: Sequence[tuple[Live, Provider]], owed: dict[bytes, int]
) -> None:
    for live, _ in lives:
        view = await world.view(live)
        due = owed[live.session.verify_key]
        assert (view.claimed, view.amount) == (due, live.amount - due)


def _nothing_lost(world: World) -> None:
    sums = world.devnet.status()["lovelace"]
    assert sums["genesis"] + sums["rewards"] == (
        sums["unspent"] + sums["fees"] + sums["deposits"] + sums["accounts"]
    )


def _want(live: Live, provider: Provider, cumulative: int, *, end: bool = False) -> Wanted:
    vk = live.session.verify_key
    return Wanted(vk, live.ref, live.voucher(cumulative), provider.payout_address, end)
