"""``tally bench locality`` replays the same tasks under each rule, and finds images nearer."""

from __future__ import annotations

import json

import pytest

from benchmarks import locality


def test_jobs_start_sooner_where_images_count(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--made", "--hosts", "20", "--tasks", "400", "--images", "30", "--json"]
    assert locality.main(asked) == 0
    report = json.loads(capsys.readouterr().out)
    rows = {row["rule"]: row for row in report["rows"]}
    assert list(rows) == [rule.name for rule in locality.RULES]
    blind, usual, much = (
        rows[locality.RULES[at].name]["mean_start_s"] for at in (0, 2, 4)
    )  # of the same tasks on the same hosts: no clock is read
    assert much < usual < blind
    assert all(row["refused"] < 400 for row in rows.values())
    assert report["devices"] == 160
