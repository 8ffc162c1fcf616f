"""The way to the market is cut for two minutes, at the provider's end of one lease and at the
payer's end of another: both workloads are paused unbilled, kept, and go on where they stood.

Real sockets and real containers; two adapters, so that either end's cut is seen alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from marketplace.cli.commands.money.faucet import ask as ask_faucet
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.metering.reading import Cause
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.units import LOVELACE_PER_ADA
from tests.e2e.support.embedded import World, story, until_true
from tests.e2e.support.storm import Till, lives, lost_by, reckon, start_job, workloads
from tests.e2e.support.wire import door

STORY_S: Final = 700


@dataclass
class Rental:
    """One lease of the story; *provider* is its adapter's key."""

    job: Job
    lease: str
    provider: str

    async def row(self) -> dict[str, Any]:
        """Its container, as Docker shows it."""
        return (await workloads(self.provider))[self.lease]

    async def paused(self) -> bool:
        """Whether Docker holds it frozen."""
        return bool((await self.row())["State"]["Paused"])

    async def lines(self) -> list[str]:
        """All that it printed, once it is over."""
        return [line async for line in self.job.logs(follow=False)]


async def _second_adapter(world: World) -> str:
    """An L4 whose owner bears a payer's silence for longer than the cut; its provider key."""
    world.place.simulate = "l4x1"
    part = await world.place.start_adapter("adapter2")
    await part.stop()
    config = world.place.home / "adapter2.toml"
    config.write_text('pause_limit = "10m"\n' + config.read_text())
    await part.start()
    return str(part.ready["provider"])


async def _second_purse(world: World) -> Any:
    purse = await world.place.purse("other")
    text = purse.address(mainnet=False)
    lovelace = 100 * LOVELACE_PER_ADA
    await anyio.to_thread.run_sync(ask_faucet, world.place.chain_url, text, lovelace)
    return purse


async def _both(rentals: list[Rental], paused: bool) -> None:
    async def so() -> bool:
        return all([await one.paused() is paused for one in rentals])

    await until_true(so, f"both workloads {'paused' if paused else 'running'}")


async def _check(world: World, rental: Rental, silent_ms: int) -> None:
    """Paid for what ran, not for the silence; and it printed every line once."""
    bill = await reckon(world, rental.job, "CANCELLED", slack_ms=2000)
    (line,) = bill.lines
    assert lost_by(line, Cause.PAUSED) >= silent_ms, bill
    assert line.unit_ms <= line.lease_ms - silent_ms, bill
    said = await rental.lines()
    assert said == [f"line {n}" for n in range(len(said))] and len(said) > 3, said


@pytest.mark.timeout(STORY_S + 60)
@pytest.mark.parametrize(
    "cut_s",
    [pytest.param(30, marks=pytest.mark.prove), pytest.param(120, marks=pytest.mark.nightly)],
)
def test_a_while_without_the_market_pauses_unbilled_and_resumes(tmp_path: Path, cut_s: int) -> None:
    async def tell(world: World) -> None:
        till = Till()
        async with (
            door(world.place.market_url) as providers,
            door(world.place.market_url) as payers,
        ):
            await world.place.parts["adapter"].stop()
            first = await world.place.start_adapter(market=providers.url())
            second = await _second_adapter(world)
            purse = await _second_purse(world)
            async with Market(
                payers.url(), wallet=purse, chain_url=world.place.chain_url, keep=AT_ONCE
            ) as far:
                world.market.listen(till.heard)
                far.listen(till.heard)
                near_job = await start_job(world, world.market, "near", "H100")
                far_job = await start_job(world, far, "far", "L4")
                rentals = [
                    Rental(*near_job, str(first.ready["provider"])),
                    Rental(*far_job, second),
                ]
                leases = [one.lease for one in rentals]
                await till.more(leases, 3)
                before = [lives({x.lease: await x.row()}) for x in rentals]

                await providers.cut(shut=True)
                await payers.cut(shut=True)
                begun = anyio.current_time()
                await _both(rentals, paused=True)
                silent, paid = anyio.current_time(), dict(till.ticks)
                await anyio.sleep_until(begun + cut_s)
                await _both(rentals, paused=True)
                assert till.ticks == paid, "somebody was paid through a cut"
                assert [lives({x.lease: await x.row()}) for x in rentals] == before
                silent_ms = int((anyio.current_time() - silent) * 1000)

                providers.shut = payers.shut = False
                await till.more(leases, 3)
                await _both(rentals, paused=False)
                assert [lives({x.lease: await x.row()}) for x in rentals] == before
                for one in rentals:
                    await one.job.stop()
                for one, market in zip(rentals, (world.market, far), strict=True):
                    await _check(replace(world, market=market), one, silent_ms)

    story(tmp_path, tell, patience_s=STORY_S, simulate="h100x1", resume_window="10m")
