"""``tally bench purse``, its routed rows: the gates of ``docs/costs.md``, and no provider at a loss."""

from __future__ import annotations

import pytest

from benchmarks.purse import run
from benchmarks.purse_page import GATES
from tests.requires import need_devnet


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_hundred_small_jobs_over_a_router_stay_within_the_gates() -> None:
    need_devnet()
    rows = {row.way: row for row in run(tuple(GATES))}
    for way, row in rows.items():
        assert row.bps <= GATES[way], row
        assert row.least_net >= 0 and row.net == row.billed, row
        assert row.transactions == 2, row
    cold = rows["routed, cold"]
    assert cold.route_fee == 25_000 + cold.billed * 50 // 10_000
