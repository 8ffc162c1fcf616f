"""A full or failing disk at every write of every journal and log: nothing is torn, lost or signed
twice.

Each story writes to a fresh folder over a disk that fails at one of its calls, says what it was
told is stored, and must end in the fault of the disk and nothing else. Then the disk is good again:
whatever is there must read, and hold all that was said to be stored.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from nacl import pwhash

from adapter.devices.scrub import Quarantine
from adapter.journal.journal import Journal as AdapterJournal
from adapter.runtime.logstore import LogStore
from marketplace import disk
from marketplace.chain.node.submit import FileLog
from marketplace.client.net.clock import Stamp
from marketplace.client.payer import journal as rows
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.journal import Journal, JournalDamaged, peek
from marketplace.disk import DiskFault, DiskFull
from marketplace.domain.money.transaction import TxEvent
from marketplace.domain.protocol import wire
from marketplace.keystore import Keystore
from tests.unit.chain.test_bytes_and_log import _record as built  # pyright: ignore[reportPrivateUsage]
from tests.unit.client.test_payer_journal import FACTS, VK
from tests.unit.support.adapter import Bench
from tests.unit.support.disk import BadDisk, bad_disks
from tests.unit.support.payer import SESSION, Paper, signed_terms, terms

_record = functools.cache(built)
Story = Callable[[Path, BadDisk, list[Any]], None]
SECRET = "a passphrase of the tests"


# ---- the payer's book ---------------------------------------------------------------------------


class Link:
    """What the payer says to the market."""

    def __init__(self, said: list[Any]) -> None:
        self.said = said

    async def send(self, message: wire.Message) -> None:
        if isinstance(message, wire.VoucherSent):
            self.said.append(message.voucher.cumulative)


async def _nobody(_: Paid) -> None:
    return


def pay(folder: Path, files: BadDisk, sent: list[Any], seconds: int = 4) -> None:
    """A channel's life; what is *sent* are the vouchers that left this process."""

    async def life() -> None:
        journal, loaded = Journal.hold(folder, VK, compact_bytes=2000, files=files)
        try:
            if loaded.facts is None:
                journal.write(rows.channel_row(FACTS))
                loaded.facts = FACTS
            agreed, paper = terms(), Paper()
            nothing: Any = None
            link: Any = Link(sent)
            held = ChannelPayer(journal, loaded, SESSION, link, nothing, _nobody)
            if agreed.lease not in held.terms:
                await held.agree(signed_terms(agreed), agreed.ceiling)
            await held.opened(FACTS.open_tx, 0, FACTS.amount)
            await held.progress(wire.LeaseProgress(agreed.lease, "STARTED", 0, {}))
            for _ in range(seconds):
                await held.receipt(paper.tick(agreed, 100))
        finally:
            journal.close()

    anyio.run(life)


def paid_is_known(folder: Path, sent: list[Any]) -> None:
    """The book reads, and knows at least what left; the next life goes on from there."""
    signed = peek(folder, VK).book.signed if (folder / f"{VK.hex()}.jsonl").exists() else 0
    assert signed >= max(sent, default=0)
    again: list[Any] = []
    pay(folder, BadDisk(), again)
    assert sorted(again) == again and (not sent or again[-1] >= max(sent))  # never a smaller total
    assert peek(folder, VK).book.signed == max([signed, *again])


# ---- the log of transactions --------------------------------------------------------------------


def log(folder: Path, files: BadDisk, stored: list[Any]) -> None:
    async def life() -> None:
        book = FileLog(folder / "log.jsonl", compact_above=4000, files=files)
        for n in range(12):
            await book.put(_record(n))
            if n % 3:
                await book.put(_record(n).step(TxEvent.IMPOSSIBLE))
            stored.append(n)

    anyio.run(life)


def log_is_known(folder: Path, stored: list[Any]) -> None:
    async def life() -> None:
        book = FileLog(folder / "log.jsonl")
        wanted = {f"test {n}" for n in stored if n % 3 == 0}
        assert wanted <= {r.purpose for r in await book.pending()}
        await book.put(_record(40))
        again = await FileLog(folder / "log.jsonl").pending()
        assert wanted | {"test 40"} <= {r.purpose for r in again}
        assert all(record.cbor for record in again)

    anyio.run(life)


# ---- keys, logs of tenants, quarantine ----------------------------------------------------------


