"""A dead provider is rescued by a watchtower that holds no key; an old voucher does no harm."""

from __future__ import annotations

import json
from pathlib import Path

from marketplace.chain.actions.session import Desk, claim, close_channel, finish_channels
from marketplace.chain.encoding import address as addresses
from marketplace.chain.settlement.next_step import Why
from marketplace.chain.settlement.wanted import Wanted
from marketplace.chain.settlement.watchtower import Watchtower, alarm, read_book
from marketplace.domain.money.channel import Closing
from tests.integration.support.chain import ADA, DAY_MS, Live, Provider, World, run


def test_a_dead_provider_is_rescued_inside_the_close_period_from_vouchers_alone(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        provider = Provider("dead")
        consumer = world.fund("consumer", 200 * ADA)
        world.fund("tower", 50 * ADA)
        [live, quiet] = await world.open("consumer", provider, [40 * ADA, 40 * ADA])
        book = tmp_path / "book.jsonl"
        lines = [_line(live, provider, n * ADA) for n in (1, 9, 4)] + [
            _line(quiet, provider, 2 * ADA)
        ]
        book.write_text("\n".join(lines) + '\n{"cut short')
        tower = Watchtower(world.desk("tower"))

        [calm], alarms = await tower.look(read_book(book))
        assert not calm.sent and not alarms  # open channels are the adapter's own to settle
        await close_channel(world.desk("consumer"), await world.view(live))
        closing = await world.view(live)
        assert isinstance(closing.stage, Closing)
        [rescue], alarms = await tower.look(read_book(book))
        assert [s.claimed for s in rescue.sent] == [9 * ADA] and not alarms
        after = await world.view(live)
        assert after.claimed == 9 * ADA  # the greatest of the three
        assert world.devnet.status()["now_ms"] < closing.stage.expire_at_ms
        assert await world.balance(provider.payout_address) == 9 * ADA
        [again], _ = await tower.look(read_book(book))
        assert not again.sent and again.waiting[live.session.verify_key] is Why.NOTHING_DUE

        world.devnet.advance(DAY_MS + 600_000)
        before = await world.balance(consumer)
        done = await finish_channels(world.desk("consumer"), [(after, None)], {})
        assert await world.balance(consumer) == before + 31 * ADA - done.sent.fee
        assert (await world.view(quiet)).claimed == 0

    run(story)


def test_an_old_voucher_from_a_stranger_does_no_harm() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 100 * ADA)
        stranger = world.fund("stranger", 50 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("consumer", provider, [40 * ADA])
        old, new = live.voucher(2 * ADA), live.voucher(10 * ADA)
        payouts = {provider.payout: provider.payout_address}
        before = await world.balance(stranger)
        pushed = await claim(world.desk("stranger"), [(await world.view(live), old)], payouts)
        assert await world.balance(stranger) == before - pushed.sent.fee  # he paid and got nothing
        view = await world.view(live)
        assert (view.claimed, view.closing) == (2 * ADA, False)
        await claim(world.desk("settler"), [(view, new)], payouts)
        assert (await world.view(live)).claimed == 10 * ADA
        assert await world.balance(provider.payout_address) == 10 * ADA

    run(story)


def test_dust_in_closing_channels_cannot_drain_a_tower() -> None:
    async def story(world: World) -> None:
        mine = Provider("attacker")
        world.fund("attacker", 300 * ADA)
        tower_at = world.fund("tower", 50 * ADA)
        lives = await world.open("attacker", mine, [5 * ADA] * 4)
        for live in lives:
            await close_channel(world.desk("attacker"), await world.view(live))
        before = await world.balance(tower_at)
        tower = Watchtower(world.desk("tower"))
        [looked], _ = await tower.look({"": [_wanted(x, mine, 20_000) for x in lives]})
        assert not looked.sent
        assert await world.balance(tower_at) == before

    run(story)


def test_it_alarms_at_a_quarter_and_at_half_of_the_close_period() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 100 * ADA)
        [live] = await world.open("consumer", provider, [40 * ADA], close_period_ms=1_000_000)
        await close_channel(world.desk("consumer"), await world.view(live))
        view = await world.view(live)
        assert isinstance(view.stage, Closing)
        end = view.stage.expire_at_ms
        levels = [
            alarm(view, 5 * ADA, end - left) for left in (800_000, 750_000, 500_001, 500_000, 0)
        ]
        assert [a and a.passed_bps for a in levels] == [None, 2500, 2500, 5000, 5000]
        assert alarm(view, 0, end) is None
        # A tower whose purse is empty cannot pay: it says so, and the alarm rings.
        world.devnet.advance(600_000)
        poor = Desk(world.chain, world.wallet("poor"))
        [looked], alarms = await Watchtower(poor).look({"": [_wanted(live, provider, 5 * ADA)]})
        assert looked.refused[live.session.verify_key].code == "FUNDS_SHORT"
        assert [a.unclaimed for a in alarms] == [5 * ADA]

    run(story)


def _wanted(live: Live, provider: Provider, cumulative: int) -> Wanted:
    vk = live.session.verify_key
    return Wanted(vk, live.ref, live.voucher(cumulative), provider.payout_address)


def _line(live: Live, provider: Provider, cumulative: int) -> str:
    voucher = live.voucher(cumulative)
    row = {
        "session_vk": live.session.verify_key.hex(),
        "origin": str(live.ref),
        "payout": addresses.to_text(provider.payout_address),
        "cumulative": cumulative,
        "signature": voucher.signature.hex(),
        "asset": "",
    }
    return json.dumps(row)
