"""A real file system that fills up under the books: a tmpfs of a few hundred kilobytes."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapter.journal import Journal as AdapterJournal
from marketplace.chain.submit import FileLog
from marketplace.client.journal import peek
from marketplace.client.market import Market
from marketplace.disk import DiskFault, DiskFull
from tests.integration.support_client import World, spec, story, until
from tests.requires import need_mount
from tests.unit.support_adapter import Bench
from tests.unit.support_disk import BadDisk
from tests.unit.test_chain_bytes_and_log import _record  # pyright: ignore[reportPrivateUsage]
from tests.unit.test_disk import paid_is_known, pay
from tests.unit.test_payer_journal import VK


@contextmanager
def small(place: Path, kilobytes: int) -> Generator[Path]:
    """A tmpfs of that size."""
    need_mount()
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=700", "tmpfs", str(place)],
        check=True,
    )
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    path = folder / "other"
    with path.open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path


def test_books_on_a_full_file_system_are_whole_and_go_on_when_there_is_room(tmp_path: Path) -> None:
    with small(tmp_path / "small", 512) as folder:
        pay(folder / "payer", BadDisk(), sent := [])
        log = FileLog(folder / "log.jsonl")
        anyio.run(log.put, _record(1))
        bench = Bench().running()
        for _ in range(3):
            bench.tick()
        outcomes = [outcome for outcome in bench.outcomes if outcome.durable]
        journal = AdapterJournal(folder / "adapter" / "journal.db")
        done = 0
        for outcome in outcomes[: len(outcomes) // 2]:
            journal.write(outcome)
            done += 1
        other = fill(folder)
        with pytest.raises(DiskFull, match=r"No space left.*|.*could not"):
            for _ in range(200):  # what is left of a page is still taken
                pay(folder / "payer", BadDisk(), sent, seconds=40)
        with pytest.raises(DiskFull):
            for number in range(2, 40):
                anyio.run(log.put, _record(number))
        with pytest.raises(DiskFault):
            for outcome in outcomes[done:]:
                journal.write(outcome)
                done += 1
        journal.close()
        assert peek(folder / "payer", VK).book.signed >= max(sent)  # readable while it is full
        other.unlink()
        paid_is_known(folder / "payer", sent)
        again = FileLog(folder / "log.jsonl")
        anyio.run(again.put, _record(41))
        assert {"test 1", "test 41"} <= {r.purpose for r in anyio.run(again.pending)}
        journal = AdapterJournal(folder / "adapter" / "journal.db")
        journal.load()
        stored = len(journal.ticks("lease_1"))
        assert stored == sum(len(outcome.ticks) for outcome in outcomes[:done])
        for outcome in outcomes[done:]:
            journal.write(outcome)
        assert [r.receipt for r in journal.ticks("lease_1")] == bench.receipts()
        journal.close()


def flat(error: BaseException) -> list[BaseException]:
    """Every error of a group."""
    if isinstance(error, BaseExceptionGroup):
        found: Any = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return [inner for one in found for inner in flat(one)]
    return [error]


@pytest.mark.prove
def test_a_payer_whose_disk_fills_up_says_so_and_stops_and_another_goes_on(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider = world.provider
        with small(tmp_path / "home", 400) as home:
            purse = world.purse("home")
            vk, lease = b"", ""
            with pytest.raises(BaseException) as ended:
                async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
                    await market.run(spec())
                    lease = await provider.lease()
                    await provider.start(lease)
                    await provider.ticks(lease, 2)
                    [held] = market.payers.all
                    vk, seen = held.session_vk, held
                    await until(lambda: seen.book.capacity is not None)
                    other = fill(home)
                    with anyio.fail_after(60):
                        while True:  # the link must not take it for a lost connection and go on
                            await provider.adapter.tick(lease, 50)
                            await anyio.sleep(0.05)
            faults = [error for error in flat(ended.value) if isinstance(error, DiskFault)]
            assert faults, ended.value
            assert faults[0].code == "DISK_FULL" and vk.hex() in faults[0].message
            paid = provider.adapter.vouchers[vk].cumulative
            assert peek(purse.channels, vk).book.signed >= paid
            other.unlink()
            async with Market(world.url, wallet=purse, chain_url=world.served.url) as again:
                await again.resume_all()
                due = await provider.adapter.tick(lease, 50)
                await provider.paid(vk, due.channel_owed)
                await provider.adapter.finish(lease)
                await until(lambda: bool(provider.adapter.ends))
            assert not list(purse.channels.glob("*.damaged-*"))  # it was cut back at once

    story(tmp_path, tell)
