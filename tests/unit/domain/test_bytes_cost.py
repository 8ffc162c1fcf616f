"""What a byte of a stranger's costs: the worst that a search finds, beside the mean of what is
valid.

Counted in steps of ours (lines run), which no machine's noise touches; what might happen inside of
C (hashes, regular expressions, big numbers) is timed at the bombs, in ``test_strangers_bytes``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from marketplace.chain.encoding.plutus import head
from marketplace.domain.errors import Refusal
from tests.unit.support.bytes import bombs
from tests.unit.support.fuzz import DOORS, HEADS, corpus, mangled

MOST = 10  # times the mean
SMALL = 200  # bytes; below it a call's own cost is most of what is seen


def _steps(door: Callable[[bytes], object], raw: bytes) -> int:
    """Lines that are run for *raw*."""
    count = 0

    def seen(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        with suppress(Refusal):
            door(raw)
    finally:
        sys.settrace(before)
    return count


def _candidates(kind: str, count: int, size: int) -> list[bytes]:
    """Every head and *count* short mixtures of heads, again and again in lists and maps; the bombs;
    and valid ones that are mangled."""
    chance = random.Random(f"cost/{kind}")
    units = [*HEADS, b"\x81\x00", b"\xa1\x60\x00", b"\x61a", b"\x41a", b"\x82\x60\xf6"]
    units += [b"".join(chance.choices(units, k=chance.randrange(1, 5))) for _ in range(count)]
    found = [raw for raw in bombs(size).values() if len(raw) >= SMALL]
    for unit in units:
        often = size // len(unit)
        found += [head(4, often) + unit * often, b"\x9f" + unit * often + b"\xff"]
        found.append(b"\x83\x01\x63Ack\xa1\x63seq" + head(4, often) + unit * often)
    found += [raw for raw in (mangled(chance, kind) for _ in range(count)) if len(raw) >= SMALL]
    return found


def _worst(
    kind: str, cost: Callable[[bytes], int], count: int, size: int
) -> tuple[float, bytes, float]:
    """(cost of a byte of the worst, which it is, mean cost of a byte of what is valid)."""
    valid = corpus(kind)
    mean = sum(map(cost, valid)) / sum(map(len, valid))
    worst = max(_candidates(kind, count, size), key=lambda raw: cost(raw) / len(raw))
    return cost(worst) / len(worst), worst, mean


@pytest.mark.parametrize("kind", list(DOORS))
def test_no_byte_takes_more_steps_than_ten_of_the_mean(kind: str) -> None:
    worst, raw, mean = _worst(kind, lambda raw: _steps(DOORS[kind], raw), 4, 400)
    assert worst < MOST * mean, (worst / mean, raw[:40].hex())
