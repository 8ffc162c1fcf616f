"""What a look at one channel leads to.  Pure: the chain's words come in, what is to be done comes
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.money.channel_stage import ChannelStage


@dataclass(frozen=True, slots=True)
class Picture:
    """A channel as the own books have it. *signed*: the greatest amount (lovelace) ever signed;
    *checked*: the chain has shown that it is the one of its terms; *asked*: its end was asked for;
    *settled*: its provider says that it finished it.
    """

    state: ChannelStage
    open_tx: str
    has_terms: bool
    checked: bool
    asked: bool
    settled: bool
    signed: int


# ---- what the chain says -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit:
    """The channel is that of its terms and can pay *capacity* lovelace."""

    capacity: int


@dataclass(frozen=True, slots=True)
class Unfit:
    """It is not that of its terms."""

    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """It stands, or has *ended* by that transaction; *claimed*: lovelace taken from it."""

    claimed: int
    ended: str | None = None


# ---- what is to be done --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckTerms:
    """Compare it with its terms: nothing is signed on it before."""


@dataclass(frozen=True, slots=True)
class LookAtIt:
    """See where it stands on the chain."""


@dataclass(frozen=True, slots=True)
class NoteCapacity:
    """It carries its leases."""

    capacity: int


@dataclass(frozen=True, slots=True)
class AskForEnd:
    """Nothing is signed on it: its end is asked for."""

    why: str


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """Its end was asked for and did not come: leave without its provider, when it is time."""


@dataclass(frozen=True, slots=True)
class NoteEnded:
    """It has ended by that transaction."""

    tx: str


@dataclass(frozen=True, slots=True)
class TakeUpOpen:
    """Find the open transaction that a crash kept out of the book."""


@dataclass(frozen=True, slots=True)
class AskMarket:
    """Learn the latest voucher that the market has of it."""


@dataclass(frozen=True, slots=True)
class LearnClaims:
    """Learn what the chain shows that this key signed."""


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """Read the voucher in the transaction that claimed from it last."""


@dataclass(frozen=True, slots=True)
class Halt:
    """More is claimed than any shown signature allows: sign nothing more, and ask for its end."""

    claimed: int


Look = CheckTerms | LookAtIt
Consequence = NoteCapacity | AskForEnd | LeaveAlone | NoteEnded
Learn = TakeUpOpen | AskMarket | LearnClaims


def due(it: Picture) -> tuple[Look, ...]:
    """What has to be asked of the chain now; a kept channel is ended by its provider, in time."""
    if it.state is ChannelStage.ENDED or not it.open_tx:
        return ()
    if it.checked and not (it.asked or it.settled):
        return ()
    return (LookAtIt(),) if it.checked else (CheckTerms(), LookAtIt())


def seen(it: Picture, said: Fit | Unfit | Found) -> tuple[Consequence, ...]:
    """What follows from the chain's answer."""
    match said:
        case Fit(capacity):
            return (NoteCapacity(capacity),)
        case Unfit(why):
            return () if it.asked else (AskForEnd(why),)
        case Found(ended=ended):
            return (LeaveAlone(),) if ended is None else (NoteEnded(ended),)


def begun_again(it: Picture) -> tuple[Learn, ...]:
    """What a restarted payer does first with a channel: learn what it may have forgotten."""
    first = (TakeUpOpen(),) if not it.open_tx and it.has_terms else ()
    return (*first, AskMarket(), LearnClaims())


def claimed(it: Picture, found: Found, *, read: bool) -> tuple[ReadClaim | NoteEnded | Halt, ...]:
    """What follows from what was claimed; *read*: the claim's own voucher was read already.

    A door's word on what was claimed is none of this key's signatures: claimed beyond all of them,
    the chain is false or the key is somebody else's too.
    """
    beyond = found.claimed > it.signed
    if beyond and not read:
        return (ReadClaim(),)
    over = found.ended is not None and it.state is not ChannelStage.ENDED
    ended = (NoteEnded(found.ended),) if over and found.ended is not None else ()
    return (*ended, Halt(found.claimed)) if beyond else ended
