"""What can happen to the adapter, and what it may then do: values, never actions."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter.core.state import State
from adapter.core.workload import Handle, Status
from marketplace.domain.metering.reading import Reading
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.protocol import wire
from marketplace.domain.work import mesh
from marketplace.domain.work.lease import EndReason

# ---- what happens ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of the market."""

    message: wire.Message


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The market welcomed us; *orders*: it passes on what members of clusters are ordered."""

    orders: bool = False


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection is gone."""


@dataclass(frozen=True, slots=True)
class Sighted:
    """A channel as the chain shows it now; *limit* is what may be relied upon at its depth."""

    session_vk: bytes
    stage: ChannelStage
    claimed: int
    capacity: int
    limit: int
    expire_at_wall_ms: int = 0


@dataclass(frozen=True, slots=True)
class Unread:
    """The chain answers, but what it shows of this channel cannot be read."""

    session_vk: bytes
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Expected:
    """The transaction that opens the channel waits for its block, as our own chain door shows."""

    session_vk: bytes


@dataclass(frozen=True, slots=True)
class OpenTaken:
    """The handed open transaction passed every check and our own door took it. *capacity*: the most
    that the channel will be able to pay; *marks*: see ``state.Young``.
    """

    session_vk: bytes
    capacity: int
    marks: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class OpenNotTaken:
    """It did not: its lease begins once a block holds the channel."""

    session_vk: bytes
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class OpenVoid:
    """An open on which was served can be in no block any more."""

    session_vk: bytes
    message: str


@dataclass(frozen=True, slots=True)
class ChannelUnfit:
    """The channel is not what the terms say."""

    session_vk: bytes
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Settled:
    """A transaction that ends the channel is on chain; *claimed*: all that it ever paid, where it
    is known; *final*: it lies so deep that no rollback is expected.
    """

    session_vk: bytes
    tx: str
    claimed: int | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class Purse:
    """Whether the fee key can pay for a Finish: *short* says what is missing, empty if nothing."""

    short: str = ""


@dataclass(frozen=True, slots=True)
class Preparing:
    """The image is being fetched: *done* of *total* bytes; or it is there and *starting*."""

    lease: str
    done: int = 0
    total: int = 0
    starting: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """The workload runs (also: it was found again after a restart of the adapter)."""

    lease: str
    handle: Handle


@dataclass(frozen=True, slots=True)
class PortsOpened:
    """Who connects to the host's own ports of this lease reaches its workload."""

    lease: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The workload could not be started."""

    lease: str
    reason: EndReason
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Measured:
    """New readings of a lease's meters; *tick* is true when a receipt is due."""

    lease: str
    readings: tuple[Reading, ...]
    tick: bool


@dataclass(frozen=True, slots=True)
class Exited:
    """The workload is over; *readings* are its last."""

    lease: str
    status: Status
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True)
class Collected:
    """Outputs are archived (or there are none)."""

    lease: str
    path: str = ""
    sha256: str = ""
    size: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """No trace of the workload is left on the host."""

    lease: str


@dataclass(frozen=True, slots=True)
class Logged:
    """The workload's output was sent up to *offset*."""

    lease: str
    offset: int


@dataclass(frozen=True, slots=True)
class MeshUp:
    """The mesh of a cluster's member is there: its host made WireGuard *key* for it, and hears
    others at *candidates*. Also: it was found again after a restart of the adapter, or is reached
    elsewhere now.
    """

    lease: str
    key: bytes
    candidates: tuple[mesh.Candidate, ...]


@dataclass(frozen=True, slots=True)
class MeshHeard:
    """Whom the member hears while its mesh has the peers of order *version*, as :class:`Meet` gave
    them: after each of those at once, whenever it changes, and every 10 s.
    """

    lease: str
    version: int
    heard: tuple[mesh.Heard, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """The owner wants no new leases, or wants them again."""

    on: bool


@dataclass(frozen=True, slots=True)
class Passed:
    """Time went by."""


Event = (
    Heard | LinkUp | LinkDown | Sighted | Unread | Expected | OpenTaken | OpenNotTaken | OpenVoid
    | ChannelUnfit | Settled | Preparing | Started | Failed | Measured | Exited | Collected
    | Removed | Logged | Drain | Passed | Purse | PortsOpened | MeshUp | MeshHeard
)  # fmt: skip

# ---- what is done then -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Tell the market.  A *durable* message survives the adapter: it waits in the journal until
    the market has acknowledged it."""

    message: wire.Message
    durable: bool = True


@dataclass(frozen=True, slots=True)
class Drive:
    """Bring this lease's workload to where its ``wish`` says."""

    lease: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Keep an eye on this channel."""

    session_vk: bytes


@dataclass(frozen=True, slots=True)
class Examine:
    """Judge the open transaction *tx* that was handed over for this channel, and send it."""

    session_vk: bytes
    tx: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settle:
    """Take what the greatest voucher gives and finish the channel."""

    session_vk: bytes


@dataclass(frozen=True, slots=True)
class Meet:
    """The mesh of this lease's member has exactly these *peers* from now on, itself never among
    them; *version*: of the order that says so, 0 before the first. Comes after each order, each
    :class:`MeshUp`, and with the workload's start, once the mesh is up; the same ones may come
    again.
    """

    lease: str
    version: int
    peers: tuple[mesh.MeshPeer, ...] = ()


@dataclass(frozen=True, slots=True)
class Alarm:
    """The owner must know: a stable code and one line."""

    code: str
    message: str


Effect = Send | Drive | Watch | Examine | Settle | Meet | Alarm


@dataclass(frozen=True, slots=True)
class Outcome:
    """The next state and what to do.  *ticks* are new receipts for the journal; a *durable*
    outcome is on disk before any effect is performed."""

    state: State
    effects: tuple[Effect, ...] = ()
    ticks: tuple[SignedReceipt, ...] = ()
    durable: bool = True
