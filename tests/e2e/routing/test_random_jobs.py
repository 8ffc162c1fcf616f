"""Random jobs over one hop, at two providers, by every process that takes part in one: what was
charged is what the bills show, what each provider received is what it is owed, and what stays with
the router is its fee, each to the lovelace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import pytest

from marketplace.cli.embedded.up import start
from marketplace.client.jobs.core.route_mode import RouteMode
from marketplace.client.sdk.market import Market
from marketplace.domain.isolation import Isolation
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Placement, Policy, Price, Range, Resources
from tests.e2e.support.embedded import PATIENCE_S, PURSE, tally, until_true
from tests.e2e.support.two_providers import BOUNTY, NAMES, TwoProviders
from tests.requires import need_devnet

HOP_FEE: Final = 25_000
AT_ONCE: Final = 3
WITHIN_S: Final = 300.0
LEAST: Final = 1_200_000
"""Lovelace: a smaller payout would need the provider's own ADA beside it."""
MORE_THAN_A_TICK: Final = 210_000
"""Half a core costs 206,172 a second, and the router's fee: who can pay no tick is served nowhere."""


@dataclass(frozen=True)
class Asked:
    """One job: what is posted, and when its consumer stops it (s after its start, 0: never)."""

    spec: JobSpec
    provider: str
    stops_s: float


@dataclass(frozen=True)
class Done:
    """What its consumer believes: id, whom it asked for, how it ended, lovelace that it signed."""

    job: str
    provider: str
    reason: str
    spent: int


def drawn(dice: Random, number: int, providers: Sequence[str]) -> Asked:
    """Shares of a core, ceilings, limits and lengths of all kinds; a third is stopped."""
    length, stops = dice.uniform(0.2, 4), dice.random() < 0.34
    provider = dice.choice(providers)
    spec = JobSpec(
        name=f"random-{number}",
        image="",
        command=("python3", "-c", f"import time; time.sleep({600 if stops else length:.3f})"),
        resources=(Resources(cpu=Range(dice.randint(100, 500)), memory=Range(32)),),
        price=Price(budget=dice.randint(MORE_THAN_A_TICK, 900_000)),
        placement=Placement(isolation=Isolation.PROCESS, providers=(provider,)),
        policy=Policy(max_duration_ms=dice.choice((2_000, 3_500, 60_000, 600_000))),
    )
    return Asked(spec, provider, length if stops else 0)


async def ran(market: Market, asked: Asked) -> Done:
    """To its end, whichever that is."""
    with anyio.fail_after(WITHIN_S):
        job = await market.run(asked.spec)
        if asked.stops_s:
            await job.running()
            await anyio.sleep(asked.stops_s)
            if job.state != "ENDED":
                await job.stop()
        await job.wait()
    return Done(job.id, asked.provider, job.reason, job.spent)


async def all_ran(place: TwoProviders, asked: Sequence[Asked]) -> list[Done]:
    """A few at a time, all by one process over one hop."""
    rest, done = list(asked), list[Done]()
    purse = await place.purse("consumer")

    async def one_after_another(market: Market) -> None:
        while rest:
            done.append(await ran(market, rest.pop(0)))

    async with Market(
        place.market_url, wallet=purse, chain_url=place.chain_url, keep="1h", route=RouteMode.ROUTED
    ) as market:
        done.append(await ran(market, rest.pop(0)))  # it opens the hop
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(one_after_another, market)
    return done


async def bills(place: TwoProviders, done: Sequence[Done]) -> dict[str, dict[str, Any]]:
    """By job, verified against the ledger from the evidence alone."""
    purse = await place.purse("consumer")
    async with Market(place.market_url, wallet=purse, chain_url=place.chain_url) as market:
        return {one.job: (await market.job(one.job).invoice(verify=True)).to_json() for one in done}


def shown(done: Sequence[Done], found: dict[str, dict[str, Any]]) -> tuple[int, Counter[str]]:
    """Each bill by itself; the router's fees of all, and what each provider is owed."""
    fees, owed = 0, Counter[str]()
    for one in done:
        bill = found[one.job]
        assert bill["reconciled"] and not bill["withheld"] and not bill["unsigned"], bill
        for way in bill["routes"]:
            assert way["fee"] == -(-way["owed"] * way["route_bps"] // 10_000)  # rounded up
            assert way["signed_in"] == way["owed"] + way["fee"] and way["paid"] == way["owed"]
        assert one.spent == bill["owed"] + bill["route_fee"], bill
        (hop,) = bill["hops"]
        assert hop["claimed"] == hop["due"] == hop["signed"], "somebody took another sum"
        assert bill["unshown"] == hop["claimed"] - HOP_FEE - one.spent
        fees += bill["route_fee"]
        owed[one.provider] += bill["owed"]
    assert len({bill["hops"][0]["hop"] for bill in found.values()}) == 1
    return fees, owed


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(20, marks=[pytest.mark.prove, pytest.mark.timeout(PATIENCE_S + 240)]),
        pytest.param(200, marks=[pytest.mark.nightly, pytest.mark.timeout(3_600)]),
    ],
)
def test_charged_is_shown_and_received_is_owed(tmp_path: Path, count: int) -> None:
    need_devnet()

    async def story() -> None:
        place = TwoProviders(tmp_path / "up", block_ms=400, resume_window="2m", routes=True)
        place.prepare()
        try:
            await start(place, PURSE)
            await place.start_adapter("adapter-b")
            await place.hops(len(NAMES))
            await told(place, count)
        finally:
            with anyio.CancelScope(shield=True):
                await place.stop()

    anyio.run(story)


async def told(place: TwoProviders, count: int) -> None:
    """The jobs, the hop's end at a word, the hops' to the providers; then every sum."""
    dice = Random(count)
    providers = {place.provider(name): name for name in NAMES}
    begun = anyio.current_time()
    done = await all_ran(place, [drawn(dice, n, tuple(providers)) for n in range(count)])
    took = anyio.current_time() - begun
    closed = await tally("channel", "close", "--all", "--yes", "--json", env=place.environment)
    assert closed.process.returncode == 0, str(closed)
    found = await bills(place, done)
    fees, owed = shown(done, found)
    assert set(owed) == set(providers) and min(owed.values()) > LEAST, "a payout is topped up"
    await place.end_hops_out()
    received = dict[str, int]()
    for provider, name in providers.items():
        received[provider] = await until_true(
            lambda name=name: place.received(name), f"the end of the hop to {name}"
        )
        bounty = (
            owed[provider] * BOUNTY[name] // 10_000
        )  # rounded down: its settler's, by its offer
        assert received[provider] == owed[provider] - bounty
    charged = next(iter(found.values()))["hops"][0]["claimed"]
    assert charged == sum(owed.values()) + fees + HOP_FEE
    reasons = Counter(one.reason for one in done)
    assert len(done) == count and len(reasons) > 1, reasons
    print(f"{count} jobs in {took:.0f} s: {charged} charged, {dict(received)} received, {reasons}")
