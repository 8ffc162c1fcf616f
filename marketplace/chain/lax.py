"""A settlement as settle itself reads it: no more than it looks at, however oddly that is written.

Settle looks at a step's constructor and at the arguments that the step needs; of a channel's datum at
what the step uses. Whoever follows a channel must be no stricter: a consumer writes its own Close and
top-ups, and may put whatever else a ledger takes beside them. What we serve or sign is read strictly,
by :mod:`marketplace.chain.datum`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from marketplace.chain import slices
from marketplace.domain import cbor
from marketplace.domain.channel import Claim, Close, Finish, Step, TopUp, bounty
from marketplace.domain.errors import Malformed

_CLAIM, _FINISH_CLAIMING, _FINISH = range(3)  # contracts/README.md
_GENERAL: Final = 102  # the tag of a constructor written as [number, fields]


@dataclass(frozen=True, slots=True)
class LaxStep:
    """A step's constructor and its arguments' bytes."""

    kind: int
    args: tuple[bytes, ...]

    def step(self) -> Step:
        """In the twin's words; :class:`Malformed` for one that settle would refuse as well."""
        match self.kind:
            case 0 | 1:
                return self._claim() if self.kind == _CLAIM else Finish(self._claim())
            case 2:
                return Finish()
            case 3:
                return TopUp(_integer(_at(self.args, 0)))
            case 4:
                return Close()
            case _:
                raise Malformed("no step of a channel")

    def _claim(self) -> Claim:
        cum, take_to = _integer(_at(self.args, 0)), _integer(_at(self.args, 1))
        return Claim(cum, take_to, _octets(_at(self.args, 2)))


def steps_of(redeemer: bytes) -> tuple[LaxStep, ...]:
    """The steps of settle's redeemer."""
    return tuple(LaxStep(*_constr(raw)) for raw in slices.items(redeemer))


def is_locked(address: bytes) -> bool:
    """Whether a script locks it, which is all that settle asks (CIP-19: the payment part's type)."""
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
    _, state = _constr(datum)
    consts = slices.items(_at(state, 0))
    payout = _octets(_at(consts, 2))
    if step.kind == _FINISH:
        return payout, 0
    taken = _integer(_at(step.args, 1)) - _integer(_at(state, 1))
    return payout, taken - bounty(taken, _integer(_at(consts, 5)))


def _constr(raw: bytes) -> tuple[int, tuple[bytes, ...]]:
    kind, tag, at = slices.head_of(raw, 0)
    if kind != 6 or tag is None:
        raise Malformed("no constructor")
    if tag == _GENERAL:
        pair = slices.items(raw, at)
        return _integer(_at(pair, 0)), tuple(slices.items(_at(pair, 1)))
    if 121 <= tag <= 127 or 1280 <= tag <= 1400:
        return tag - (121 if tag <= 127 else 1273), tuple(slices.items(raw, at))
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
    kind, tag, at = slices.head_of(raw, 0)
    if kind not in (0, 1, 2) and not (
        kind == 6 and tag in (2, 3) and slices.head_of(raw, at)[0] == 2
    ):
        raise Malformed("neither an integer nor bytes")
    return cbor.ledger(raw)
