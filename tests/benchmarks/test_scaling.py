"""The world of ``tally bench scaling``: no request is lost in it or counted twice, time is shared
as it says, and what the command prints is what it found.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import scaling
from benchmarks.scaling import Fixed, Oracle, policy, sweep
from benchmarks.scaling_settings import GOALS, Setting, cheapest
from benchmarks.scaling_traces import generated, of_file
from benchmarks.scaling_world import AGREE_MS, Policy, Replay, Request, World

START_MS = 10_000


def replay(*requests: tuple[int, int], width: int = 2, first: int = 1) -> Replay:
    return Replay("r", [Request(*one) for one in requests], width, START_MS, first=first)


def run(one: Replay, policy: Policy) -> tuple[int, int]:
    """(late, asked)."""
    found = World(one, policy).run()
    return found.late, found.asked


def test_up_to_its_width_a_replica_slows_nobody() -> None:
    assert run(replay((0, 10_000), (0, 10_000)), Fixed(1)) == (0, 2)


def test_beyond_it_speed_is_shared() -> None:
    # Four at once on a width of two: each takes twice its time, more than 1.25 times and a second.
    assert run(replay(*[(0, 10_000)] * 4), Fixed(1)) == (4, 4)
    assert run(replay(*[(0, 1_000)] * 4), Fixed(1)) == (0, 4), "a second is nothing"


def test_without_a_replica_a_request_is_held_until_one_serves() -> None:
    # Agreed to, started and looked at: the first look after 1.5 s and 10 s.
    late = replay((0, 1_000), first=0)
    assert run(late, Fixed(1)) == (1, 1)
    assert AGREE_MS + START_MS > 1_250


def test_one_who_knows_is_ready_when_asked() -> None:
    one = replay((30_000, 5_000), (30_000, 5_000), (31_000, 5_000), (90_000, 5_000), first=0)
    assert run(one, Oracle(one, 2)) == (0, 4)


def test_a_replica_costs_from_its_agreement_to_its_end() -> None:
    one = replay((0, 1_000), (100_000, 1_000), first=3)
    found = World(one, Fixed(3)).run()
    assert found.replica_ms == 3 * 101_000
    assert World(one, Fixed(0)).run().late == 1, "the second waits for ever"


@settings(max_examples=40, deadline=None)
@given(
    dice=st.randoms(use_true_random=False),
    kind=st.sampled_from(["reactive", "predictive", "fixed", "oracle"]),
)
def test_each_request_is_answered_once_whoever_scales(dice: Random, kind: str) -> None:
    at, requests = 0, list[tuple[int, int]]()
    for _ in range(dice.randrange(1, 80)):
        at += dice.choice([0, 10, 1_000, 60_000])
        requests.append((at, dice.randrange(1, 40_000)))
    one = replay(*requests, width=dice.randrange(1, 4), first=dice.randrange(0, 3))
    sure = 80 if kind == "predictive" else 0
    how = Setting(kind, dice.choice([1.0, 0.5]), 1, sure, dice.randrange(1, 4))
    world = World(one, policy(how, one))
    found = world.run()
    assert world.asked == found.asked == len(requests) and 0 <= found.late <= found.asked


def test_the_command_replays_a_trace_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice, path = Random(3), tmp_path / "mine.csv"
    lines = [f"{dice.uniform(0, 1_800)},{dice.uniform(1, 20)}" for _ in range(300)]
    path.write_text("\n".join(lines))
    assert len(of_file(path).requests) == 300
    assert scaling.main(["--trace", str(path), "--quick"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("mine: 300 requests")
    assert [line.split()[0] for line in said[2:]] == [f"{goal:.1%}" for goal in GOALS]


@pytest.mark.nightly  # three minutes of a core
@pytest.mark.timeout(1200)
def test_ahead_of_demand_is_no_dearer_than_waiting_for_it() -> None:
    """At every goal, over the settings that a user has; the traces of docs/scaling.md that are not
    ours to ship are `tally bench scaling`'s.
    """
    found = sweep(generated(days=3))
    for goal in GOALS:
        waiting, ahead = (cheapest(found, kind, goal) for kind in ("reactive", "predictive"))
        assert ahead is not None
        if waiting is not None:
            assert found[ahead].replica_ms <= found[waiting].replica_ms, (goal, waiting, ahead)
