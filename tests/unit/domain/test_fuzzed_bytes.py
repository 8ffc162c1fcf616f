"""A million strangers' inputs for each decoder: read, or refused with a code, and nothing else.

A million with ``make nightly``, fifty thousand with ``make prove``, some thousands with ``make
test``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from marketplace.domain.errors import Refusal
from tests.unit.support.fuzz import DOORS, WALLET_DOORS, corpus, inputs


@pytest.mark.parametrize("kind", list(DOORS))
def test_what_is_mangled_here_is_read_as_it_was(kind: str) -> None:
    for raw in corpus(kind):
        doors = WALLET_DOORS if kind == "wallet" else (DOORS[kind],)
        assert any(_takes(door, raw) for door in doors), raw.hex()


def _takes(door: Callable[[bytes], object], raw: bytes) -> bool:
    try:
        door(raw)
    except Refusal:
        return False
    return True


@pytest.mark.parametrize(
    "count",
    [
        3_000,
        pytest.param(50_000, marks=pytest.mark.prove),
        pytest.param(1_000_000, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("kind", list(DOORS))
def test_nothing_but_a_refusal_comes_out(kind: str, count: int) -> None:
    enter, read = DOORS[kind], 0
    for raw in inputs(count, kind, count):
        try:
            enter(raw)
            read += 1
        except Refusal:
            continue
        except BaseException as error:
            raise AssertionError(f"{raw.hex()}: {type(error).__name__} {error}") from error
    assert read, "no input was read: what is tried does not reach the doors' inside"
