"""What adapters, payers and the market say to each other: a tagged union, open to what comes later.

A frame on a socket is CBOR ``[VERSION, kind, fields]``; ``kind`` is the class's
name.  Signed things inside (terms, receipts, vouchers) carry their own canonical bytes, so a frame
itself needs no signature: the connection is authenticated at hello (see ``conversation``).

Programs of two ages understand each other (decision 0082): a field with a default is optional, and
is not sent while it is at its default; unknown fields are skipped, and unknown numbered messages
are acknowledged and dropped, but for those whose name begins with ``!``: who does not know such a
one refuses. :data:`VERSION` counts breaks of these rules only. What is signed, paid or decided upon
is in fields without a default.

Over 400 lines: every message there is, in one list.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Final, cast, get_type_hints

import cbor2

from marketplace.domain import cbor
from marketplace.domain.canonical import want_bytes, want_int, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec

VERSION: Final = 1
MAX_FRAME: Final = cbor.FRAME.length
CRITICAL: Final = "!"
"""Begins the name of a field or kind that may not be skipped."""
SKIPS: Final = "skips"
"""The capability of whoever skips what it does not know. Optional fields are sent to nobody else:
earlier programs refuse them.
"""
CAPABILITIES: Final[tuple[str, ...]] = (SKIPS,)
"""Of this version, sorted: what its hello and its welcome state."""


class WireRefused(Refusal):
    """A frame of another version, of an unknown kind, or too large."""

    code = "WIRE_REFUSED"
    remedy = "install the version of tally that this market speaks"


class UnknownKind(WireRefused):
    """A kind that this version does not know and may skip."""


@dataclass(frozen=True)
class Message:
    """Base of everything that is sent."""

    kinds: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        Message.kinds[cls.__name__] = cls


# ---- the connection itself (see conversation) -------------------------------------------------


@dataclass(frozen=True)
class Hello(Message):
    """First frame of a client: who it is (*key*, Ed25519), in which *role*, what it has received,
    and the *market*'s origin as it dialled it (``site.origin_of``).

    *session* names the client's process run: another one starts both sides' numbering anew;
    *capabilities*: what it can do beyond the first version, sorted.
    """

    role: str
    key: bytes
    session: bytes
    received: int
    magic: int
    software: str
    market: str
    capabilities: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Challenge(Message):
    """The market's answer: sign this nonce."""

    nonce: bytes


@dataclass(frozen=True)
class Proof(Message):
    """Signature over ``conversation.hello_message(nonce, hello)``."""

    signature: bytes


@dataclass(frozen=True)
class Welcome(Message):
    """Authenticated; the market has received up to *received* of this session; its clock is
    *now_ms*. Whoever stated *capabilities* is told the market's: both use what both have.
    """

    received: int
    session: bytes
    now_ms: int
    capabilities: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Rejected(Message):
    """The connection or one message is refused; nothing was changed by it."""

    code: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Data(Message):
    """A numbered payload: delivered once and in order, across reconnects of the same session."""

    seq: int
    payload: bytes


@dataclass(frozen=True)
class Ack(Message):
    """Everything up to *seq* has been handled."""

    seq: int


# ---- adapter → market --------------------------------------------------------------------------


@dataclass(frozen=True)
class OfferPosted(Message):
    """The adapter's offer as it is now (also after a change of health, price or schedule)."""

    offer: Offer
    draining: bool


@dataclass(frozen=True)
class LeasesHeld(Message):
    """After every welcome: the leases that the adapter still holds. The market ends all others."""

    leases: list[str]


@dataclass(frozen=True)
class LeaseAccepted(Message):
    """The adapter signed the terms that were proposed."""

    lease: str
    terms: SignedTerms


@dataclass(frozen=True)
class LeaseDeclined(Message):
    """It did not, and why; *remedy* says what the consumer can do, where it can do something."""

    lease: str
    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class LeaseProgress(Message):
    """A step of a lease at the provider.

    *stage*: CHANNEL_SEEN, PULLING, STARTING, STARTED, PAUSED, RESUMED, STOPPING, FINISHED,
    SETTLED.  *detail* holds plain facts: reason (``EndReason``), code, message, exit_code,
    done/total of a pull, tx of a settlement.
    """

    lease: str
    stage: str
    at_ms: int
    detail: dict[str, Any]


