"""The same step on the host, as a plain process and over meshes: each figure is there, and is what
it says. No time is asserted: machines are noisy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from benchmarks import runtimes, runtimes_programs
from tests.requires import need_bubblewrap, need_mesh, need_stack

GRADIENTS = runtimes_programs.PARAMETERS * 4


def test_a_figure_is_the_median_of_the_rounds_and_every_way_has_its_turn_first() -> None:
    begun: list[str] = []
    found = iter((5, 1, 9, 40, 20, 30))

    def way(name: str) -> Callable[[], Awaitable[dict[str, int]]]:
        async def one() -> dict[str, int]:
            begun.append(name)
            return {"took": next(found)}

        return one

    async def turns() -> dict[str, Any]:
        return await runtimes.in_turn({"a": way("a"), "b": way("b")}, 3, lambda one: one)

    told = anyio.run(turns)
    assert begun == ["a", "b", "b", "a", "a", "b"]
    assert told == {
        "a": {"took": {"median": 20, "least": 5, "most": 40, "rows": [5, 40, 20]}},
        "b": {"took": {"median": 9, "least": 1, "most": 30, "rows": [1, 9, 30]}},
    }


def test_in_one_network_each_member_counts_what_all_send() -> None:
    said = [
        "ddp 8000 900\nlocal 2000 90\nhivemind 4000 92\n",
        "ddp 9000 900\nlocal 1000 90\nhivemind 5000 92\n",
    ]
    own = runtimes.of_members(said, one_network=False)
    assert own == {
        "ddp_us": 9, "ddp_bytes": 900, "local_us": 2, "local_bytes": 90,
        "hivemind_us": 5, "hivemind_bytes": 92,
    }  # fmt: skip
    shared = runtimes.of_members(said, one_network=True)
    assert (shared["ddp_bytes"], shared["local_bytes"]) == (450, 45)


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_what_each_way_costs_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    need_bubblewrap()
    need_mesh()
    torch = need_stack()
    found = runtimes.run(torch, 1, 10, members_too=True)
    assert {"host", "process"} <= set(found["alone"]) and not set(found["lacks"]) - {"docker"}
    for row in found["alone"].values():
        assert all(figure["median"] > 0 for figure in row.values())
    assert list(found["together"]) == ["none", "direct", "relayed"]
    for network, row in found["together"].items():
        # A ring of three sends 4/3 of what is averaged; a mesh what is lost once more, and heads.
        most = 1.1 if network == "none" else 2
        ring = 4 / 3 * GRADIENTS
        assert 0.97 * ring < row["ddp_bytes"]["median"] < most * ring
        local = ring / runtimes.SHARED_STEPS
        for way in ("local", "hivemind"):
            assert 0.97 * local < row[f"{way}_bytes"]["median"] < most * local
    runtimes.show(found)
    assert "3 members, mesh relayed, local: a step takes" in capsys.readouterr().out
