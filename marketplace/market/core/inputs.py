"""What can happen to a job and its lease: values, one for each.  Whoever makes one has looked up
what the decision needs to know; nothing here knows how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marketplace.market.base.records import Channel
from marketplace.market.base.routing import RouteMade, Sums
from marketplace.market.base.settings import Settings
from marketplace.market.state.match import NOTHING, Match, Spent

# ---- a job that looks for a place ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matched:
    """A place was found and is held for *lease*; *channel* is an open one that can be used again,
    or *made* the route that a router made for it.

    The quote stands until *expires_ms* and counts at *address* as well, where there is one.
    """

    match: Match
    lease: str
    expires_ms: int
    channel: bytes = b""
    address: str = ""
    made: RouteMade | None = None


@dataclass(frozen=True, slots=True)
class Unmatched:
    """There is no place now: *why* in words, *explain* as data.  *posting*: somebody waits for the
    answer.  *spent*: what it was looked for with.
    """

    why: str
    explain: Mapping[str, Any]
    posting: bool = False
    spent: Spent = NOTHING


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A place was found, and nothing is left of the job's budget to pay for it."""

    message: str


@dataclass(frozen=True, slots=True)
class KeyBrought:
    """The consumer brought the fresh session key that the job waits for."""

    session_vk: bytes


@dataclass(frozen=True, slots=True)
class RoomBegun:
    """Room is being made for this waiting job."""

    detail: Mapping[str, Any]


# ---- a gang --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllMatched:
    """A place was found, and is held, for every member of a gang, in their order."""

    members: tuple[Matched, ...]


@dataclass(frozen=True, slots=True)
class Looked:
    """Somebody looked how the members of a gang stand."""


# ---- both sides agree ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """The adapter signed *terms*."""

    terms: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Declined:
    """The adapter does not want the lease, or not any more; *owed* by its last receipt."""

    code: str
    message: str
    owed: int = 0


@dataclass(frozen=True, slots=True)
class Signed:
    """The consumer signed.  *waits*: its account starts one lease after the other; *payout_address*
    is where the channel pays the provider; *secrets* are sealed for the adapter, and *open_tx*, if
    there is one, is for it too: it is relayed as it came.
    """

    session_signature: bytes
    channel_tx: str
    secrets: Mapping[str, bytes]
    payout_address: str = ""
    waits: bool = False
    open_tx: bytes = b""


@dataclass(frozen=True, slots=True)
class TurnCame:
    """A signed lease that waited for its account's turn may be started."""


@dataclass(frozen=True, slots=True)
class TurnMissed:
    """A signed lease waited for its account's turn for too long."""


# ---- a lease that goes on ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RenewalAsked:
    """The consumer wants it to run for *duration_ms* more, for at most *budget* lovelace more; to
    be agreed to until *expires_ms*.
    """

    duration_ms: int
    budget: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class RenewalSigned:
    """The consumer signed the renewed terms."""

    session_signature: bytes


# ---- the workload --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The workload runs."""


@dataclass(frozen=True, slots=True)
class Paused:
    """No voucher, or a fault: nothing is billed.  *shown*: the job's story has room for it."""

    message: str
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Resumed:
    """The workload goes on."""

    shown: bool = True


@dataclass(frozen=True, slots=True)
class StageSeen:
    """CHANNEL_SEEN, PULLING, STARTING, STOPPING: shown, nothing more."""

    stage: str
    detail: Mapping[str, Any]
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Exited:
    """The workload is gone, in the adapter's *word*; *owed* by its last receipt.

    *unpaid*: a receipt of it was taken by the market itself and not answered in time.
    """

    word: str
    message: str
    exit_code: int | None
    owed: int
    unpaid: bool = False


@dataclass(frozen=True, slots=True)
class LateReceipt:
    """What a provider delivered before it was lost, and could tell only when it came back."""

    owed: int


# ---- the provider --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The adapter is back, and *held* the lease or did not; *owed* by its last receipt."""

    held: bool
    owed: int = 0


@dataclass(frozen=True, slots=True)
class ProviderLost:
    """The provider is gone for longer than the resume window."""

    owed: int


# ---- whoever may end it --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """The consumer, a limit or the operator wants it to end."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoticeGiven:
    """A job of higher priority is to have its place at *deadline_ms*."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class NoticeWithdrawn:
    """It keeps its place after all."""


@dataclass(frozen=True, slots=True)
class NoticeOver:
    """The notice is over: what still runs is asked to end."""


# ---- time ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passed:
    """Time went by; *start_ttl_ms* is what its provider has to start it in."""

    rules: Settings
    start_ttl_ms: int


@dataclass(frozen=True, slots=True)
class Accounted:
    """What a lease that is over came to, and over what its channel's greatest voucher is.

    *lease_owed* and *channel_owed* by the last receipt; *answered* is None where there is no
    voucher. Of a routed lease there is no channel and no voucher: *routed* is its router's books.
    """

    rules: Settings
    lease_owed: int
    channel_owed: int
    answered: int | None
    channel: Channel | None
    routed: Sums | None = None


Input = (
    Matched | Unmatched | Exhausted | KeyBrought | RoomBegun | Accepted | Declined | Signed
    | TurnCame | TurnMissed | RenewalAsked | RenewalSigned | Started | Paused | Resumed | StageSeen
    | Exited | LateReceipt | Reconnected | ProviderLost | Stop | NoticeGiven | NoticeWithdrawn
    | NoticeOver | Passed | Accounted
)  # fmt: skip
"""About a job and its lease."""
GangInput = AllMatched | Unmatched | Stop | Looked
"""About a gang; what happens to one member is about its job."""