def keys(folder: Path, files: BadDisk, stored: list[Any]) -> None:
    store = Keystore(folder / "keys", files)
    opened = store.unlock(SECRET)
    for name in ("one", "two"):
        stored += [(name, opened.create(name).verify_key)]
    store.change_passphrase(SECRET, SECRET)


def keys_are_known(folder: Path, stored: list[Any]) -> None:
    store = Keystore(folder / "keys")
    opened = store.unlock(SECRET)
    assert [(name, opened.load(name).verify_key) for name, _ in stored] == stored
    assert {key.name for key in store.list()} >= {name for name, _ in stored}
    assert opened.load_or_create("three").verify_key == opened.load("three").verify_key


def output(folder: Path, files: BadDisk, stored: list[Any]) -> None:
    store = LogStore(folder, files)
    for n in range(12):
        store.append("lease", b"%02d" % n * 20, 160)
        stored.append(b"%02d" % n * 20)


def output_is_known(folder: Path, stored: list[Any]) -> None:
    store = LogStore(folder)
    chunk = store.read("lease", 0, 10_000)
    assert chunk.data == b"".join(stored)[chunk.offset : chunk.offset + len(chunk.data)]
    assert store.end("lease") == sum(map(len, stored))


def quarantine(folder: Path, files: BadDisk, stored: list[Any]) -> None:
    held = Quarantine(folder / "quarantine.json", files)
    for uuid in ("GPU-1", "GPU-2"):
        held.add(uuid, "why")
        stored.append(uuid)


def quarantine_is_known(folder: Path, stored: list[Any]) -> None:
    held = Quarantine(folder / "quarantine.json")
    assert set(stored) <= set(held.all())
    held.add("GPU-3", "why")


STORIES: dict[str, tuple[Story, Callable[[Path, list[Any]], None]]] = {
    "payer's book": (pay, paid_is_known),
    "log of transactions": (log, log_is_known),
    "tenant's log": (output, output_is_known),
    "quarantine": (quarantine, quarantine_is_known),
    "keystore": (keys, keys_are_known),
}


@pytest.mark.parametrize("name", [n for n in STORIES if n not in ("keystore", "payer's book")])
def test_a_bad_disk_at_every_write_tears_nothing(tmp_path: Path, name: str) -> None:
    every_write(tmp_path, name)


@pytest.mark.parametrize("kind", ["full", "dying"])
def test_a_payer_on_a_bad_disk_sends_no_voucher_that_it_did_not_store(
    tmp_path: Path, kind: str
) -> None:
    every_write(tmp_path, "payer's book", kind, step=3)


@pytest.mark.prove
@pytest.mark.parametrize("name", ["keystore", "payer's book"])
def test_a_bad_disk_at_every_write_of_keys_and_books_tears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # How hard a passphrase is to guess has no part in what is written when.
    monkeypatch.setattr(pwhash.argon2id, "OPSLIMIT_MODERATE", pwhash.argon2id.OPSLIMIT_MIN)
    monkeypatch.setattr(pwhash.argon2id, "MEMLIMIT_MODERATE", pwhash.argon2id.MEMLIMIT_MIN)
    every_write(tmp_path, name)


def every_write(folder: Path, name: str, only: str = "", step: int = 1) -> None:
    play, check = STORIES[name]
    good = BadDisk()
    play(folder / "good", good, stored := [])
    check(folder / "good", stored)
    assert good.calls > 3
    for bad in bad_disks(good.calls):
        if (only and bad.kind != only) or bad.at % step:
            continue
        stored, place = [], folder / f"{bad.kind}-{bad.at}"
        place.mkdir()
        with pytest.raises(DiskFault) as fault:
            play(place, bad, stored)
        assert fault.value.code == ("DISK_FULL" if bad.kind in ("full", "short") else "DISK_FAULT")
        assert str(place) in fault.value.message and not isinstance(fault.value, OSError)
        try:
            check(place, stored)
        except (AssertionError, ValueError, OSError, disk.Malformed) as error:
            raise AssertionError(f"{name}: {bad.kind} at call {bad.at}: {error!r}") from error


