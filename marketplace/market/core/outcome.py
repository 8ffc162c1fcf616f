"""What a decision changes and what is to be done then: values, never actions.

The performer (``lifecycle.change``) writes the records, and what the effects say of the store, in
one transaction; only after it does it perform the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from marketplace.domain.protocol import wire
from marketplace.market.base.records import Job, Lease, Record
from marketplace.market.state.match import NOTHING, Spent


class Lapse(Enum):
    """What is remembered against somebody."""

    LET_LAPSE = auto()  # an account let a quote lapse, or never funded what it signed
    ENDED_UNPAID = auto()  # a lease of an account ended for want of payment
    ANSWERS_LATE = auto()  # the last receipt of an ended lease has had no voucher for a while
    NEVER_STARTED = auto()  # a provider did not start what was signed in advance


# ---- in the same transaction ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Bring it to the adapter by the outbox: it waits there until it was acknowledged."""

    provider: str
    message: wire.Message


@dataclass(frozen=True, slots=True)
class Story:
    """A line of the job's story."""

    kind: str
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Keep:
    """A record that comes to be with this."""

    record: Record


@dataclass(frozen=True, slots=True)
class Remember:
    """Count it against whoever is to blame for what became of the outcome's lease."""

    lapse: Lapse


@dataclass(frozen=True, slots=True)
class FreeBudget:
    """The job is over: all but *spent* of its budget goes back to the API key that posted it."""

    spent: int


@dataclass(frozen=True, slots=True)
class Rematch:
    """The job wants a place again: whoever matches is told, by its name."""

    job: str


@dataclass(frozen=True, slots=True)
class WakeMatcher:
    """Somebody may have a place now that had none."""


# ---- after the commit, in this process -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the adapter if it is connected here; it asks again if it is not."""

    provider: str
    message: wire.Message


@dataclass(frozen=True, slots=True)
class Release:
    """What *lease* held is free."""

    lease: str


@dataclass(frozen=True, slots=True)
class HoldQuote:
    """The lease counts among its account's open quotes, and at *address* where there is one."""

    address: str


@dataclass(frozen=True, slots=True)
class Enqueue:
    """The job stands in the fair queue, with what it was looked for with."""

    spent: Spent = NOTHING


@dataclass(frozen=True, slots=True)
class LeaveQueue:
    """The job does not stand in the fair queue any more."""


Effect = (
    Tell | Story | Keep | Remember | FreeBudget | Rematch | WakeMatcher | Say | Release | HoldQuote
    | Enqueue | LeaveQueue
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job and a lease of it (none yet, or none any more) as they are now, and what is to be
    done.
    """

    job: Job
    lease: Lease | None
    effects: tuple[Effect, ...] = ()

    def and_then(self, *effects: Effect) -> Outcome:
        """With more to be done."""
        return Outcome(self.job, self.lease, (*self.effects, *effects))
