"""A price source is read in one way, and what it says wrongly is not taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marketplace.client.net.price_source import check
from marketplace.domain.errors import Malformed
from marketplace.market.state.exchange import OLD_MS, Exchange, read, worth

NOW = 1_800_000_000_000


def said(**more: Any) -> bytes:
    fields = {"ada_usd": "0.4512", "ada_eur": "0.4163", "at_ms": NOW - 1000}
    return json.dumps({k: v for k, v in {**fields, **more}.items() if v is not None}).encode()


def test_what_it_says_is_kept_in_millionths() -> None:
    assert read(said(), NOW) == Exchange(451_200, 416_300, NOW - 1000)
    assert read(said(ada_eur=None), NOW).eur_micro == 0
    assert worth(4_680_000, 451_200) == 2_111_616
    assert read(said(), NOW).fresh(NOW + OLD_MS - 1001)
    assert not read(said(), NOW).fresh(NOW + OLD_MS + 1000)


@pytest.mark.parametrize(
    "raw",
    [
        said(ada_usd=0.45), said(ada_usd="-1"), said(ada_usd="1e9"), said(ada_usd="0"),
        said(ada_usd="9999"), said(ada_usd="NaN"), said(ada_usd=None, ada_eur=None),
        said(at_ms=NOW + 3_600_000), said(at_ms=NOW - OLD_MS - 1), said(at_ms=True),
        said(at_ms="now"), b"", b"[]", b"null", b"{" * 2000, said(more="x" * 5000),
    ],
)  # fmt: skip
def test_a_source_that_lies_is_not_believed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read(raw, NOW)


def test_a_source_is_asked_over_https_or_on_this_machine() -> None:
    assert check("https://prices.example/ada") and check("http://127.0.0.1:9/x")
    for url in ("http://prices.example/ada", "file:///etc/passwd", "ftp://x", ""):
        with pytest.raises(Malformed):
            check(url)
