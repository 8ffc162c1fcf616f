"""``tally bench mesh`` measures what it says it measures. No rate is asserted: machines are noisy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapter.mesh import device
from benchmarks import mesh, mesh_lines
from tests.requires import need_mesh


def left() -> list[str]:
    """Namespaces and control sockets of the bench that are still there."""
    found = [*Path("/run/netns").glob("tbm*"), *device.SOCKETS.glob("tbm*")]
    return [str(one) for one in found]


@pytest.mark.prove
@pytest.mark.timeout(120)
def test_each_line_carries_bytes_by_its_own_path_and_nothing_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    need_mesh()
    monkeypatch.setattr(mesh.yardstick, "measure", lambda: {})
    assert mesh.main(["--rounds", "2", "--seconds", "0.3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["bytes_per_s"]) == set(mesh_lines.KINDS)
    for row in found["bytes_per_s"].values():
        assert len(row["rounds"]) == 2 and row["low"] > 0
        assert row["low"] <= row["median"] <= row["high"]
    bare, direct = (found["bytes_per_s"][kind]["rounds"] for kind in ("bare", "direct"))
    shares = [round(100 * a / b) for a, b in zip(direct, bare, strict=True)]
    assert found["percent_of_bare"]["direct"]["rounds"] == shares
    assert left() == []


def test_without_root_it_says_what_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh.device, "missing", lambda: "root (CAP_NET_ADMIN)")
    with pytest.raises(SystemExit) as ended:
        mesh.main(["--rounds", "1"])
    assert ended.value.code
    assert "MESH_MISSING" in capsys.readouterr().err
