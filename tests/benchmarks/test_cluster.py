"""The members of a large cluster are placed, keyed, given each other and run: by the product's
market, payer and keeper, and by real meshes. No time is asserted: machines are noisy.
"""

from __future__ import annotations

import pytest

from benchmarks import cluster, cluster_mesh
from tests.requires import need_mesh

FEW = {"python_steps_per_s": 1, "numpy_passes_per_s": 1, "ed25519_checks_per_s": 1,
       "fsyncs_per_s": 1}  # fmt: skip
COUNTED = ("placed", "keyed", "given", "runs", "hears")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SETTLES_S", 0)
    monkeypatch.setattr(cluster, "IDLE_S", 0)
    monkeypatch.setattr(cluster.yardstick, "measure", lambda: FEW)


@pytest.mark.timeout(60)
def test_the_members_of_a_small_one_are_given_each_other_and_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--sizes", "4", "--rounds", "1", "--seconds", "1", "--meshed", "0"]
    assert cluster.main(asked) == 0
    assert "4 members: after the last signature" in capsys.readouterr().out


@pytest.mark.prove
@pytest.mark.timeout(180)
def test_each_of_thirty_two_is_given_all_others_and_runs() -> None:
    found = cluster.run([32], 1, 2, 0)
    figures = found["sizes"]["32"]
    assert {key: figures[key] for key in COUNTED} == dict.fromkeys(COUNTED, 32)
    assert found["refused"] == []
    (row,) = figures["rows"]
    assert row["stage"] == "RUNNING"


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_eight_real_meshes_hear_each_other_in_every_direction() -> None:
    need_mesh()
    found = cluster_mesh.run(8)
    assert (found["members"], found["heard"]) == (8, 56)
