"""What can come to a job at its consumer: the market's view, answers, looks, and time."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.client.jobs.core.quotes import CheckedQuote, Quote
from marketplace.domain.errors import Refusal
from marketplace.domain.work.job_machine import JobState


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody wants it run."""


@dataclass(frozen=True, slots=True)
class Posted:
    """The market took it; somebody here answers its first quote. *member*: of a gang."""

    member: bool = False


@dataclass(frozen=True, slots=True)
class NotPosted:
    """The market refused it."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """The market's view: *state* is None for a word that this version does not know; *lease* the
    one that counts now; *needs_key*: it asks for a fresh session key; *quote* where one stands, or
    *unreadable*, why it cannot be read.
    """

    state: JobState | None
    lease: str = ""
    needs_key: bool = False
    quote: Quote | None = None
    unreadable: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """The quote is what was asked for, and this is what it costs."""

    offered: CheckedQuote


@dataclass(frozen=True, slots=True)
class Unfit:
    """The quote cannot be agreed to. *ours*: for what it says, or for what the job lacks here; else
    the chain or the purse refused, and a later look may find it otherwise.
    """

    lease: str
    refusal: Refusal
    ours: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """A person's answer to the quote of *lease*."""

    lease: str
    yes: bool


@dataclass(frozen=True, slots=True)
class Agreed:
    """Everything that agreeing to *lease* takes is done, and the market knows."""

    lease: str


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """How the market has a lease that counts no more: *ended*, or given up for a *reason*."""

    lease: str
    ended: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A word of the payer: ``stage`` and ``final`` change what the market shows."""

    kind: str


@dataclass(frozen=True, slots=True)
class ChannelLooked:
    """The chain was asked about a channel of it; what it said is in the books."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is time to look again."""


Input = (
    Wanted | Posted | NotPosted | Viewed | Checked | Unfit | Answered | Agreed | LeaseSeen | Heard
    | ChannelLooked | TimePassed
)  # fmt: skip
