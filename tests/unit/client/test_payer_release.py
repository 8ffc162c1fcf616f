"""A channel that is let go of: nothing is half written, and a pause that lasts goes with its book."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from marketplace.client.net.clock import Stamp
from marketplace.client.payer import journal as rows
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.handing_on import HandedOn
from marketplace.client.payer.journal import ChannelHeld, Journal, peek
from marketplace.client.payer.payers import Payers
from marketplace.domain.protocol import wire
from tests.unit.client.test_payer_journal import VK, begun
from tests.unit.support.payer import SESSION, signed_terms, terms


async def taken(folder: Path) -> tuple[Payers, ChannelPayer]:
    """A payer that holds the channel of the book in *folder*; its link leads nowhere."""
    payers = Payers(folder, "http://market", 42, None)  # pyright: ignore[reportArgumentType]
    held = await payers.take(VK, SESSION)

    async def send(_message: wire.Message) -> None:
        pass

    held._link.send = send  # pyright: ignore -- what would leave for the market
    return payers, held


def test_a_book_is_closed_after_what_is_just_being_written(tmp_path: Path) -> None:
    """Another process that signed meanwhile would not know of the last voucher."""

    async def tell() -> None:
        paper = begun(tmp_path)
        payers, held = await taken(tmp_path)
        begins, go = threading.Event(), threading.Event()
        whole = held._journal.write  # pyright: ignore[reportPrivateUsage]

        def slow(*written: dict[str, Any]) -> None:
            begins.set()
            assert go.wait(30)
            whole(*written)

        held._journal.write = slow  # pyright: ignore -- a disk that takes its time
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.receipt, paper.tick(terms(), 1000))
            assert await anyio.to_thread.run_sync(begins.wait, 30)
            tasks.start_soon(payers.release, VK)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert payers.held(VK) is None
            with pytest.raises(ChannelHeld):
                Journal.hold(tmp_path, VK)
            go.set()
        last = peek(tmp_path, VK).book.last
        assert last is not None and last.seq == 4
        with pytest.raises(HandedOn):
            await held.receipt(paper.tick(terms(), 1000))
        journal, _ = Journal.hold(tmp_path, VK)
        journal.close()

    anyio.run(tell)


def test_a_pause_lasts_over_any_number_of_hands(tmp_path: Path) -> None:
    """Whoever asks for the channel again and again would else begin the own clock again, and let a
    provider bill the pause.
    """

    async def tell() -> None:
        begun(tmp_path)
        for _ in range(3):
            payers, held = await taken(tmp_path)
            if held.book.leases["lease_1"].paused_at_ms is None:
                await held.progress(wire.LeaseProgress("lease_1", "PAUSED", 0, {}))
            before = held.book.leases["lease_1"]
            await payers.release(VK)
            after = peek(tmp_path, VK).book.leases["lease_1"]
            assert after.paused_at_ms is not None and after.paused_ms == 0
            later = Stamp.now().mono_ms + 3_600_000
            assert abs(after.elapsed_ms(later) - before.elapsed_ms(later)) < 1000
        payers, held = await taken(tmp_path)
        await held.progress(wire.LeaseProgress("lease_1", "RESUMED", 0, {}))
        await payers.release(VK)
        assert peek(tmp_path, VK).book.leases["lease_1"].paused_at_ms is None

    anyio.run(tell)


def test_a_pause_that_nobody_handed_on_ends_with_the_last_that_was_heard() -> None:
    """After a crash: what came of it meanwhile, nobody knows."""
    agreed = terms()
    at = [Stamp("boot", ms, ms) for ms in (1_000, 5_000, 9_000, 12_000)]
    book = [
        rows.lease_row(signed_terms(agreed), agreed.ceiling, at[0]),
        rows.clock_row(agreed.lease, "started", at[0]),
        rows.clock_row(agreed.lease, "paused", at[1]),
        rows.clock_row(agreed.lease, "paused", at[2], handed=True),
    ]
    now = Stamp("boot", 100_000, 100_000)
    handed = rows.fold(VK, book, now).book.leases[agreed.lease]
    assert handed.elapsed_ms(100_000) == 4_000
    crashed = rows.fold(VK, [*book, rows.end_row(at[3])], now).book.leases[agreed.lease]
    assert crashed.elapsed_ms(100_000) == 4_000 + 88_000