@dataclass(frozen=True)
class LogChunk(Message):
    """Bytes of a workload's output from *offset*; *stream* is stdout or stderr."""

    lease: str
    offset: int
    stream: str
    data: bytes


@dataclass(frozen=True)
class Telemetry(Message):
    """Evidence for charts, about once a second: GPU and CPU use, memory, energy. Never the
    price.
    """

    lease: str
    at_ms: int
    values: dict[str, int]


@dataclass(frozen=True)
class OutputReady(Message):
    """One output was archived: content-addressed; fetched by ``BlobWanted``/``BlobPart``."""

    lease: str
    path: str
    sha256: str
    size: int


@dataclass(frozen=True)
class BlobWanted(Message):
    """Please send part of a blob (either side may ask the other)."""

    lease: str
    sha256: str
    offset: int
    length: int


@dataclass(frozen=True)
class BlobPart(Message):
    """The part that was asked for; empty *data* at the end; *total* in bytes."""

    lease: str
    sha256: str
    offset: int
    total: int
    data: bytes


# ---- market → adapter --------------------------------------------------------------------------


@dataclass(frozen=True)
class LeaseProposed(Message):
    """Will you run *job* under *terms* (canonical bytes, unsigned)?"""

    lease: str
    job: JobSpec
    terms: bytes


@dataclass(frozen=True)
class LeaseSigned(Message):
    """Both signed. *channel_tx* is the open transaction (hex id), *secrets* sealed to the
    adapter.
    """

    lease: str
    terms: SignedTerms
    channel_tx: str
    secrets: dict[str, bytes]


@dataclass(frozen=True)
class LeaseCancelled(Message):
    """The proposal or lease is over for the market: stop without waiting; what is owed stays
    owed.
    """

    lease: str
    reason: str


# ---- adapter ↔ market ↔ payer --------------------------------------------------------------------


@dataclass(frozen=True)
class ReceiptSent(Message):
    """A tick, from the adapter."""

    lease: str
    receipt: SignedReceipt


@dataclass(frozen=True)
class VoucherSent(Message):
    """A tick's answer, from the payer. *lease* is the one whose receipt it answers."""

    lease: str
    voucher: Voucher


@dataclass(frozen=True)
class EndSent(Message):
    """The consumer wants the channel ended now: stop its leases, claim, finish."""

    end: End


@dataclass(frozen=True)
class StopAsked(Message):
    """The consumer wants this one lease stopped; the channel stays open for others."""

    lease: str
    reason: str


@dataclass(frozen=True)
class ExecAsked(Message):
    """Run a command inside the workload."""

    lease: str
    call: str
    command: list[str]


@dataclass(frozen=True)
class ExecDone(Message):
    """What it printed, bounded, and its exit code."""

    lease: str
    call: str
    exit_code: int
    output: bytes


@dataclass(frozen=True)
class StreamOpened(Message):
    """A connection to a port of the workload, through the market."""

    lease: str
    stream_id: str
    port: int


@dataclass(frozen=True)
class StreamData(Message):
    """Bytes of such a connection, either way."""

    lease: str
    stream_id: str
    data: bytes


@dataclass(frozen=True)
class StreamClosed(Message):
    """It is closed; *error* says why, empty for an ordinary end."""

    lease: str
    stream_id: str
    error: str


# ---- payer ↔ market ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subscribe(Message):
    """The payer speaks for this channel: *signature* by its session key over the hello's nonce."""

    session_vk: bytes
    signature: bytes


@dataclass(frozen=True)
class Subscribed(Message):
    """All later receipts of the channel come here, beginning with the unanswered ones."""

    session_vk: bytes


def to_bytes(message: Message, *, optional: bool = True) -> bytes:
    """One frame; without its *optional* fields for a peer that would refuse them."""
    body: dict[str, object] = {}
    for name, default in _defaults(type(message)).items():
        value = getattr(message, name)
        if default is MISSING or (optional and value != default):
            body[name] = _plain(value)
    return cbor2.dumps([VERSION, type(message).__name__, body])


