"""V9: many worlds of young money and rollbacks; and that the check can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.route_depth import LIMITS, Depths
from benchmarks.route_world import Broken
from marketplace.router.limits import ADA


@pytest.mark.parametrize(
    "worlds",
    [
        5,
        pytest.param(100, marks=[pytest.mark.prove, pytest.mark.timeout(1200)]),
        pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)]),
    ],
)
def test_no_more_rests_on_young_blocks_than_the_caps(
    worlds: int, record_property: Callable[[str, object], None]
) -> None:
    ran = [Depths(f"depth {number}").run() for number in range(worlds)]
    record_property("lost_most", max(one.lost for one in ran))
    assert sum(one.admitted for one in ran) > 10 * worlds
    assert sum(one.refused for one in ran) > worlds


@pytest.mark.parametrize(
    "lax",
    [
        replace(LIMITS, young_tx=100 * ADA),
        replace(LIMITS, young=1000 * ADA, young_tx=4 * ADA),
        replace(LIMITS, ripe_tx=1000 * ADA),
    ],
)
def test_a_router_without_caps_is_found_out(lax: object) -> None:
    with pytest.raises(Broken, match="V9"):
        for number in range(40):
            Depths(f"lax {number}", lax).run()  # pyright: ignore[reportArgumentType]
