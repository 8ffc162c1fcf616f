"""What a host holds, as it is told: digests' first bytes, sorted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.errors import Malformed
from marketplace.domain.supply.stock import MOST_HELD, PRINT, digest_of, pack, print_of, unpack

DIGEST = "sha256:" + "0123456789abcdef" * 4


@given(st.sets(st.binary(min_size=PRINT, max_size=PRINT), max_size=50))
def test_what_is_packed_is_read_again(prints: set[bytes]) -> None:
    assert unpack(pack(prints)) == prints


@pytest.mark.parametrize(
    "held",
    [b"\x00", bytes(7), bytes(16), b"\x01" * 8 + b"\x00" * 8, bytes(PRINT * (MOST_HELD + 1))],
    ids=["a byte", "a part", "twice", "unsorted", "too many"],
)
def test_what_is_not_so_is_refused(held: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(held)


def test_prints_are_of_digests() -> None:
    assert print_of(DIGEST).hex() == "0123456789abcdef"
    for wrong in ("", "sha256:12", DIGEST.upper(), "python:3.11"):
        with pytest.raises(Malformed):
            print_of(wrong)


def test_a_job_names_a_digest_or_none() -> None:
    assert digest_of(f"docker.io/library/python@{DIGEST}") == DIGEST == digest_of(DIGEST)
    assert digest_of("") == digest_of("python:3.11") == ""
