"""A channel's book on disk: durable before it is acted on, locked, and forgotten by no crash."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marketplace.client.net.clock import Stamp
from marketplace.client.net.link import market_of
from marketplace.client.payer import decide
from marketplace.client.payer import journal as rows
from marketplace.client.payer.decide import Outcome
from marketplace.client.payer.journal import (
    ChannelFacts,
    ChannelHeld,
    Journal,
    JournalDamaged,
    peek,
)
from marketplace.client.payer.payers import Payers
from marketplace.domain.money.channel_stage import ChannelStage
from tests.unit.support.payer import SESSION, Paper, signed_terms, terms

VK = SESSION.verify_key
FACTS = ChannelFacts(
    VK, "http://market", 42, "ab" * 32, "", 12_000_000, "cd" * 32, 0, ChannelStage.OPEN
)


def begun(folder: Path, ticks: int = 3) -> Paper:
    """A book with some answered receipts; the lock is given back."""
    journal, loaded = Journal.hold(folder, VK)
    agreed, paper = terms(), Paper()
    at = Stamp("boot", 1_000_000, 5_000_000)
    journal.write(rows.channel_row(FACTS), rows.lease_row(signed_terms(agreed), agreed.ceiling, at))
    journal.write(rows.clock_row(agreed.lease, "started", at))
    book = rows.fold(VK, [rows.lease_row(signed_terms(agreed), agreed.ceiling, at)], at).book
    book = decide.started(book, agreed.lease, at.mono_ms)
    for tick in range(1, ticks + 1):
        now = Stamp("boot", at.mono_ms + tick * 1000, at.wall_ms + tick * 1000)
        signed = paper.tick(agreed, 1000)
        outcome = decide.decide(book, signed, now.mono_ms)
        assert isinstance(outcome, Outcome)
        book = outcome.book
        journal.write(rows.tick_row(signed, book, agreed.lease, now))
    journal.close()
    assert loaded.facts is None
    return paper


def test_the_book_comes_back_as_it_was(tmp_path: Path) -> None:
    paper = begun(tmp_path)
    journal, loaded = Journal.hold(tmp_path, VK)
    assert loaded.facts == FACTS and loaded.book.signed == loaded.book.spent == 6000
    assert loaded.book.last == paper.last and loaded.latest["lease_1"] == paper.sent[-1]
    with pytest.raises(decide.ReceiptReplayed):
        decide.decide(loaded.book, paper.sent[0], 0)
    journal.close()
    assert (tmp_path / f"{VK.hex()}.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_clock_goes_on_over_a_restart_and_a_reboot(tmp_path: Path) -> None:
    begun(tmp_path)
    data = [json.loads(x) for x in (tmp_path / f"{VK.hex()}.jsonl").read_text().splitlines()]
    same = rows.fold(VK, data, Stamp("boot", 1_060_000, 0)).book.leases["lease_1"]
    assert same.elapsed_ms(1_060_000) == 60_000
    other = rows.fold(VK, data, Stamp("another boot", 700, 5_060_000)).book.leases["lease_1"]
    assert other.elapsed_ms(700) == 60_000
    backwards = rows.fold(VK, data, Stamp("another boot", 700, 4_000_000)).book.leases["lease_1"]
    assert backwards.elapsed_ms(700) == 0


def test_a_start_that_no_book_has_is_bounded_by_the_agreement_and_then_kept(tmp_path: Path) -> None:
    agreed, paper = terms(), Paper()
    at, now = Stamp("boot", 1_000_000, 5_000_000), Stamp("boot", 1_060_000, 5_060_000)
    data = [rows.lease_row(signed_terms(agreed), agreed.ceiling, at)]
    lease = rows.fold(VK, data, now).book.leases["lease_1"]
    assert (lease.since_ms, lease.agreed_ms) == (None, 1_000_000)
    since = lease.earliest_ms(now.mono_ms)
    begun = now.earlier(now.mono_ms - since)
    assert begun == Stamp("boot", 1_057_000, 5_057_000)
    data.append(rows.clock_row("lease_1", "started", begun))
    outcome = decide.decide(rows.fold(VK, data, now).book, paper.tick(agreed, 2000), now.mono_ms)
    assert isinstance(outcome, Outcome)
    data.append(rows.tick_row(paper.sent[0], outcome.book, "lease_1", now))
    later = rows.fold(VK, data, Stamp("another boot", 700, 5_061_000)).book.leases["lease_1"]
    assert later.elapsed_ms(700) == 4000 and later.agreed_ms is None


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("http://market", True),
        ("HTTP://Market:80/", True),
        ("http://market:8000", False),
        ("http://other", False),
    ],
)
def test_a_market_is_the_same_however_its_address_is_written(url: str, taken: bool) -> None:
    assert (market_of(url) == market_of(FACTS.market)) is taken
    assert market_of("http://localhost:8000/") == market_of("http://127.0.0.1:8000")
    assert market_of("https://market") == market_of("https://market:443/")


def test_one_process_holds_a_session_key(tmp_path: Path) -> None:
    begun(tmp_path)
    code = (
        "import sys; from pathlib import Path; from marketplace.client.payer.journal import Journal\n"
        f"j, _ = Journal.hold(Path({str(tmp_path)!r}), bytes.fromhex({VK.hex()!r}))\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ChannelHeld):
            Journal.hold(tmp_path, VK)
        assert peek(tmp_path, VK).book.signed == 6000  # looking needs no lock
        other.stdin.close()
        other.wait(60)
    Journal.hold(tmp_path, VK)[0].close()


def test_a_line_that_a_crash_cut_short_is_dropped_and_any_other_damage_is_not(
    tmp_path: Path,
) -> None:
    begun(tmp_path)
    path = tmp_path / f"{VK.hex()}.jsonl"
    whole = path.read_bytes()
    for cut in (1, 5, 200):
        path.write_bytes(whole[:-cut])
        journal, loaded = Journal.hold(tmp_path, VK)
        assert loaded.book.signed == 4000  # the last answer was never sent
        journal.write(rows.end_row(Stamp.now()))
        journal.close()
        assert peek(tmp_path, VK).end_sent
    lines = whole.splitlines(keepends=True)
    for damage in (b"{not json}\n", b'{"k": "what"}\n', b'{"k": "tick"}\n'):
        path.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))
        with pytest.raises(JournalDamaged):
            Journal.hold(tmp_path, VK)


def test_a_rewritten_book_forgets_nothing_that_counts(tmp_path: Path) -> None:
    paper = begun(tmp_path, ticks=50)
    path = tmp_path / f"{VK.hex()}.jsonl"
    before = path.stat().st_size
    Journal.hold(tmp_path, VK, compact_bytes=1000)[0].close()
    journal, loaded = Journal.hold(tmp_path, VK)
    assert path.stat().st_size < before / 5
    assert loaded.book.signed == 100_000 and loaded.book.last == paper.last
    assert loaded.book.leases["lease_1"].approved == 100_000 and loaded.facts == FACTS
    journal.close()


def test_what_ended_channels_cost_counts_against_the_budget_after_a_restart(
    tmp_path: Path,
) -> None:
    begun(tmp_path)
    journal, loaded = Journal.hold(tmp_path, VK)
    assert loaded.facts is not None
    journal.write(rows.channel_row(replace(loaded.facts, state="ENDED")))
    journal.close()
    nobody: Any = None
    payers = Payers(tmp_path, "http://market", 42, nobody)
    assert payers.spent_before("job_1") == 6000 and payers.spent_before("job_2") == 0


def test_a_rewritten_book_still_knows_when_a_lease_began(tmp_path: Path) -> None:
    begun(tmp_path, ticks=5)
    path = tmp_path / f"{VK.hex()}.jsonl"
    lines = [x for x in path.read_text().splitlines() if json.loads(x)["k"] != "clock"]
    path.write_text("".join(line + "\n" for line in lines))  # its start was never told
    journal, before = Journal.hold(tmp_path, VK)
    journal.close()
    journal, after = Journal.hold(tmp_path, VK, compact_bytes=1)
    journal.close()
    assert len(path.read_text().splitlines()) < len(lines) + 1
    one, two = before.book.leases["lease_1"].since_ms, after.book.leases["lease_1"].since_ms
    assert one is not None and two is not None and abs(one - two) < 1000
