"""The journal: whole or not at all, nothing twice, and every alteration shows."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.events import Outcome, Send
from adapter.core.state import State
from adapter.journal.codec import JournalFault
from adapter.journal.journal import Journal, StoredTx
from marketplace.domain.money.receipt import Receipt, SignedReceipt, check_next
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import codec, wire
from marketplace.domain.work.parts import Policy
from tests.unit.support.adapter import ADAPTER, RATE, SESSION, Bench, gpu_job
from tests.unit.support.killer import kill_at_random, last_of


def written(path: Path, ticks: int = 3) -> tuple[Bench, Journal]:
    """A bench whose every durable outcome went into a journal."""
    bench, journal = Bench().running(), Journal(path)
    for _ in range(ticks):
        bench.tick()
    for outcome in bench.outcomes:
        if outcome.durable:
            journal.write(outcome)
    return bench, journal


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    bench, journal = written(tmp_path / "j.db")
    journal.close()
    again = Journal(tmp_path / "j.db")
    state = again.load()
    wanted = bench.state.leases["lease_1"]
    assert replace(
        state.leases["lease_1"], idle_since_ms=0, fault_since_ms=0, meters=()
    ) == replace(wanted, idle_since_ms=0, fault_since_ms=0, meters=())
    assert [m.billed_ns for m in state.leases["lease_1"].meters] == [3_000_000_000]
    assert state.channels == bench.state.channels
    assert [r.receipt for r in again.ticks("lease_1")] == bench.receipts()
    again.close()


def test_a_tick_is_there_once(tmp_path: Path) -> None:
    bench, journal = written(tmp_path / "j.db")
    ticked = next(o for o in reversed(bench.outcomes) if o.ticks)
    with pytest.raises(JournalFault):
        journal.write(ticked)
    assert len(journal.ticks("lease_1")) == 3
    journal.close()


def test_a_refused_write_changes_nothing(tmp_path: Path) -> None:
    bench, journal = written(tmp_path / "j.db")
    before = journal.outbox()
    ticked = next(o for o in reversed(bench.outcomes) if o.ticks)
    with pytest.raises(JournalFault):
        journal.write(ticked)
    assert journal.outbox() == before
    journal.close()


def test_a_lower_voucher_never_replaces_a_greater_one(tmp_path: Path) -> None:
    bench, journal = written(tmp_path / "j.db")
    low = Voucher.sign(SESSION, 1)
    channel = replace(bench.state.channels[SESSION.verify_key], voucher=low)
    journal.write(Outcome(bench.state.with_channel(channel)))
    journal.close()
    again = Journal(tmp_path / "j.db")
    voucher = again.load().channels[SESSION.verify_key].voucher
    assert voucher is not None and voucher.cumulative == 6000
    again.close()


def test_an_altered_row_shows(tmp_path: Path) -> None:
    _bench, journal = written(tmp_path / "j.db")
    journal.close()
    raw = sqlite3.connect(tmp_path / "j.db")
    raw.execute("UPDATE ticks SET signature=zeroblob(64) WHERE seq=2")
    raw.commit()
    raw.close()
    with pytest.raises(JournalFault, match="altered at tick 2"):
        Journal(tmp_path / "j.db").load()


def test_a_lost_row_shows(tmp_path: Path) -> None:
    _bench, journal = written(tmp_path / "j.db")
    journal.close()
    raw = sqlite3.connect(tmp_path / "j.db")
    raw.execute("DELETE FROM ticks WHERE seq=3")
    raw.commit()
    raw.close()
    with pytest.raises(JournalFault, match="last tick"):
        Journal(tmp_path / "j.db").load()


def test_messages_wait_until_they_are_acknowledged(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    numbers = journal.write(
        Outcome(State(), (Send(wire.LeaseDeclined("a", "X", "")), Send(wire.StopAsked("b", "")),
                          Send(wire.Ack(1), durable=False)))
    )  # fmt: skip
    assert [n for n, _ in journal.outbox()] == numbers
    journal.acknowledged(numbers[:1])
    left = [codec.from_bytes(payload) for _, payload in journal.outbox()]
    assert left == [wire.StopAsked("b", "")]
    journal.close()


def test_a_transaction_keeps_its_bytes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    journal.put_transaction(StoredTx(b"1" * 32, b"bytes", "finish", "BUILT", None))
    journal.put_transaction(StoredTx(b"1" * 32, b"other", "finish", "SEEN", 7))
    assert journal.transactions() == [StoredTx(b"1" * 32, b"bytes", "finish", "SEEN", 7)]
    journal.close()


def test_two_adapters_cannot_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", wait_s=0.1)
    journal.write(Outcome(State(draining=True)))
    with pytest.raises(JournalFault):
        Journal(tmp_path / "j.db", wait_s=0.1)
    journal.close()


def _writer(path: Path, told: int) -> None:
    """Ticks for ever; every receipt that is durable is told through the pipe."""
    journal = Journal(path)
    bench = Bench(state=journal.load())
    last = bench.lease().last
    bench.boot_ms += 1000 + (last.t1_ms if last else 0)
    while True:
        journal.write(bench.tick(pay=False))
        owed = bench.state.channels[SESSION.verify_key].owed
        journal.write(bench.pay(owed))
        os.write(told, owed.to_bytes(8, "big"))


def _life(path: Path, dice: random.Random) -> int:
    """One writer, killed at a random moment; the greatest amount that it told was durable."""
    return int.from_bytes(last_of(kill_at_random(_writer, path, dice)), "big")


def _check(path: Path, told: int) -> int:
    """The chain is whole; what was told is there; at most one tick more than the voucher."""
    journal = Journal(path)
    state = journal.load()
    before: Receipt | None = None
    for signed in journal.ticks("lease_1"):
        receipt = SignedReceipt(signed.body, signed.signature).verify(ADAPTER.verify_key)
        check_next(receipt, before, before, RATE)
        before = receipt
    channel = state.channels.get(SESSION.verify_key)
    journal.close()
    assert channel is not None
    assert channel.paid >= told, "a voucher that was acknowledged is gone"
    assert (before.channel_owed if before else 0) == channel.owed
    return channel.owed


def storm(path: Path, kills: int) -> None:
    """Kill the writer *kills* times."""
    dice, told, owed = random.Random(7), 0, 0
    bench, journal = Bench().running(gpu_job(policy=Policy(max_duration_ms=10**9))), Journal(path)
    for outcome in bench.outcomes:
        if outcome.durable:
            journal.write(outcome)
    journal.close()
    for _ in range(kills):
        told = max(told, _life(path, dice))
        now = _check(path, told)
        assert now >= owed, "a tick that was there is gone"
        owed = now
    assert owed > 0, "no writer ever got to a tick: the storm shows nothing"


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forty_kills_of_the_writer(tmp_path: Path) -> None:
    storm(tmp_path / "j.db", 40)


@pytest.mark.parametrize(
    "kills",
    [pytest.param(100, marks=pytest.mark.prove), pytest.param(1000, marks=pytest.mark.nightly)],
)
def test_hundreds_of_kills_of_the_writer(tmp_path: Path, kills: int) -> None:
    storm(tmp_path / "j.db", kills)
