"""A workload that fell with its runtime is billed to the last look at it, whatever date its death
bears.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.domain.metering.reading import Cause
from marketplace.domain.work.workload import ExitReason
from tests.integration.support.rig import Adapter, Rig

pytestmark = pytest.mark.anyio
UNITS_A_SECOND = 2000  # core-milliseconds: two cores


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("unwatched_ms", [2_000, 20_000])
@pytest.mark.parametrize(
    ("reason", "witnessed"),
    [
        (ExitReason.PROVIDER_FAULT, False),
        (ExitReason.LOST, False),
        (ExitReason.COMPLETED, True),
        (ExitReason.CRASHED, True),
    ],
)
async def test_only_an_end_with_a_witness_is_billed_to(
    tmp_path: Path, reason: ExitReason, witnessed: bool, unwatched_ms: int
) -> None:
    rig = Rig(tmp_path)

    async def body(adapter: Adapter) -> None:
        rig.propose("lease_1")
        await adapter.ask("lease_1")
        for _ in range(3):
            await adapter.second()
        rig.pass_ms(unwatched_ms)
        rig.world.end("lease_1", 137, reason)  # dated now
        await adapter.second()

    await rig.live(body)
    last = rig.market.verify()["lease_1"]
    lost = {one.cause: one.ms for one in last.lost}
    assert last.final
    if witnessed:
        assert last.unit_ms_total == 3 * UNITS_A_SECOND + unwatched_ms * 2
    else:
        assert last.unit_ms_total == 3 * UNITS_A_SECOND
        assert lost[Cause.UNPROVEN] == unwatched_ms
