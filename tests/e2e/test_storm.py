"""A storm over a provider with three leases: what runs is not hurt, and what is billed is what ran.

Real containers, real processes, a real market and ledger: the adapter is killed many times, at any
moment of its life, between a write and its acknowledgement, and while its chain does not answer.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import pytest

from marketplace.cli.embedded.supervise import Part, PartFailed
from marketplace.domain.metering.reading import Cause
from marketplace.domain.protocol import wire
from tests.e2e.support.embedded import World, story
from tests.e2e.support.storm import Till, lives, lost_by, reckon, start_job, workloads
from tests.e2e.support.wire import Door, Message, door

STORM_S: Final = 1500
NOWHERE: Final = "http://127.0.0.1:9"  # the discard port: no chain answers there
GAPS: Final = (Cause.UNPROVEN, Cause.ENERGY_RESET, Cause.IDENTITY, Cause.CLOCK)
JOBS: Final = (("storm-a", ""), ("storm-b", ""), ("storm-gpu", "H100"))


@dataclass
class Storm:
    """Lives of the adapter, each ended with SIGKILL in its own way."""

    world: World
    between: Door
    dice: random.Random

    @property
    def part(self) -> Part:
        """The adapter's process."""
        return self.world.place.parts["adapter"]

    async def kill(self) -> None:
        """Now."""
        await self.world.kill("adapter")
        assert self.part.process is not None
        await self.part.process.aclose()
        await self.between.cut(shut=False)

    async def while_it_starts(self) -> None:
        """Importing, connecting, adopting: wherever it is after so long."""
        dead = self.part.process

        async def begin() -> None:
            with suppress(PartFailed):
                await self.part.start()

        async with anyio.create_task_group() as group:
            group.start_soon(begin)
            while self.part.process is dead:  # noqa: ASYNC110  it tells nobody
                await anyio.sleep(0.01)
            await anyio.sleep(self.dice.uniform(0.1, 2.0))
            await self.kill()
            group.cancel_scope.cancel()

    async def while_it_serves(self) -> None:
        """At a random moment of its first seconds."""
        await self.part.start()
        await anyio.sleep(self.dice.uniform(0.0, 1.5))
        await self.kill()

    async def _at(self, holds: Callable[[bool, Message], bool]) -> None:
        self.between.hold(holds)
        await self.part.start()
        with anyio.fail_after(180):
            await self.between.held.wait()
        await self.kill()

    async def before_a_receipt_left(self) -> None:
        """Its receipt is written, and nobody has it."""
        await self._at(lambda up, message: up and isinstance(message, wire.ReceiptSent))

    async def before_an_acknowledgement(self) -> None:
        """The market has its receipt, and it does not know."""
        sent: list[bool] = []

        def holds(up: bool, message: Message) -> bool:
            sent.extend([True] if up and isinstance(message, wire.ReceiptSent) else [])
            return bool(sent) and not up and isinstance(message, wire.Ack)

        await self._at(holds)

    async def before_a_voucher_came(self) -> None:
        """Its receipt is answered, and the answer lies before its door."""
        await self._at(lambda up, message: not up and isinstance(message, wire.VoucherSent))

    async def without_a_chain(self) -> None:
        """What runs is taken up and served though no chain answers."""
        self.between.hold(lambda up, message: up and isinstance(message, wire.ReceiptSent))
        chain = self.world.place.chain_url
        argv = self.part.argv
        self.part.argv = [NOWHERE if word == chain else word for word in argv]
        await self.part.start()
        with anyio.fail_after(180):
            await self.between.held.wait()
        await self.kill()
        self.part.argv = argv

    async def rage(self, kills: int, check: Callable[[], Awaitable[None]]) -> None:
        """*kills* lives, every way of dying in turn; *check* after each."""
        ways = (
            self.while_it_starts, self.while_it_serves, self.before_a_receipt_left,
            self.while_it_starts, self.before_an_acknowledgement, self.while_it_serves,
            self.before_a_voucher_came, self.without_a_chain,
        )  # fmt: skip
        for number in range(kills):
            await ways[number % len(ways)]()
            await check()


@pytest.mark.timeout(STORM_S + 60)
@pytest.mark.parametrize(
    "kills",
    [pytest.param(8, marks=pytest.mark.prove), pytest.param(50, marks=pytest.mark.nightly)],
)
def test_an_adapter_killed_again_and_again_takes_up_what_runs(tmp_path: Path, kills: int) -> None:
    async def tell(world: World) -> None:
        till = Till()
        world.market.listen(till.heard)
        async with door(world.place.market_url) as between:
            await world.place.parts["adapter"].stop()
            await world.restart("adapter", market=between.url())
            jobs = [await start_job(world, world.market, name, gpu) for name, gpu in JOBS]
            leases = [lease for _job, lease in jobs]
            await till.more(leases, 2)
            provider = world.place.parts["adapter"].ready["provider"]
            before = lives(await workloads(provider))
            assert sorted(before) == sorted(leases)

            async def still_the_same() -> None:
                assert lives(await workloads(provider)) == before, "a workload did not live on"

            storm = Storm(world, between, random.Random(50))
            await storm.kill()
            await storm.rage(kills - 1, still_the_same)
            await storm.part.start()
            await till.more(leases, 3)  # each is served and paid again
            await still_the_same()
            for job, _lease in jobs:
                await job.stop()
            for job, _lease in jobs:
                bill = await reckon(world, job, "CANCELLED", slack_ms=2000)
                # What lay between two lives is proven by the counters: it is billed, or was paused.
                assert all(line.owed and not lost_by(line, x) for line in bill.lines for x in GAPS)

    story(tmp_path, tell, patience_s=STORM_S, resume_window="10m", simulate="h100x2")
