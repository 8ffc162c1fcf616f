"""A settlement as settle itself reads it: no more than it looks at, however oddly that is written.

Settle looks at a step's constructor and at the arguments that the step needs; of a channel's datum
at what the step uses. Whoever follows a channel must be no stricter: a consumer writes its own
Close and top-ups, and may put whatever else a ledger takes beside them. What we serve or sign is
read strictly, by :mod:`marketplace.chain.encoding.datum`.

A redeemer is a hint here, and only where :mod:`marketplace.chain.channels.descent` finds two
readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from marketplace.chain.encoding import cursor
from marketplace.domain import cbor
from marketplace.domain.errors import Malformed
from marketplace.domain.money.channel import bounty

_CLAIM, _FINISH_CLAIMING, _FINISH = range(3)  # contracts/README.md
_GENERAL: Final = 102  # the tag of a constructor written as [number, fields]


@dataclass(frozen=True, slots=True)
class LaxStep:
    """A step's constructor and its arguments' bytes."""

    kind: int
    args: tuple[bytes, ...]

    @property
    def ends(self) -> bool:
        """Whether the channel is over after it."""
        return self.kind in (_FINISH_CLAIMING, _FINISH)

    @property
    def voucher(self) -> tuple[int, bytes] | None:
        """The cumulative amount and the signature that it shows; None for a step that shows
        none.
        """
        if self.kind not in (_CLAIM, _FINISH_CLAIMING):
            return None
        return _integer(_at(self.args, 0)), _octets(_at(self.args, 2))


@dataclass(frozen=True, slots=True)
class LaxState:
    """A channel's datum: its constructor, its constants' bytes, and what was claimed.

    A constant that is missing or of another type is :class:`Malformed` when it is asked for: a step
    that does not use it can be taken all the same.
    """

    stage: int
    consts: tuple[bytes, ...]
    claimed: int

    @property
    def payout(self) -> bytes:
        """By which the provider's address is named."""
        return _octets(_at(self.consts, 2))

    @property
    def consumer_vkh(self) -> bytes:
        """Whose the refund is."""
        return _octets(_at(self.consts, 3))

    @property
    def fee_bps(self) -> int:
        """The settler's part."""
        return _integer(_at(self.consts, 5))


def state_of(datum: bytes) -> LaxState:
    """A channel's datum as settle reads it."""
    stage, state = _constr(datum)
    consts = tuple(cursor.items(_at(state, 0)))
    return LaxState(stage, consts, _integer(_at(state, 1)))


def steps_of(redeemer: bytes) -> tuple[LaxStep, ...]:
    """The steps of settle's redeemer."""
    return tuple(LaxStep(*_constr(raw)) for raw in cursor.items(redeemer))


def is_locked(address: bytes) -> bool:
    """Whether a script locks it, which is all that settle asks (CIP-19: the payment part's
    type).
    """
    return bool(address) and address[0] >> 4 in (1, 3, 5, 7)


def output_index(datums: Sequence[bytes], steps: Sequence[LaxStep], mine: int) -> int:
    """Where the channel at *mine* put its output; *datums* of the script-locked inputs in order.

    Outputs are consumed by position: a run's payout when the run ends, one for each channel.
    """
    position, payee, owed = 0, b"", 0
    for index, step in enumerate(steps[: mine + 1]):
        in_run = step.kind in (_CLAIM, _FINISH_CLAIMING, _FINISH)
        payout, pay = _run_of(datums[index], step) if in_run else (b"", 0)
        if not in_run or payout != payee:
            position += owed != 0  # the run's payout
            payee, owed = payout, 0
        owed += pay
    return position + mine


def _run_of(datum: bytes, step: LaxStep) -> tuple[bytes, int]:
    """The payout that a channel's step owes, and how much."""
    state = state_of(datum)
    if step.kind == _FINISH:
        return state.payout, 0
    taken = _integer(_at(step.args, 1)) - state.claimed
    return state.payout, taken - bounty(taken, state.fee_bps)


def _constr(raw: bytes) -> tuple[int, tuple[bytes, ...]]:
    kind, tag, at = cursor.head_of(raw, 0)
    if kind != 6 or tag is None:
        raise Malformed("no constructor")
    if tag == _GENERAL:
        pair = cursor.items(raw, at)
        return _integer(_at(pair, 0)), tuple(cursor.items(_at(pair, 1)))
    if 121 <= tag <= 127 or 1280 <= tag <= 1400:
        return tag - (121 if tag <= 127 else 1273), tuple(cursor.items(raw, at))
    raise Malformed("no constructor")


def _at(parts: Sequence[bytes], index: int) -> bytes:
    if index >= len(parts):
        raise Malformed("too few fields")
    return parts[index]


def _integer(raw: bytes) -> int:
    value = _leaf(raw)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed("no integer")
    return value


def _octets(raw: bytes) -> bytes:
    value = _leaf(raw)
    if not isinstance(value, bytes):
        raise Malformed("no bytes")
    return value


def _leaf(raw: bytes) -> Any:
    """An integer or bytes; anything that holds others is not looked into."""
    kind, tag, at = cursor.head_of(raw, 0)
    if kind not in (0, 1, 2) and not (
        kind == 6 and tag in (2, 3) and cursor.head_of(raw, at)[0] == 2
    ):
        raise Malformed("neither an integer nor bytes")
    return cbor.ledger(raw)
