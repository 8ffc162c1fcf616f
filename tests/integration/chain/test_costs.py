"""What settling costs, measured anew on the devnet's ledger and held against docs/costs.md.

Units are exact. Bytes and fees may differ by a handful: an input's index above 23 takes a byte
more, and which channel has which index follows from the transactions' ids.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import channel, channel_page
from tests.integration.support.costs_table import committed_rows
from tests.requires import need_devnet


def _committed() -> dict[tuple[object, ...], dict[str, Any]]:
    return {_place(r): r for r in committed_rows()}


def _place(row: dict[str, Any]) -> tuple[object, ...]:
    return row["step"], row["asset"], row["channels"], row["providers"]


def _nearest(row: dict[str, Any], committed: dict[tuple[object, ...], dict[str, Any]]) -> bool:
    """Whether the table has *row*'s maximum within one channel: its last bytes decide that."""
    step, asset, channels, providers = _place(row)
    return any(
        (s, a) == (step, asset)
        and abs(int(str(c)) - int(str(channels))) <= 1
        and (p == 1) == (providers == 1)
        for s, a, c, p in committed
    )


def _compare(rows: list[dict[str, Any]]) -> None:
    committed = _committed()
    for row in rows:
        place = _place(row)
        assert place in committed, (
            f"docs/costs.md has no row {place}: run tally bench channel --markdown"
        )
        known = committed[place]
        assert (row["mem"], row["steps"]) == (known["mem"], known["steps"]), place
        few = 8 + row["channels"]
        assert abs(row["bytes"] - known["bytes"]) <= few, place
        assert abs(row["fee"] - known["fee"]) <= 44 * few, place


def test_costs_are_those_of_the_committed_table() -> None:
    need_devnet()
    report = channel.run(sizes=(1, 10), assets=("ADA",), maximum=False)
    assert len(report["rows"]) == 11
    _compare(report["rows"])
    checks = channel_page.gates(report)
    assert {name for name, *_ in checks} >= {"claim, 1 channel", "claim, 10 channels of one payout"}
    assert [name for name, *_, holds in checks if not holds] == []


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_every_gate_holds_and_the_table_is_current() -> None:
    """Of a token one and ten channels: every gate is about ADA."""
    need_devnet()
    report = channel.run(assets=("ADA",))
    _compare(report["rows"])
    _all_hold(report)
    token = channel.run(sizes=(1, 10), assets=("token",), maximum=False)
    assert len(token["rows"]) == 10
    _compare(token["rows"])


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_every_gate_holds_and_the_whole_table_is_current() -> None:
    need_devnet()
    report = channel.run()
    _compare(report["rows"])
    _all_hold(report)


def _all_hold(report: dict[str, Any]) -> None:
    checks = channel_page.gates(report)
    assert len(checks) == 14
    assert [(name, value) for name, value, _, holds in checks if not holds] == []


def test_a_dearer_script_would_be_noticed() -> None:
    rows = list(_committed().values())
    worse = [{**r, "fee": r["fee"] + 30_000 * r["channels"]} for r in rows]
    report = {"scripts_bytes": 3_001, "rows": worse}
    failing = {name for name, *_, holds in channel_page.gates(report) if not holds}
    assert failing >= {
        "claim, 1 channel",
        "claim, 10 channels of one payout",
        "marginal channel, same payout",
        "marginal channel, another payout each",
        "per channel at the maximum",
        "Finish, per channel at the maximum",
        "both scripts together, bytes",
    }
    with pytest.raises(AssertionError):
        _compare([{**rows[0], "mem": rows[0]["mem"] + 1}])
