"""What is to be done for a job at its consumer: values, never actions.

Each may be done again after a death: what was done already is found in the books, in the purse's
own log or at the market, and is not done twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.client.jobs.core.quotes import CheckedQuote, Quote
from marketplace.client.jobs.core.state import State
from marketplace.domain.errors import Refusal

# ---- the job -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeUpKept:
    """Hold the purse's kept channels that nobody else holds, before another one is opened."""


@dataclass(frozen=True, slots=True)
class Post:
    """Post the job, with keys of its own."""


@dataclass(frozen=True, slots=True)
class ForgetKeys:
    """The keys that it was to be posted with are nobody's."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ask the market for its view."""


@dataclass(frozen=True, slots=True)
class Examine:
    """Check *quote* against the job, and find out what it costs."""

    quote: Quote


@dataclass(frozen=True, slots=True)
class Ask:
    """Put it before whoever wants the job run."""

    offered: CheckedQuote


@dataclass(frozen=True, slots=True)
class Agree:
    """Sign, fund, tell the market: :mod:`~marketplace.client.jobs.core.agreeing` says in what
    steps.
    """

    offered: CheckedQuote


@dataclass(frozen=True, slots=True)
class Decline:
    """The quote of *lease* is not wanted; the job ends, nothing was paid."""

    lease: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell whoever wants the job run what stands against it."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class ResumeWithFreshKey:
    """The market has no key left for another try: make one and name it."""


@dataclass(frozen=True, slots=True)
class LookAtLease:
    """Ask the market about a lease that counts no more."""

    lease: str


@dataclass(frozen=True, slots=True)
class Bury:
    """No last receipt of *lease* will come: it is over in the books. *lost*: with its provider."""

    lease: str
    lost: bool


@dataclass(frozen=True, slots=True)
class LookAtChannel:
    """Compare the channel with the chain."""

    session_vk: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after *ms*, or when the payer hears something."""

    ms: int


Effect = (
    TakeUpKept | Post | ForgetKeys | Look | Examine | Ask | Agree | Decline | Report
    | ResumeWithFreshKey | LookAtLease | Bury | LookAtChannel | Wait
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The job as it stands now, and what is to be done, in this order."""

    state: State
    effects: tuple[Effect, ...] = ()


# ---- the steps of an agreement, in their order ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allow:
    """Approve at most *more* lovelace for *lease* beyond what it was approved for."""

    session_vk: bytes
    lease: str
    more: int


@dataclass(frozen=True, slots=True)
class KeepBook:
    """A book for the channel: its lock is held from here on."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Sign the terms for at most *cap* lovelace."""

    cap: int


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """Open the channel with *amount* lovelace in it, or take up the open that stands already."""

    amount: int


@dataclass(frozen=True, slots=True)
class TopUp:
    """Put *amount* more lovelace into the kept channel."""

    amount: int


@dataclass(frozen=True, slots=True)
class KeepOpen:
    """From its next idle moment on the channel stays open for *ms*; 0: it ends then."""

    ms: int


@dataclass(frozen=True, slots=True)
class ExpectRoute:
    """The hop's book knows of the lease that it is to pay for; nothing is signed over it yet."""


@dataclass(frozen=True, slots=True)
class BeginRoute:
    """The market has both signatures: the hop signs for the lease from here on, 0 at first."""


@dataclass(frozen=True, slots=True)
class TellMarket:
    """Give the market the signature and the channel."""


Step = (
    Allow | KeepBook | Sign | OpenChannel | TopUp | KeepOpen | ExpectRoute | TellMarket | BeginRoute
)  # fmt: skip
