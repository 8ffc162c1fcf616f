"""What the purse's own book says of a job beside the market: the rule by which it is renewed."""

from __future__ import annotations

from pathlib import Path

from marketplace.client.net.answers import JobAnswer
from marketplace.client.payer import journal
from marketplace.disk import JournalDamaged
from marketplace.domain.units import show_ada, show_duration


def renews(home: Path, view: JobAnswer) -> str:
    """The rule in words; empty without one, and where the purse at *home* does not pay for it."""
    try:
        book = journal.peek(home / "channels", bytes.fromhex(view["channel"])).book
    except (journal.ChannelNotMine, JournalDamaged, ValueError):
        return ""
    lease = book.leases.get(view["lease"])
    if lease is None or lease.rule is None:
        return ""
    rule = lease.rule
    day = f", a day for at most {show_ada(rule.day_budget)}" if rule.day_budget else ""
    return (
        f"by itself for {show_duration(rule.for_ms)}, each time that less than"
        f" {show_duration(rule.left_ms)} is left{day}"
    )
