"""An adapter cannot be made to serve unpaid: whatever a payer sends, the loss is two ticks at
most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.state import Limits
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.units import owed
from tests.integration.support.rig import RATE, Adapter, Rig
from tests.unit.support.adapter import OTHER_SESSION, SESSION

pytestmark = pytest.mark.anyio
TICK = owed(2000, RATE)  # lovelace of one second of two cores
Answer = Callable[[Adapter, int], wire.Message | None]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def voucher(cumulative: int, session: Signer = SESSION) -> wire.VoucherSent:
    return wire.VoucherSent("lease_1", Voucher.sign(session, cumulative))


async def loss(
    folder: Path, answer: Answer, honest: int = 5, seconds: int = 90,
    spoil: Callable[[Rig], None] | None = None,
) -> tuple[Rig, int]:  # fmt: skip
    """Honest ticks, then *answer* to whatever is owed; what the host delivered beyond what is
    paid.
    """
    rig = Rig(folder, limits=Limits(final_wait_ms=5000))
    total = 0

    async def body(adapter: Adapter) -> None:
        nonlocal total
        rig.propose("lease_1")
        await adapter.ask("lease_1")
        for _ in range(honest):
            await adapter.second()
        rig.market.pays = False
        if spoil is not None:
            spoil(rig)
        for _ in range(seconds):
            due = rig.market.owed[SESSION.verify_key]
            message = answer(adapter, due)
            if message is not None:
                await adapter.hear(message)
            await adapter.eye.look()
            await adapter.second()
        channel = adapter.daemon.channel(SESSION.verify_key)
        assert channel is not None
        paid = min(channel.paid, channel.capacity)
        delivered = owed(rig.ran_ms["lease_1"] * 2, RATE)
        total = delivered - paid

    await rig.live(body)
    assert rig.kills == 0
    return rig, total


def reason(rig: Rig) -> object:
    """Why the lease ended."""
    found = [
        m.detail["reason"] for m in rig.market.heard
        if isinstance(m, wire.LeaseProgress) and m.stage == "FINISHED"
    ]  # fmt: skip
    return found[0] if found else None


async def test_silence(tmp_path: Path) -> None:
    rig, lost = await loss(tmp_path, lambda _a, _due: None)
    assert 0 < lost <= 2 * TICK
    assert reason(rig) == "UNPAID"


async def test_stale_vouchers(tmp_path: Path) -> None:
    rig, lost = await loss(tmp_path, lambda _a, due: voucher(due // 2))
    assert lost <= 2 * TICK
    assert reason(rig) == "UNPAID"


async def test_the_same_voucher_again_and_again(tmp_path: Path) -> None:
    _rig, lost = await loss(tmp_path, lambda _a, _due: voucher(5 * TICK))
    assert lost <= 2 * TICK


async def test_a_lovelace_at_a_time(tmp_path: Path) -> None:
    paid = [5 * TICK]

    def answer(_adapter: Adapter, _due: int) -> wire.Message:
        paid[0] += 1
        return voucher(paid[0])

    rig, lost = await loss(tmp_path, answer)
    assert lost <= 2 * TICK
    assert reason(rig) == "UNPAID"


async def test_a_forged_signature(tmp_path: Path) -> None:
    def answer(_adapter: Adapter, due: int) -> wire.Message:
        forged = replace(Voucher.sign(OTHER_SESSION, due), session_vk=SESSION.verify_key)
        return wire.VoucherSent("lease_1", forged)

    _rig, lost = await loss(tmp_path, answer)
    assert lost <= 2 * TICK


async def test_a_voucher_of_another_channel(tmp_path: Path) -> None:
    _rig, lost = await loss(tmp_path, lambda _a, due: voucher(due, OTHER_SESSION))
    assert lost <= 2 * TICK


async def test_more_than_the_channel_holds(tmp_path: Path) -> None:
    rig, lost = await loss(tmp_path, lambda _a, _due: voucher(10_000_000_001))
    assert lost <= 2 * TICK
    assert reason(rig) == "UNPAID"


async def test_a_fork_of_amounts(tmp_path: Path) -> None:
    """Greater, then lower, in turns: the lower ones take nothing back and resume nothing."""
    turn = [0]

    def answer(_adapter: Adapter, due: int) -> wire.Message:
        turn[0] += 1
        return voucher(due if turn[0] <= 3 else due - 3 * TICK)

    _rig, lost = await loss(tmp_path, answer)
    assert lost <= 2 * TICK


async def test_a_voucher_for_another_lease_of_nobody(tmp_path: Path) -> None:
    def answer(_adapter: Adapter, due: int) -> wire.Message:
        return wire.VoucherSent("lease_of_nobody", Voucher.sign(OTHER_SESSION, due))

    _rig, lost = await loss(tmp_path, answer)
    assert lost <= 2 * TICK


async def test_an_end_by_a_stranger_stops_nothing_and_pays_nothing(tmp_path: Path) -> None:
    def answer(_adapter: Adapter, due: int) -> wire.Message:
        forged = replace(End.sign(OTHER_SESSION, due), session_vk=SESSION.verify_key)
        return wire.EndSent(forged)

    rig, lost = await loss(tmp_path, answer)
    assert lost <= 2 * TICK
    assert reason(rig) == "UNPAID"


async def test_a_close_during_the_job(tmp_path: Path) -> None:
    def close(rig: Rig) -> None:
        rig.ledger.stage = ChannelStage.CLOSING

    rig, lost = await loss(tmp_path, lambda _a, _due: None, spoil=close)
    assert lost <= 2 * TICK
    assert reason(rig) == "CHANNEL_CLOSING"
    assert rig.ledger.settled == [SESSION.verify_key]


async def test_a_top_up_that_was_rolled_back(tmp_path: Path) -> None:
    """The chain takes the money back: nothing more is served than what can still be claimed."""

    def shrink(rig: Rig) -> None:
        rig.ledger.capacity = 6 * TICK

    rig, lost = await loss(tmp_path, lambda _a, due: voucher(due), spoil=shrink)
    assert lost <= 2 * TICK
    assert reason(rig) == "CEILING"


async def test_stopping_again_and_again_gains_nothing(tmp_path: Path) -> None:
    _rig, lost = await loss(tmp_path, lambda _a, _due: wire.StopAsked("lease_1", "now"))
    assert lost <= 2 * TICK


async def test_paying_only_when_paused_gains_nothing(tmp_path: Path) -> None:
    """A payer that always waits for the pause is served, slowly, and owes two ticks at the end."""

    def answer(adapter: Adapter, due: int) -> wire.Message | None:
        lease = adapter.daemon.lease("lease_1")
        return voucher(due) if lease is not None and lease.pause is not None else None

    waits: Awaitable[tuple[Rig, int]] = loss(tmp_path, answer)
    _rig, lost = await waits
    assert lost <= 2 * TICK
