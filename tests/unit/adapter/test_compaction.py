"""The journal forgets what is over, and a kill in the middle of that loses or doubles nothing."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.answers.time import QUOTE_MARGIN_MS
from adapter.core.events import Outcome, Passed, Removed, Settled, Started
from adapter.core.state import Lease, Limits, Own, Past, State
from adapter.journal.journal import OLD_TRANSACTIONS, Journal, StoredTx
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Receipt, SignedReceipt, check_next
from marketplace.domain.work.lease import LeaseState
from tests.unit.support.adapter import ADAPTER, RATE, SESSION, WALL, Bench, handle, offer
from tests.unit.support.killer import kill_at_random, last_of

TICKS = 4
TICK_OWED = 2000
MOST_BYTES = 300_000
TX = "ee" * 32
EMPTY = {"leases": 0, "ticks": 0, "channels": 0, "vouchers": 0, "spent": 0}


def bench_of(**limits: int) -> Bench:
    """A bench with an owner of these rules."""
    rules = replace(Limits(), **limits)  # pyright: ignore[reportArgumentType]  names are the caller's
    return Bench(own=Own(offer(), ADAPTER, rules))


def keep(bench: Bench, journal: Journal, since: int = 0) -> int:
    """Write what is durable of the outcomes from *since*; how many there are now."""
    for outcome in bench.outcomes[since:]:
        if outcome.durable:
            journal.write(outcome)
    return len(bench.outcomes)


def finished(path: Path, bench: Bench) -> Journal:
    """One lease from its proposal to its channel's final end, written down."""
    journal = Journal(path)
    bench.running()
    for _ in range(TICKS):
        bench.tick()
    bench.exit()
    bench.clear()
    bench.do(Settled(SESSION.verify_key, TX, TICKS * TICK_OWED, final=True))
    keep(bench, journal)
    return journal


def rows(path: Path) -> dict[str, int]:
    """How many rows each table has."""
    tables = ("leases", "ticks", "channels", "vouchers", "spent")
    raw = sqlite3.connect(path)
    found = {one: int(raw.execute(f"SELECT count(*) FROM {one}").fetchone()[0]) for one in tables}
    raw.close()
    return found


def test_a_finished_channel_is_forgotten_after_its_time(tmp_path: Path) -> None:
    bench = bench_of(keep_ms=10_000)
    journal = finished(tmp_path / "j.db", bench)
    written = len(bench.outcomes)
    bench.boot_ms += 9_999
    bench.do(Passed())
    assert SESSION.verify_key in bench.state.channels
    bench.boot_ms += 1
    bench.do(Passed())
    keep(bench, journal, written)
    paid = TICKS * TICK_OWED
    assert bench.state.channels == {}
    assert bench.state.past == Past(frozenset({SESSION.verify_key}), paid, paid)
    assert journal.ticks("lease_1") == []
    journal.close()
    assert rows(tmp_path / "j.db") == {**EMPTY, "spent": 1}
    again = Journal(tmp_path / "j.db")
    assert again.load() == State(past=bench.state.past)
    again.close()


def test_an_end_that_a_rollback_may_undo_is_kept(tmp_path: Path) -> None:
    bench = bench_of(keep_ms=0).running()
    bench.tick()
    bench.exit()
    bench.clear()
    bench.do(Settled(SESSION.verify_key, TX, TICK_OWED))
    bench.boot_ms += 1_000_000
    bench.do(Passed())
    assert SESSION.verify_key in bench.state.channels
    bench.do(Settled(SESSION.verify_key, TX, TICK_OWED, final=True))
    bench.do(Passed())
    assert bench.state.channels == {}


def test_a_forgotten_session_key_is_never_good_again() -> None:
    bench = bench_of(keep_ms=0)
    bench.state = State(past=Past(frozenset({SESSION.verify_key}), 1, 1))
    bench.propose(lease="lease_2")
    (declined,) = bench.sent()
    assert getattr(declined, "code", "") == "CHANNEL_OVER"


def test_what_was_earned_outlives_the_channels(tmp_path: Path) -> None:
    bench = bench_of(keep_ms=0)
    finished(tmp_path / "j.db", bench).close()
    before = bench.state.earned, bench.state.claimed
    bench.do(Passed())
    assert bench.state.channels == {}
    assert (bench.state.earned, bench.state.claimed) == before == (TICKS * TICK_OWED,) * 2


