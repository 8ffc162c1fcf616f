"""Messages as frames on a socket, and back: CBOR ``[VERSION, kind, fields]``.

``kind`` is the message class's name (``wire``).  Signed things inside (terms, receipts, vouchers)
carry their own canonical bytes, so a frame itself needs no signature: the connection is
authenticated at hello (see ``conversation``).

Programs of two ages understand each other (decision 0082): a field with a default is optional, and
is not sent while it is at its default; unknown fields are skipped, and unknown numbered messages
are acknowledged and dropped, but for those whose name begins with ``!``: who does not know such a
one refuses. :data:`VERSION` counts breaks of these rules only.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final, cast, get_type_hints

import cbor2

from marketplace.domain import cbor
from marketplace.domain.canonical import want_bytes, want_int, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol.wire import Message
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.cluster_order import SignedOrder
from marketplace.domain.work.cluster_store import StorePass
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import SignedMesh
from marketplace.domain.work.mesh_relay import RelayPass

VERSION: Final = 1
MAX_FRAME: Final = cbor.FRAME.length
CRITICAL: Final = "!"
"""Begins the name of a field or kind that may not be skipped."""
SKIPS: Final = "skips"
"""The capability of whoever skips what it does not know. Optional fields are sent to nobody else:
earlier programs refuse them.
"""
ENDS: Final = "ends"
"""The capability of a market that answers an offered end, and of an adapter that offers some."""
ROUTE: Final = "route"
"""The capability of an adapter that serves leases over a router, and of a market that is one."""
CLUSTER: Final = "cluster"
"""The capability of an adapter that takes orders to a cluster's member, and of a market that passes
them on.
"""
FLOW: Final = "flow"
"""The capability of whoever says how much of a connection to a port it has passed on (``flow``)."""
SHELL: Final = "shell"
"""The capability of an adapter that has terminals in workloads, and of a market that asks for some.
"""
CAPABILITIES: Final[tuple[str, ...]] = (CLUSTER, ENDS, FLOW, ROUTE, SHELL, SKIPS)
"""Of this version, sorted: what its hello and its welcome state."""


class WireRefused(Refusal):
    """A frame of another version, of an unknown kind, or too large."""

    code = "WIRE_REFUSED"
    remedy = "install the version of tally that this market speaks"


class UnknownKind(WireRefused):
    """A kind that this version does not know and may skip."""


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


_SIGNED: Final = (
    Offer, JobSpec, SignedTerms, SignedReceipt, Voucher, End, Keep, SignedOrder, SignedMesh,
    RelayPass, StorePass,
)  # fmt: skip
"""What has a form of its own."""


def _plain(value: object) -> object:
    if isinstance(value, _SIGNED):
        return value.to_wire()
    return value


def _typed(hint: Any, value: Any, name: str) -> Any:
    """*value* as *hint* says; every branch refuses what it does not know."""
    if hint in _SIGNED:
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