def test_a_book_that_failed_once_takes_nothing_more(tmp_path: Path) -> None:
    files = BadDisk()
    journal, _ = Journal.hold(tmp_path, VK, files=files)
    journal.write(rows.channel_row(FACTS))
    files.at, files.kind = (
        files.calls + 2,
        "failing",
    )  # its fsync: nobody knows what reached the disk
    for _ in range(3):
        with pytest.raises(DiskFault):
            journal.write(rows.end_row(Stamp.now()))
    journal.close()
    assert not peek(tmp_path, VK).end_sent


# ---- what a crash or a bad disk left -------------------------------------------------------------


@pytest.mark.parametrize("tail", [b'{"k": "end", "a', b"\0" * 700, b"{half\n", b"\xff\xfe\n\n{\n"])
def test_a_damaged_end_is_set_aside_and_the_rest_is_used(tmp_path: Path, tail: bytes) -> None:
    pay(tmp_path, BadDisk(), sent := [])
    path = tmp_path / f"{VK.hex()}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert peek(tmp_path, VK).book.signed == max(sent)
    journal, loaded = Journal.hold(tmp_path, VK)
    assert loaded.book.signed == max(sent)
    journal.close()
    [side] = tmp_path.glob("*.damaged-*")
    cut = b'{"k": "cut"}\n'  # what was lost with it, nobody knows
    assert side.read_bytes() == tail and path.read_bytes() == whole + cut
    path.write_bytes(whole + tail)
    Journal.hold(tmp_path, VK)[0].close()
    assert len(list(tmp_path.glob("*.damaged-*"))) == 2  # none is written over


def test_damage_before_a_readable_row_is_refused_in_every_log(tmp_path: Path) -> None:
    pay(tmp_path, BadDisk(), [])
    log(tmp_path, BadDisk(), [])
    book, transactions = tmp_path / f"{VK.hex()}.jsonl", tmp_path / "log.jsonl"
    for path in (book, transactions):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0], b"\0" * 40 + b"\n", *lines[1:]]))
    with pytest.raises(JournalDamaged, match="line 2"):
        Journal.hold(tmp_path, VK)
    with pytest.raises(JournalDamaged, match="line 2"):
        anyio.run(FileLog(transactions).pending)


# ---- the adapter's journal ----------------------------------------------------------------------


class BadConnection:
    """A SQLite connection whose *at*-th statement fails, before or after it was done."""

    def __init__(self, path: Path, at: int, code: int, after: bool) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.at, self.code, self.after = at, code, after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def _run(self, method: str, *args: Any) -> Any:
        self.calls += 1
        if self.calls != self.at:
            return getattr(self._db, method)(*args)
        if self.after:
            getattr(self._db, method)(*args)
        error = sqlite3.OperationalError("disk")
        error.sqlite_errorcode = self.code
        raise error

    def execute(self, *args: Any) -> Any:
        return self._run("execute", *args)

    def executemany(self, *args: Any) -> Any:
        return self._run("executemany", *args)


@pytest.mark.parametrize(
    ("code", "fault"),
    [(sqlite3.SQLITE_FULL, DiskFull), (sqlite3.SQLITE_IOERR | 4 << 8, DiskFault)],
)
def test_the_adapters_journal_is_whole_whichever_statement_fails(
    tmp_path: Path, code: int, fault: type[DiskFault]
) -> None:
    bench = Bench().running()
    for _ in range(3):
        bench.tick()
    outcomes = [outcome for outcome in bench.outcomes if outcome.durable]

    def play(path: Path, at: int, after: bool) -> tuple[int, int]:
        """How many outcomes were stored, and how many statements that took."""
        made: list[BadConnection] = []

        def connect(*_: Any, **__: Any) -> BadConnection:
            made.append(BadConnection(path, at, code, after))
            return made[0]

        done = 0
        try:
            journal = AdapterJournal(path, connect=connect)
            for outcome in outcomes:
                journal.write(outcome)
                done += 1
        except DiskFault as failed:
            assert type(failed) is fault and at
        finally:
            made[0].close()
        return done, made[0].calls

    _, calls = play(tmp_path / "good.db", 0, False)
    for at in range(1, calls + 1, 3):
        for after in (False, True):
            path = tmp_path / f"{at}-{after}.db"
            done, _ = play(path, at, after)
            journal = AdapterJournal(path)
            journal.load()  # the chain of every lease is verified
            found = len(journal.ticks("lease_1"))
            whole = [sum(len(o.ticks) for o in outcomes[:n]) for n in (done, done + 1)]
            assert found in whole, (at, after)  # the one that failed is there or not, never half
            journal.close()