def test_a_channel_that_nobody_opened_is_forgotten_and_may_open_later(tmp_path: Path) -> None:
    bench, journal = bench_of(fund_wait_ms=5_000, linger_ms=60_000), Journal(tmp_path / "j.db")
    bench.propose()
    bench.sign()
    bench.boot_ms += 6_000
    bench.do(Passed())
    assert bench.state.leases == {} and len(bench.state.channels) == 1
    bench.do(Passed())
    bench.boot_ms += 60_000
    bench.do(Passed())
    assert bench.state.channels == {} and bench.state.past == Past()
    keep(bench, journal)
    journal.close()
    assert rows(tmp_path / "j.db") == EMPTY


def test_a_quote_that_was_never_signed_leaves_no_row(tmp_path: Path) -> None:
    bench, journal = Bench(), Journal(tmp_path / "j.db")
    bench.propose()
    assert bench.lease().state is LeaseState.OFFERED
    bench.boot_ms += 60_000 + QUOTE_MARGIN_MS + 1
    bench.do(Passed())
    assert bench.state.leases == {}
    keep(bench, journal)
    journal.close()
    assert rows(tmp_path / "j.db")["leases"] == 0


def test_strays_of_an_older_adapter_are_dropped(tmp_path: Path) -> None:
    finished(tmp_path / "j.db", Bench()).close()
    raw = sqlite3.connect(tmp_path / "j.db")
    raw.execute("INSERT INTO leases SELECT 'stray', fixed, moving, 1 FROM leases")
    raw.execute("INSERT INTO ticks SELECT 'stray', seq, body, signature, hash FROM ticks")
    raw.commit()
    raw.close()
    journal = Journal(tmp_path / "j.db")
    journal.load()
    assert len(journal.ticks("lease_1")) == TICKS + 1
    assert journal.ticks("stray") == []
    journal.close()


def test_a_file_of_an_older_adapter_learns_to_shrink(tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "j.db")
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
    raw.execute("INSERT INTO meta VALUES ('draining', '1')")
    raw.commit()
    raw.close()
    journal = Journal(tmp_path / "j.db")
    journal.close()
    raw = sqlite3.connect(tmp_path / "j.db")
    assert raw.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert raw.execute("SELECT value FROM meta WHERE name='draining'").fetchone() == ("1",)
    raw.close()


def test_only_the_newest_final_transactions_are_kept(tmp_path: Path) -> None:
    bench = bench_of(keep_ms=0)
    journal = finished(tmp_path / "j.db", bench)
    open_still = StoredTx(b"open", b"", "finish", "SENT", None)
    journal.put_transaction(open_still)
    for n in range(OLD_TRANSACTIONS + 5):
        journal.put_transaction(StoredTx(n.to_bytes(32), b"", "finish", "FINAL", n))
    journal.write(bench.do(Passed()))
    kept = journal.transactions()
    assert kept[0] == open_still and len(kept) == OLD_TRANSACTIONS + 1
    journal.close()


# ---- kills -----------------------------------------------------------------------------------------


def key(number: int) -> Signer:
    """The session key of the *number*-th channel, from 1."""
    return Signer(number.to_bytes(32))


