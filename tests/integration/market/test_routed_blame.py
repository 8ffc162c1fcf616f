"""Row 16: who is blamed for an unpaid end follows from what the market itself passed on, and from
whether there was time to answer it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from marketplace.market.leases import adapters
from marketplace.market.state import told
from tests.fakes import until
from tests.integration.market.test_routed_threats import leased, strikes
from tests.integration.market.test_spine import state
from tests.integration.support.routed import World, routed

Story = Callable[[World, str], Awaitable[None]]
ANSWERED_S = 1.3  # a payer that is there answers at once (ANSWER_MS)


def blamed_after(tmp_path: Path, told: Story) -> int:
    """Unpaid ends of the consumer's account, once the lease of *told* ended as UNPAID."""

    async def run() -> int:
        async with routed(tmp_path, unpaid_wait_ms=60_000) as world:
            lease = await world.sign(await world.quote())
            await world.start(lease)
            await told(world, lease)
            await world.adapter.finish(lease, "UNPAID")
            await state(world.client, (await leased(world, lease)).job, "ENDING", "ENDED")
            answer, blamed = await world.post(), await strikes(world)
            refused = answer.json().get("code") in ("PAYMENT_OWED", "UNPAID_WAIT")
            assert refused == bool(blamed), answer.text
            return blamed

    return anyio.run(run)


async def _two_ticks(world: World, lease: str) -> None:
    before = owed(world, lease)
    for _ in range(2):
        await world.adapter.tick(lease)
    await until(lambda: owed(world, lease) == before + 10)  # the market has them
    await anyio.sleep(ANSWERED_S)


def owed(world: World, lease: str) -> int:
    sums = world.router.sums(lease)
    return sums.owed if sums is not None else 0


def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said from now on is not old enough to be answered, however slow this machine is."""
    for module in (told, adapters):
        monkeypatch.setattr(module, "ANSWER_MS", 60_000)


def test_a_paid_that_the_router_keeps_to_itself_is_held_against_no_consumer(
    tmp_path: Path,
) -> None:
    async def story(world: World, lease: str) -> None:
        world.router.mute = True
        await _two_ticks(world, lease)
        sums = world.router.sums(lease)
        assert sums is not None and (sums.owed, sums.received, sums.confirmed) == (10, 5, 5)

    assert blamed_after(tmp_path, story) == 0


def test_a_paid_that_the_router_passes_on_at_the_last_moment_is_not_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World, lease: str) -> None:
        world.router.mute = True
        await _two_ticks(world, lease)
        no_time(monkeypatch)
        world.payer.pays, world.router.mute = False, False  # it has not had the time to answer
        for again in world.router.resume(world.payer.hop.verify_key):
            world.router.tell_payer(world.payer.hop.verify_key, again)

    assert blamed_after(tmp_path, story) == 0


def test_nor_is_a_receipt_that_the_provider_sends_with_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World, lease: str) -> None:
        await world.paid_tick(lease)
        await anyio.sleep(ANSWERED_S)
        no_time(monkeypatch)
        world.payer.pays = False
        await world.adapter.tick(lease)

    assert blamed_after(tmp_path, story) == 0


def test_who_was_told_and_does_not_answer_is_blamed_also_if_it_went_away(tmp_path: Path) -> None:
    async def story(world: World, lease: str) -> None:
        await world.paid_tick(lease)
        await until(lambda: world.payer.paid)
        assert world.payer.socket.live is not None
        world.payer.socket.stopped = True
        await world.payer.socket.live.close()
        world.payer.pays = False
        await _two_ticks(world, lease)

    assert blamed_after(tmp_path, story) == 1
