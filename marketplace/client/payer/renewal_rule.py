"""A lease that is to be renewed by itself, again and again: when, for how long, for how much. Pure.

The rule is its payer's alone: neither provider nor market is told how long before its end a lease
is asked for again, or what it might have cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import most_owed, show_ada, show_duration

DAY_MS: Final = 86_400_000
SHORTEST_MS: Final = 10_000
_TRIES: Final = 20
_AGAIN_MS: Final = 60_000


class RuleRefused(Malformed):
    """A rule that renews nothing, or always."""

    code = "RENEWAL_RULE"
    remedy = "say for how long each time (--for 7d), and how long before the end (--when-left 2d)"


class DayTooDear(Refusal):
    """A day at the agreed price costs more than it may."""

    code = "DAY_BUDGET"
    remedy = "raise --day-budget, or let it end and post the job again where it is cheaper"


@dataclass(frozen=True)
class RenewalRule:
    """For *for_ms* more, each time that less than *left_ms* is left; a day may cost *day_budget*
    lovelace, 0 for whatever the agreed price comes to.
    """

    for_ms: int
    left_ms: int
    day_budget: int = 0

    def __post_init__(self) -> None:
        if self.left_ms < SHORTEST_MS or self.for_ms < self.left_ms or self.day_budget < 0:
            raise RuleRefused(
                f"{show_duration(self.for_ms)} at a time once {show_duration(self.left_ms)} is left"
                f": at least {show_duration(SHORTEST_MS)} is left, and no less is added"
            )

    def to_json(self) -> dict[str, Any]:
        """As a row of the book has it."""
        return {"for_ms": self.for_ms, "left_ms": self.left_ms, "day_budget": self.day_budget}

    @staticmethod
    def from_json(row: dict[str, Any]) -> RenewalRule:
        """The reverse of :meth:`to_json`."""
        return RenewalRule(int(row["for_ms"]), int(row["left_ms"]), int(row["day_budget"]))

    def budget(self, terms: Terms) -> int:
        """The most lovelace that one renewal of *terms* may add. DayTooDear."""
        day = day_owed(terms)
        if self.day_budget and day > self.day_budget:
            raise DayTooDear(f"a day costs {show_ada(day)}, and {show_ada(self.day_budget)} may")
        return most_owed(self.for_ms, terms.units_milli, terms.rate_micro)

    def again_ms(self, *, answered: bool) -> int:
        """How long after a renewal that failed it is tried again: twenty times in what is left of
        the lease where somebody said no (*answered*), and every minute at least where nobody did.
        """
        apart = max(1_000, self.left_ms // _TRIES)
        return apart if answered else min(apart, _AGAIN_MS)


def day_owed(terms: Terms) -> int:
    """What a day under *terms* costs, lovelace."""
    return most_owed(DAY_MS, terms.units_milli, terms.rate_micro)
