"""Every bench says beside its figures what the machine itself does."""

from __future__ import annotations

import json

import pytest

from benchmarks import durable, matching, yardstick


def test_it_has_four_figures_and_one_line():
    figures = yardstick.measure()
    assert min(figures.values()) > 0
    assert yardstick.said(figures).count("/s") == len(figures) == 4


def test_a_figure_stated_to_it_does_not_know_the_machine():
    quick = {"python_steps_per_s": 20_000_000}
    slow = {"python_steps_per_s": 8_000_000}
    assert yardstick.per_million_steps(10_000, quick) == yardstick.per_million_steps(4_000, slow)


def no_store(jobs: int) -> list[dict[str, object]]:
    """The durable half takes seconds and a PostgreSQL."""
    return []


def test_the_matching_bench_prints_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(durable, "run", no_store)
    assert matching.main(["--sizes", "20x8", "--decisions", "50", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"][0]["per_million_steps"] > 0
    assert report["yardstick"].keys() == yardstick.measure().keys()
