"""What a payer hands to a provider that serves before the first block, and what it risks by
signing then: nothing that it did not risk before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from marketplace.chain.encoding import txbytes
from marketplace.client.jobs.runner import Runner
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.protocol import wire
from tests.integration.client.test_one_open import Consumer, ended
from tests.integration.support.chain import BY_HAND, World, run
from tests.unit.support.adapter import core_job
from tests.unit.support.payer import Paper


@dataclass
class Told:
    """A market that notes what it is told."""

    posted: list[dict[str, Any]] = field(default_factory=list)

    async def post(self, _path: str, body: dict[str, Any], _key: str = "") -> dict[str, Any]:
        self.posted.append(body)
        return {}

    async def get(self, *_: object) -> dict[str, Any]:
        return {}


def life(me: Consumer, http: Told, world: World) -> Runner:
    payers = Payers(me.purse.channels, "http://market", 42, None)  # pyright: ignore[reportArgumentType]
    made = Runner(http, me.purse, Till(me.purse, world.chain), payers)  # pyright: ignore[reportArgumentType]
    made.agreements.know(me.offered.job, core_job())
    return made


def allowing(me: Consumer, allowance: int) -> None:
    quote = replace(me.offered.quote, allowance=allowance)
    me.offered = replace(me.offered, quote=quote)


@pytest.mark.parametrize(("allowance", "handed"), [(0, False), (1, True)])
def test_the_signed_open_is_handed_to_whom_it_serves(
    tmp_path: Path, allowance: int, handed: bool
) -> None:
    """A market or adapter of before states no allowance: it is told what it was told before."""

    async def story(world: World) -> None:
        me, http = Consumer.of(world, tmp_path), Told()
        allowing(me, allowance)
        runner = life(me, http, world)
        held = await runner.agreements.accept(me.offered)
        (body,) = http.posted
        assert ("open_tx" in body) is handed
        if handed:
            raw = bytes.fromhex(body["open_tx"])
            assert txbytes.split(raw).tx_id.hex() == body["channel_tx"] == held.facts.open_tx
            assert await world.chain.waits(txbytes.split(raw).tx_id)  # and it was sent, as ever
        ended(runner)

    run(story, block_ms=BY_HAND)


def test_an_open_that_a_block_holds_is_not_handed_over_again(tmp_path: Path) -> None:
    """The same acceptance after a crash, when the chain has gone on."""

    async def story(world: World) -> None:
        me, http = Consumer.of(world, tmp_path), Told()
        allowing(me, 1)
        runner = life(me, http, world)
        await runner.agreements.accept(me.offered)
        world.devnet.mint()
        await runner.till.follow()
        await runner.agreements.accept(me.offered)
        assert ["open_tx" in body for body in http.posted] == [True, False]
        ended(runner)

    run(story, block_ms=BY_HAND)


def test_receipts_before_a_block_are_answered_as_after_one_and_never_with_more(
    tmp_path: Path,
) -> None:
    """It pays for what was delivered, up to its clock, the rate and the ceiling: a channel that no
    block holds gives a provider no lovelace that one in a block would not.
    """

    async def story(world: World) -> None:
        me, http, paper = Consumer.of(world, tmp_path), Told(), Paper()
        allowing(me, 500_000)
        runner = life(me, http, world)
        held = await runner.agreements.accept(me.offered)
        sent: list[wire.Message] = []

        async def send(message: wire.Message) -> None:
            sent.append(message)

        held._link.send = send  # pyright: ignore -- what would leave for the market
        await runner.watch.confirm(held)
        assert held.book.capacity is None  # no block: nothing is known of it by the chain
        await held.receipt(paper.tick(me.terms, 1000))
        early = [one.voucher.cumulative for one in sent if isinstance(one, wire.VoucherSent)]
        assert held.book.last is not None and early == [held.book.last.channel_owed] != [0]
        await held.receipt(paper.tick(me.terms, 3_600_000))  # an hour that its clock did not see
        signed = [one.voucher.cumulative for one in sent if isinstance(one, wire.VoucherSent)]
        assert max(signed) < 10 * early[0] < me.terms.ceiling
        world.devnet.mint()
        await runner.watch.confirm(held)
        assert held.book.capacity is not None and held.book.signed == max(signed)
        ended(runner)

    run(story, block_ms=BY_HAND)
