"""The console finds a channel's next output where settle put it, as everybody else does: by
position.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from marketplace.chain.encoding.address import lenient_bytes, to_text
from tests.unit.support.landings import GOLDEN, page_refuses, page_says, python_says

Change = Callable[[list[Any], int], Any]
SAID: dict[str, Any] = json.loads(GOLDEN.read_text())
ROWS = [{**row, "answer": SAID["answers"][row["tx"]]} for row in SAID["rows"]]


def _places(row: dict[str, Any]) -> list[tuple[int, bool]]:
    return [(position, ended) for position, ended in row["places"]]


def test_the_page_reads_every_transaction_as_our_reader_does() -> None:
    for row, places in zip(ROWS, page_says(ROWS), strict=True):
        assert places == _places(row), (row["name"], row["tx"], row["mine"])


def test_our_reader_says_what_is_written_there_and_the_truth_is_in_it() -> None:
    for row, places in zip(ROWS, python_says(ROWS), strict=True):
        assert places == _places(row), (row["name"], row["tx"], row["mine"])
        assert tuple(row["truth"]) in _places(row)


def test_the_transactions_are_of_every_kind() -> None:
    counts = Counter(len(row["places"]) for row in ROWS)
    assert counts[1] > 100 and counts[2] >= 2, counts
    names = Counter(row["name"] for row in ROWS)
    assert len(names) == 6, names
    assert {row["truth"][1] for row in ROWS} == {True, False}


def test_what_is_only_pledged_or_referred_to_is_no_part_of_it() -> None:
    """As a face shows collateral, its return and reference inputs: the channel lies where it
    lay.
    """
    row = next(one for one in ROWS if one["name"].startswith("claimed beside a copy"))
    tx, index = row["mine"].split("#")
    mine = next(
        i
        for i in row["answer"]["inputs"]
        if (i["tx_hash"], i["output_index"]) == (tx, int(index)) and not i["reference"]
    )
    beside = [{**mine, "tx_hash": "00" * 32, flag: True} for flag in ("collateral", "reference")]
    returned = {**row["answer"]["outputs"][0], "collateral": True, "output_index": 99}
    inputs, outputs = row["answer"]["inputs"], row["answer"]["outputs"]
    answer = {"inputs": [*beside, *inputs], "outputs": [returned, *outputs]}
    asked = [{**row, "answer": answer}]
    assert page_says(asked) == [_places(row)] == python_says(asked)


def _bent(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """*answer* with one thing otherwise, whether a ledger could hold it or not."""
    for at in range(len(answer["outputs"])):
        for change in OUTPUTS:
            made = deepcopy(answer)
            change(made["outputs"], at)
            yield made
    for at in range(len(answer["inputs"])):
        for flag in ("collateral", "reference"):
            made = deepcopy(answer)
            made["inputs"][at][flag] = not made["inputs"][at][flag]
            yield made
    yield {**answer, "inputs": answer["inputs"][::-1]}


def _taken(name: str) -> Change:
    """The neighbour's."""
    return lambda rows, at: rows[at].update({name: rows[at - 1][name]})


def _swapped(rows: list[Any], at: int) -> None:
    for name in ("address", "amount", "inline_datum", "data_hash", "reference_script_hash"):
        rows[at][name], rows[at - 1][name] = rows[at - 1][name], rows[at][name]


def _pointer(rows: list[Any], at: int) -> None:
    """The same payment part, with a pointer (CIP-19)."""
    raw = lenient_bytes(rows[at]["address"])
    rows[at]["address"] = to_text(bytes([0x40 | raw[0] & 0x1F]) + raw[1:29] + b"\x01\x02\x03")


def _staged(rows: list[Any], at: int) -> None:
    """Closing where it was Open."""
    told = rows[at]["inline_datum"] or ""
    if told.startswith("d87982"):
        rows[at]["inline_datum"] = f"d87a83{told[6:]}00"


def _less(lovelace: int) -> Change:
    def change(rows: list[Any], at: int) -> None:
        amount = rows[at]["amount"][0]
        amount["quantity"] = str(int(amount["quantity"]) - lovelace)

    return change


OUTPUTS: list[Change] = [
    _taken("address"),
    _taken("amount"),
    _taken("inline_datum"),
    _swapped,
    _pointer,
    _staged,
    _less(1),
    _less(-1),
    lambda rows, at: rows[at]["amount"].append({"unit": "ab" * 30, "quantity": "1"}),
    lambda rows, at: rows[at].update(reference_script_hash="cd" * 28),
    lambda rows, at: rows[at].update(inline_datum=None, data_hash="cd" * 32),
    lambda rows, at: rows[at].update(inline_datum=None, data_hash=None),
]


def test_the_page_takes_what_is_bent_as_our_reader_does() -> None:
    some = list({row["tx"]: row for row in ROWS}.values())[:8]
    asked = [{**row, "answer": one} for row in some for one in _bent(row["answer"])]
    ours = python_says(asked)
    for one, places, said in zip(asked, ours, page_says(asked), strict=True):
        assert said == places, (one["name"], one["mine"], json.dumps(one["answer"]))
    assert min(sum(not one for one in ours), sum(bool(one) for one in ours)) > 100


@pytest.mark.parametrize("change", ["an input's own", "an output less", "a lovelace less"])
def test_what_no_settlement_makes_has_no_place(change: str) -> None:
    row = next(one for one in ROWS if one["name"].startswith("claimed beside a copy"))
    answer = json.loads(json.dumps(row["answer"]))
    mine = f"{'00' * 32}#0" if change == "an input's own" else row["mine"]
    if change == "an output less":
        del answer["outputs"][1:]
    elif change == "a lovelace less":
        amount = answer["outputs"][row["truth"][0]]["amount"][0]
        amount["quantity"] = str(int(amount["quantity"]) - 1)
    asked = [{**row, "mine": mine, "answer": answer}]
    [places] = page_says(asked)
    assert not places and [places] == python_says(asked)


def test_what_can_be_read_in_two_ways_is_refused_and_says_so() -> None:
    rows = [row for row in ROWS if len(row["places"]) != 1]
    assert rows
    for said, row in zip(page_refuses(rows), rows, strict=True):
        assert row["tx"] in said and "two ways" in said
