"""What is known of one job at its consumer: its stage, the own books, and the question that stands.

The books are the truth, and are read anew for every decision; a process that starts again begins at
:func:`restored` and finds the rest in them and in the market's view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marketplace.client.jobs.core.quotes import CheckedQuote, Quote
from marketplace.client.jobs.core.stage import Stage


@dataclass(frozen=True, slots=True)
class OwnLease:
    """A lease of the job whose terms this purse signed. Money in lovelace; *cap*: the most that is
    approved for it, of its *ceiling*; *over*: no further receipt of it will be answered.
    """

    lease: str
    ceiling: int
    cap: int
    approved: int
    over: bool


@dataclass(frozen=True, slots=True)
class OwnChannel:
    """A channel that this process signs for and the job ran on, or was to; *leases*: the job's."""

    session_vk: bytes
    open_tx: str
    ended: bool
    end_asked: bool
    leases: tuple[OwnLease, ...]

    @property
    def home(self) -> bool:
        """Nothing more of the job is to come from it: it has ended, or is kept for others."""
        return self.ended or (not self.end_asked and all(one.over for one in self.leases))


@dataclass(frozen=True, slots=True)
class State:
    """One job at its consumer.

    *asks*: somebody here answers its first quote; later ones are answered by the job's own rule.
    *member*: of a gang, which is ended as a whole and never by declining one quote. *quote* is the
    one that is being answered, *offered* what its check said; *refused* are the leases whose quotes
    were declined.
    """

    stage: Stage = Stage.UNPOSTED
    channels: tuple[OwnChannel, ...] = ()
    asks: bool = False
    member: bool = False
    quote: Quote | None = None
    offered: CheckedQuote | None = None
    refused: frozenset[str] = frozenset()

    def leases(self) -> Iterator[OwnLease]:
        """Every lease of the job in the own books."""
        return (lease for channel in self.channels for lease in channel.leases)


def restored(channels: Sequence[OwnChannel] = ()) -> State:
    """A job that was posted in another life of this process, or by another one."""
    return State(Stage.WAITING, tuple(channels))
