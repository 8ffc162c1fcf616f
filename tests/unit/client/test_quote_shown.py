"""What a quote says of the way that does not pay is the market's word alone: bad words are refused,
and none of them is taken for more than it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marketplace.client.jobs.core.quotes import Quote
from marketplace.client.payer import hop_books, journal
from marketplace.client.payer.loaded import ChannelFacts
from marketplace.domain.errors import Malformed
from marketplace.domain.money.chain_fees import RouteFees
from marketplace.domain.money.channel_stage import ChannelStage
from tests.unit.support.adapter import ADAPTER, gpu_job, offer, terms_for

MARKET = "http://market.example:8000"
TOLD: dict[str, Any] = {"carried": True, "route_bps": 50, "fee": 7, "hop_fee": 25_000}


def read(**more: object) -> Quote:
    body = terms_for(offer(), gpu_job()).encode()
    signed = {"terms": body.hex(), "adapter_signature": ADAPTER.sign(body).hex()}
    return Quote.read({**signed, **more})


def test_the_other_way_is_read_where_it_is_told() -> None:
    assert read(routed=TOLD).routed == RouteFees(True, 50, 7, 25_000)
    assert read(direct={"consumer": 176_149}).direct_open == 176_149
    for nothing in ({}, {"routed": None, "direct": None}):
        assert (read(**nothing).routed, read(**nothing).direct_open) == (None, 0)


@pytest.mark.parametrize(
    "bad",
    [
        {"routed": "cheap"}, {"routed": [1]}, {"routed": {**TOLD, "fee": "7"}},
        {"routed": {**TOLD, "hop_fee": -1}}, {"direct": 1}, {"direct": {"consumer": -1}},
        {"offer": "x"},
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        read(**bad)


@pytest.mark.parametrize(
    ("change", "pays"),
    [
        ({}, True),
        ({"market": MARKET + "/"}, True),
        ({"market": "http://other.example"}, False),
        ({"router": ()}, False),
        ({"open_tx": ""}, False),
        ({"state": ChannelStage.CLOSING}, False),
    ],
)
def test_a_hop_is_one_that_pays_at_this_market(
    tmp_path: Path, change: dict[str, Any], pays: bool
) -> None:
    """By the book on disk, as a command that only reads finds it."""
    key = bytes(range(32))
    facts: dict[str, Any] = {
        "session_vk": key, "market": MARKET, "magic": 42, "provider": "ab" * 32, "asset": "",
        "amount": 5, "open_tx": "cd" * 32, "state": ChannelStage.OPEN, "router": ("aa", "bb", "cc"),
    }  # fmt: skip
    row = journal.channel_row(ChannelFacts(**{**facts, **change}))
    (tmp_path / f"{key.hex()}.jsonl").write_text(json.dumps(row) + "\n")
    assert hop_books.has_hop(tmp_path, MARKET) is pays
