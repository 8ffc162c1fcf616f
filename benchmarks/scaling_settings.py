"""The ways to scale that ``tally bench scaling`` tries, and which of their outcomes count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.scaling_world import Outcome

GOALS: Final = (0.05, 0.02, 0.01, 0.005, 0.001)  # of requests that may be late
KINDS: Final = ("reactive", "predictive", "fixed", "oracle")


@dataclass(frozen=True)
class Setting:
    """A way to scale, of a *kind*. *size*: the `concurrency`, of what a replica bears undelayed;
    *stay*: the `down_after`, of what a start needs; *sure*: per cent; *count*: where it is fixed.
    """

    kind: str
    size: float = 1.0
    stay: int = 1
    sure: int = 0
    count: int = 0

    def said(self) -> str:
        """In words of a job file, as far as it has them."""
        if self.kind == "fixed":
            return f"{self.count} replicas"
        said = f"{self.size:g} of full, stays {self.stay} starts"
        return f"{said}, predict {self.sure}" if self.sure else said


def cheapest(outcomes: dict[Setting, Outcome], kind: str, goal: float) -> Setting | None:
    """Of the settings of *kind* that meet *goal*."""
    meet = [one for one in outcomes if one.kind == kind and outcomes[one].late_share <= goal]
    return min(meet, key=lambda one: outcomes[one].replica_ms, default=None)


def table(outcomes: dict[Setting, Outcome]) -> list[tuple[str, ...]]:
    """A row for each goal: the goal, and the cheapest replica-hours of each kind."""
    rows: list[tuple[str, ...]] = []
    for goal in GOALS:
        found = [cheapest(outcomes, kind, goal) for kind in KINDS]
        hours = ["–" if one is None else f"{outcomes[one].hours:,.2f}" for one in found]
        rows.append((f"{goal:.1%}", *hours))
    return rows
