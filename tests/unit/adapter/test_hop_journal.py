"""What lies on the disk of a provider that a router pays: all that was decided, whenever it dies."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.decide import recover, wake
from adapter.core.events import LinkUp, Outcome, Passed, Settled, Watch
from adapter.core.hop import MOST_KNOWN
from adapter.journal.journal import Journal
from marketplace.disk import DiskFull
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.hop_frames import frame_of
from marketplace.domain.work.lease import LeaseState
from tests.unit.support.hop_out import HOP, Over, payment


class Written(Over):
    """The same, with a journal that is read back after every write."""

    journal: Journal

    def write(self, outcome: Outcome) -> None:
        if not outcome.durable:
            return
        self.journal.write(outcome)
        read = self.journal.load()
        assert read.channels == outcome.state.channels
        assert {k: v.owed for k, v in read.leases.items()} == {
            k: v.owed for k, v in outcome.state.leases.items()
        }
        for id_, lease in read.leases.items():
            held = outcome.state.leases[id_]
            assert (lease.routed, lease.terms, lease.unpaid) == (
                held.routed,
                held.terms,
                held.unpaid,
            )

    def do(self, event: object) -> Outcome:  # pyright: ignore[reportIncompatibleMethodOverride]
        outcome = super().do(event)  # pyright: ignore[reportArgumentType]
        self.write(outcome)
        return outcome


def written(folder: Path) -> Written:
    bench = Written()
    bench.journal = Journal(folder / "journal.db")
    return bench


def test_every_decision_is_read_back_as_it_was(tmp_path: Path) -> None:
    bench = written(tmp_path)
    bench.opened().begun().begun("lease_2")
    for _ in range(3):
        bench.boot_ms += 1000
        bench.measure("lease_1")
        bench.measure("lease_2")
        bench.leaf("lease_2", bench.lease("lease_2").owed)
    bench.pay()
    bench.hear(bench.asked("lease_3"))
    bench.boot_ms += 120_001
    bench.do(Passed())  # the third one's quote is gone
    for lease in ("lease_1", "lease_2"):
        bench.exit(lease)
        bench.pay()
        bench.clear(lease)
    known = bench.hop.last
    assert known is not None
    mine = [Leaf(leaf.terms, leaf.amount + 1) for leaf in known.leaves]
    fork = payment(mine, known.signed.statement.n, bytes(32))
    bench.hear(frame_of(fork, None))
    assert bench.hop.fork == fork and bench.hop.last is known
    bench.do(Settled(HOP.verify_key, "cd" * 32, 120, final=True))
    over = bench.journal.ended_leases()
    assert [one.id for one in over] == ["lease_1", "lease_2"]
    assert {one.state for one in over} == {LeaseState.ENDED}
    bench.boot_ms += 8 * 86_400_000
    bench.do(Passed())
    assert bench.state.channels == {}
    bench.journal.close()
    with sqlite3.connect(tmp_path / "journal.db") as db:
        for table in ("hop_payments", "hop_leases", "leases", "ticks", "channels"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


def test_a_paid_is_on_disk_with_the_payment_that_it_rests_on(tmp_path: Path) -> None:
    """Killed right after the write: the outbox has the Paid, and the hop its payment."""
    bench = written(tmp_path)
    bench.opened().begun()
    bench.tick()
    bench.journal.close()
    journal = Journal(tmp_path / "journal.db")
    state = journal.load()
    told = [codec.from_bytes(data) for _, data in journal.outbox()]
    (paid,) = [m for m in told if isinstance(m, wire.PaidSent)]
    hop = state.channels[HOP.verify_key].hop
    assert hop is not None and hop.last is not None
    assert paid.amount == hop.last.voucher.cumulative == 20
    again = Over(state=wake(state, bench.now), boot_ms=bench.boot_ms)
    assert Watch(HOP.verify_key) in recover(again.state)
    again.do(LinkUp())
    assert [m for m in again.sent() if isinstance(m, wire.PaidSent)] == [paid]  # the same bytes


def test_a_payment_that_no_disk_took_is_said_to_nobody(tmp_path: Path) -> None:
    """The daemon performs nothing of an outcome that was not written: here it is not."""
    bench = written(tmp_path)
    bench.opened().begun()
    bench.boot_ms += 1000
    bench.measure()
    before = bench.state
    failing = Journal(tmp_path / "other.db")
    failing._db.execute("PRAGMA max_page_count = 1")  # pyright: ignore[reportPrivateUsage]
    bench.paying = bench.paying.pay({bench.hash_of("lease_1"): 20}, HOP)
    assert bench.paying.last is not None
    bench.journal.close()
    bench.journal = failing
    with pytest.raises(DiskFull):
        bench.hear(frame_of(bench.paying.last, bench.told))
    kept = Journal(tmp_path / "journal.db").load()
    hop = kept.channels[HOP.verify_key].hop
    assert hop is not None and hop.leaf(bench.hash_of("lease_1")) == 0
    assert before.channels == kept.channels


def test_a_hop_that_ends_while_the_adapter_is_away_is_ended_again(tmp_path: Path) -> None:
    bench = written(tmp_path)
    bench.opened().begun()
    bench.tick()
    bench.exit()
    bench.pay()
    bench.clear()
    bench.hear(wire.EndSent(End.sign(HOP, 20)))
    bench.journal.close()
    state = Journal(tmp_path / "journal.db").load()
    channel = state.channels[HOP.verify_key]
    assert channel.settling and channel.due == 20
    assert channel.voucher == bench.channel.voucher


def test_quotes_that_come_to_nothing_do_not_fill_the_disk() -> None:
    bench = Over().opened()
    one = bench.asked()
    bench.hear(one)
    hop = bench.hop
    many = {i.to_bytes(32): replace(served, reserve=0) for i in range(MOST_KNOWN + 50)
            for served in hop.leases.values()}  # fmt: skip
    live = dict(hop.leases)
    after = hop.after(replace(hop.book(0), leases={**many, **live}))
    assert len(after.leases) == MOST_KNOWN
    assert live.keys() <= after.leases.keys()  # what is live is never forgotten
    assert (0).to_bytes(32) not in after.leases and (1049).to_bytes(32) in after.leases