@cache
def _defaults(kind: type[Message]) -> dict[str, object]:
    """Every field and what it is where it is absent; ``MISSING`` for one that must be there."""
    made = {f.name: f.default_factory for f in fields(kind)}
    return {
        f.name: f.default if made[f.name] is MISSING else cast(Any, made[f.name])()
        for f in fields(kind)
    }


@cache
def has_optional(kind: type[Message]) -> bool:
    """Whether some peers get less of it than others."""
    return any(default is not MISSING for default in _defaults(kind).values())


def from_bytes(data: bytes, limits: cbor.Limits = cbor.FRAME) -> Message:
    """The message of one frame; :class:`WireRefused`, :class:`UnknownKind` or :class:`Malformed`.
    *limits*: what its sender may send by now; they hold for what is skipped as well."""
    if len(data) > limits.length:
        raise WireRefused(f"a frame has at most {limits.length} bytes here")
    frame = cbor.strict(data, limits)
    if not isinstance(frame, list) or len(cast(list[Any], frame)) != 3:
        raise Malformed("a frame is [version, kind, fields]")
    version, kind, body = cast(list[Any], frame)
    if version != VERSION:
        raise WireRefused(f"version {str(version)[:60]} is not {VERSION}")
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise Malformed("a frame's kind is text, and its fields are a map")
    cls = Message.kinds.get(kind)
    if cls is None:
        refusal = WireRefused if kind.startswith(CRITICAL) else UnknownKind
        raise refusal(f"unknown kind {kind[:60]!r}")
    return _message(cls, cast(dict[str, Any], body))


def _message(cls: type[Message], values: dict[str, Any]) -> Message:
    hints, defaults = _hints(cls), _defaults(cls)
    if values.keys() != hints.keys():
        critical = [key for key in values if key.startswith(CRITICAL)]
        if critical:
            raise WireRefused(f"{cls.__name__} holds {critical[0][:60]!r}, which is not known here")
        if any(d is MISSING and name not in values for name, d in defaults.items()):
            needed = sorted(name for name, d in defaults.items() if d is MISSING)
            raise Malformed(f"{cls.__name__} has the fields {', '.join(needed)}")
    return cls(
        **{name: _typed(hint, values[name], name) for name, hint in hints.items() if name in values}
    )


@cache
def _hints(kind: type[Message]) -> dict[str, Any]:
    """What each field holds; evaluated once, as that costs more than reading a frame."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _plain(value: object) -> object:
    if isinstance(value, (Offer, JobSpec, SignedTerms, SignedReceipt, Voucher, End)):
        return value.to_wire()
    return value


def _typed(hint: Any, value: Any, name: str) -> Any:
    """*value* as *hint* says; every branch refuses what it does not know."""
    if hint in (Offer, JobSpec, SignedTerms, SignedReceipt, Voucher, End):
        return hint.from_wire(value)
    if hint is int:
        return want_int(value, name, -(2**63))
    if hint is str:
        return want_text(value, name, 65_536)
    if hint is bytes:
        return want_bytes(value, None, name)
    if hint is bool and isinstance(value, bool):
        return value
    if hint == list[str] and isinstance(value, list):
        return [want_text(x, name, 65_536) for x in cast(list[object], value)]
    if hint == dict[str, bytes] and isinstance(value, dict):
        return {
            want_text(k, name): want_bytes(v, None, name) for k, v in _items(cast(object, value))
        }
    if hint == dict[str, int] and isinstance(value, dict):
        return {
            want_text(k, name): want_int(v, name, -(2**63)) for k, v in _items(cast(object, value))
        }
    if hint == dict[str, Any] and isinstance(value, dict):
        return {want_text(k, name): _scalar(v, name) for k, v in _items(cast(object, value))}
    raise Malformed(f"{name} is not {hint}")


def _items(value: object) -> list[tuple[object, object]]:
    return list(cast(dict[object, object], value).items())


def _scalar(value: object, name: str) -> object:
    if isinstance(value, (str, int, bytes, bool)) or value is None:
        return value
    raise Malformed(f"{name} holds something that is not text, a number or bytes")