class Career:
    """Lease after lease, each on a channel of its own, from wherever the journal stands."""

    def __init__(self, path: Path, told: int) -> None:
        self.journal = Journal(path)
        self.told = told
        self.bench = bench_of(keep_ms=0)
        self.bench.state = self.journal.load()
        self.journal.acknowledged([number for number, _ in self.journal.outbox()])
        lease = self.bench.state.leases.get(self.id)
        marks = [m.last.at_ns // 1_000_000 for m in lease.meters if m.last] if lease else []
        self.bench.boot_ms = max([self.bench.boot_ms, *marks])

    @property
    def number(self) -> int:
        """Which lease of its life it is at, from 1."""
        return len(self.bench.state.past.keys) + 1

    @property
    def id(self) -> str:
        """The lease of now."""
        return f"lease_{self.number}"

    def write(self, outcome: Outcome) -> None:
        """As the daemon does, with a market that acknowledges at once."""
        if outcome.durable:
            self.journal.acknowledged(self.journal.write(outcome))

    def step(self) -> None:
        """Whatever comes next in the lease's life."""
        bench, session = self.bench, key(self.number)
        lease = bench.state.leases.get(self.id)
        channel = bench.state.channels.get(session.verify_key)
        if lease is not None:
            self._live(lease, session)
        elif channel is None:
            facts = {"expires_at_ms": WALL + 10**12}
            self.write(bench.propose(None, self.id, session, **facts))
        elif not channel.final:
            done = Settled(session.verify_key, TX, channel.paid, final=True)
            self.write(bench.do(done))
        else:
            bench.boot_ms += 1000
            self.write(bench.do(Passed()))

    def _live(self, lease: Lease, session: Signer) -> None:
        bench = self.bench
        if lease.state is LeaseState.OFFERED:
            self.write(bench.sign(self.id, session))
        elif lease.awaits_money:
            self.write(bench.sight(session))
        elif lease.handle is None:
            self.write(bench.do(Started(self.id, handle(self.id, bench.now.wall_ms))))
            self.write(bench.measure(self.id, tick=False))
        elif lease.exited:
            self.write(bench.do(Removed(self.id)))
        else:
            self._serve(session)

    def _serve(self, session: Signer) -> None:
        bench = self.bench
        channel = bench.state.channels[session.verify_key]
        if channel.owed > channel.paid:
            self.write(bench.pay(None, session))
            paid = bench.state.channels[session.verify_key].paid
            os.write(self.told, self.number.to_bytes(4) + paid.to_bytes(4))
        elif channel.owed < TICKS * TICK_OWED:
            bench.boot_ms += 1000
            self.write(bench.measure(self.id))
        else:
            self.write(bench.exit(self.id))


def _career(path: Path, told: int) -> None:
    career = Career(path, told)
    while True:
        career.step()


def _check(path: Path, told: bytes) -> int:
    """Nothing twice, no voucher that was told is lost, at most one tick is unpaid, and what is
    forgotten is gone; the lovelace that was ever earned."""
    number, paid = int.from_bytes(told[:4]), int.from_bytes(told[4:])
    journal = Journal(path)
    state = journal.load()
    done = len(state.past.keys)
    assert state.past.keys == {key(n).verify_key for n in range(1, done + 1)}
    assert state.past.paid == state.past.claimed == done * TICKS * TICK_OWED
    assert number <= done + 1, "a channel that was paid is gone"
    for channel in state.channels.values():
        assert channel.session_vk == key(done + 1).verify_key
        assert number <= done or channel.paid >= paid, "a voucher that was told is gone"
        before: Receipt | None = None
        for signed in journal.ticks(f"lease_{done + 1}"):
            receipt = SignedReceipt(signed.body, signed.signature).verify(ADAPTER.verify_key)
            check_next(receipt, before, before, RATE)
            before = receipt
        assert (before.channel_owed if before else 0) == channel.owed
        assert channel.owed % TICK_OWED == 0 and channel.owed - channel.paid in (0, TICK_OWED)
    earned = state.earned
    journal.close()
    found = rows(path)
    assert max(found["leases"], found["channels"], found["vouchers"]) <= 1, found
    assert found["ticks"] <= TICKS + 1 and found["spent"] == done, found
    assert path.stat().st_size <= MOST_BYTES
    return earned


def storm(path: Path, kills: int) -> None:
    """Kill the writer *kills* times."""
    dice, told, earned = random.Random(11), bytes(8), 0
    for _ in range(kills):
        told = max(told, last_of(kill_at_random(_career, path, dice)))
        now = _check(path, told)
        assert now >= earned, "what was earned is gone"
        earned = now
    assert earned > 3 * TICKS * TICK_OWED, "hardly anything was forgotten: the storm shows nothing"


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forty_kills_while_the_journal_forgets(tmp_path: Path) -> None:
    storm(tmp_path / "j.db", 40)


@pytest.mark.parametrize(
    "kills",
    [pytest.param(100, marks=pytest.mark.prove), pytest.param(1000, marks=pytest.mark.nightly)],
)
def test_hundreds_of_kills_while_the_journal_forgets(tmp_path: Path, kills: int) -> None:
    storm(tmp_path / "j.db", kills)
