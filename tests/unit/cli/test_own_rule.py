"""``tally job show`` tells by which rule of the own book a job is renewed."""

from __future__ import annotations

from pathlib import Path

from marketplace.cli.commands.own_rule import renews
from marketplace.client.payer import journal as rows
from marketplace.client.payer.journal import Journal
from marketplace.client.payer.renewal_rule import RenewalRule
from tests.unit.client.test_payer_journal import VK, begun
from tests.unit.support.answers import job_answer

DAY = 86_400_000


def test_the_rule_of_the_own_book_is_told(tmp_path: Path) -> None:
    view = job_answer(channel=VK.hex(), lease="lease_1")
    assert renews(tmp_path, view) == ""  # another purse's
    begun(tmp_path / "channels")
    assert renews(tmp_path, view) == ""
    rule = RenewalRule(7 * DAY, 2 * DAY, 2_000_000)
    journal, _ = Journal.hold(tmp_path / "channels", VK)
    journal.write(rows.rule_row("lease_1", rule))
    told = "by itself for 7d, each time that less than 2d is left, a day for at most 2.000000 ADA"
    assert renews(tmp_path, view) == told  # whoever holds the book
    assert renews(tmp_path, job_answer(channel=VK.hex(), lease="lease_2")) == ""
    assert renews(tmp_path, job_answer(channel="")) == ""
    journal.write(rows.rule_row("lease_1", None))
    journal.close()
    assert renews(tmp_path, view) == ""
