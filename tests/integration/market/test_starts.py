"""Providers that accept and never start: what they can draw away, and how they come last after
it.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from marketplace.domain.keys import Signer
from marketplace.domain.work.parts import Placement
from marketplace.market.base.records import Lease, Standing
from marketplace.market.base.settings import Settings
from marketplace.market.state.starts import Starts
from tests.fakes import FakePayer, seed, spec, until, working
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_spine import body, quoted, sign, state
from tests.integration.support.market import fast


def test_of_those_never_paid_each_gets_a_few_while_another_would_do(tmp_path: Path) -> None:
    async def run() -> None:
        settings = fast(starts_new=2)
        cheap, honest = adapter("cheap", rate=1_000_000), adapter("honest")
        async with at_market(tmp_path, cheap, honest, settings=settings) as (client, *_):
            taken: list[str] = []
            for _ in range(6):
                view, _ = await post(client, spec())
                taken.append((await quoted(client, view["id"]))["provider"])
            of = [taken.count(seed(name).verify_key.hex()) for name in ("cheap", "honest")]
            assert taken[:4].count(seed("cheap").verify_key.hex()) == 2
            assert of[0] >= 2 and sum(of) == 6  # then nobody else is left: better than none at all

    anyio.run(run)


def test_a_start_that_lapses_costs_the_provider_its_place(tmp_path: Path) -> None:
    """The account that was let down is given whom others paid before, whatever a new key asks."""

    async def run() -> None:
        settings = fast(start_ttl_new_ms=5_000, start_ttl_ms=60_000)
        never, again = adapter("never", rate=1_000_000), adapter("never again", rate=2_000_000)
        honest = adapter("honest")
        bad, other, good = (seed(n).verify_key.hex() for n in ("never", "never again", "honest"))
        me, session = seed("consumer"), Signer(os.urandom(32))
        async with at_market(tmp_path, never, again, honest, settings=settings) as (
            client, inside, _, liar, _, worker,
        ):  # fmt: skip
            market = inside.market
            payer = FakePayer(str(client.base_url), {session.verify_key: session})
            async with working(payer):
                job = spec(placement=Placement(providers=(good,)))
                asked = body(job, session, me)
                view = (await client.post("/v1/jobs", json=asked)).json()
                view = await quoted(client, view["id"])
                lease = await sign(client, view, session, "ab" * 32)
                await until(lambda: worker.leases[lease].signed)
                for stage in ("CHANNEL_SEEN", "STARTED"):
                    await worker.progress(lease, stage)
                await worker.tick(lease, 500)
                await until(lambda: good in market.starts.proven)
            assert bad not in market.starts.proven

            view, key = await post(client, spec())
            view = await quoted(client, view["id"])
            assert view["provider"] == bad  # the cheapest, of whom nothing is known
            lost = await sign(client, view, key, "cd" * 32)
            await until(lambda: liar.leases[lost].signed)
            for stage in ("CHANNEL_SEEN", "PULLING", "PULLING"):  # words do not put it off
                await liar.progress(lost, stage)
            ended = await state(client, view["id"], "ENDED", "ENDING")
            assert ended["reason"] == "START_FAILED"
            lease_now = await market.store.get(Lease, lost)
            assert lease_now is not None and lease_now.finished_ms - lease_now.created_ms < 20_000

            known = await market.store.get(Standing, bad)
            assert known is not None and (known.strikes, known.paid) == (1, 0)
            view, _ = await post(client, spec())
            view = await quoted(client, view["id"])
            assert view["provider"] == good and other != good

    anyio.run(run)


def test_the_wait_after_a_lapse_doubles_and_ends() -> None:
    settings, starts = Settings(), Starts()
    for strikes, minutes in ((1, 1), (2, 2), (5, 16), (40, 24 * 60)):
        starts.take([Standing("p", strikes=strikes, last_ms=1_000, paid=1)])
        end = 1_000 + minutes * 60_000
        assert starts.doubtful(settings, end - 1) == {"p"}
        assert starts.doubtful(settings, end) == frozenset()


def test_who_has_a_few_and_was_never_paid_comes_last() -> None:
    starts = Starts(few=4)

    def last() -> bool:
        return "p" in starts.doubtful(Settings(), 0)

    for _ in range(3):
        starts.holds("p")
    assert not last()
    starts.holds("p")
    assert last()
    starts.frees("p")
    assert not last()
    starts.holds("p")
    starts.take([Standing("p", paid=1)])
    assert not last()
    for _ in range(90):
        starts.holds("p")
    assert not last()
