"""What stands in the fair queue, and what a round makes of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from marketplace.matching.model import Gang, Placement, Request
from marketplace.matching.scoring.shapes import shape_key

PATIENCE_MS: Final = 600_000
"""So long a gang waits before anybody stands back for it."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one consumer may hold at once, how much it counts for, and the highest priority it may
    use.
    """

    max_gpu_milli: int | None = None
    max_cpu_milli: int | None = None
    weight: float = 1.0
    max_priority: int = 0

    def __post_init__(self) -> None:
        if self.weight <= 0:
            raise ValueError("a weight is above zero")


Kind: TypeAlias = tuple[object, ...]
"""Priority first, then what decides where a request may go."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue, or all members of a *gang*, of which *request* is the first's; ``seq`` is
    its age.
    """

    job: str
    request: Request
    submitted_ms: int
    seq: int
    priority: int
    gang: Gang | None = None

    def asking(self, asked: Request | Gang | None) -> Waiting | None:
        """It as it waits for what is *asked*; None where that is nothing new."""
        if asked is None or asked in (self.gang, self.request):
            return None
        if isinstance(asked, Gang):
            return replace(self, request=asked.members[0], gang=asked)
        return replace(self, request=asked)

    @property
    def kind(self) -> Kind:
        """Whoever is of the same waits in one line with it: one is placed exactly when the next
        one would be.
        """
        asked = self.request
        # A line moves by its head: of jobs that differ in what they may cost one fits, another not.
        cost = (asked.budget, asked.budget is not None and asked.duration_ms, asked.spent)
        alike = (*shape_key(asked), asked.any_of, asked.gpu_count_max, *cost, _kind(self.gang))
        return (-self.priority, *alike)

    @property
    def rank(self) -> tuple[int, int, int]:
        """Who came first, the highest priority before."""
        return -self.priority, self.submitted_ms, self.seq

    def patient(self, now: int) -> bool:
        """Whether it is a gang that has waited for long."""
        return self.gang is not None and now - self.submitted_ms >= PATIENCE_MS

    @property
    def requests(self) -> tuple[Request, ...]:
        """All that it asks for."""
        return self.gang.members if self.gang is not None else (self.request,)

    @property
    def gpu_demand(self) -> int:
        """Per-mille of devices, of all together."""
        return sum(one.gpu_demand for one in self.requests)


@dataclass(frozen=True, slots=True)
class Started:
    """A job that a round placed, or a gang: a placement for each member, in their order. What each
    is held as is in *names*.
    """

    job: str
    placements: tuple[Placement, ...]
    waited_ms: int
    names: tuple[str, ...]

    @property
    def placement(self) -> Placement:
        """A job's only one."""
        return self.placements[0]


@dataclass(slots=True)
class Account:
    """What one consumer holds and waits for: per kind of request a line, oldest first."""

    quota: Quota
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    running: int = 0
    lines: dict[Kind, deque[Waiting]] = field(default_factory=dict[Kind, "deque[Waiting]"])

    def keep(self, key: Kind, stays: Callable[[Waiting], bool]) -> None:
        """Of a line those alone, in their order."""
        left = deque(filter(stays, self.lines.pop(key)))
        if left:
            self.lines[key] = left


def _kind(gang: Gang | None) -> Kind:
    """What decides beside the first member's request where a gang may go."""
    if gang is None:
        return ()
    return (gang.spread, gang.same_region, *Counter(gang.members).items())


def member_name(gang: str, at: int) -> str:
    """As what a gang's member holds its place once a round gave it one."""
    return f"{gang}.{at}"
