"""SIGHUP to a running adapter: its prices are read again, and no lease notices."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from tests.e2e.support.embedded import (
    PATIENCE_S,
    World,
    command,
    job_file,
    newest_job,
    settled_bill,
    story,
    until_ended,
    until_true,
)

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
LINES = 20


def test_a_hangup_reloads_the_prices_and_ends_no_lease(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        adapter = world.place.parts["adapter"]
        process = adapter.process
        assert process is not None
        file = world.place.home / "adapter.toml"
        async with httpx.AsyncClient(base_url=world.place.market_url, timeout=30) as market:

            async def asked(rate_micro: int) -> bool:
                offer = (await market.get(f"/v1/offers/{adapter.ready['offer']}")).json()
                return offer["core_rate_micro"] == rate_micro

            job = job_file(world.folder, world.place.image, LINES)
            run = ("job", "run", str(job), "--yes", "--json", "--keep", "0")
            async with command(*run, env=world.place.environment) as client:
                await client.until(lambda it: "line 2" in it.err)
                before = await newest_job(world)
                written = file.read_text()
                file.write_text(written + 'core = "77 lovelace"\n')
                process.send_signal(signal.SIGHUP)
                await until_true(lambda: asked(77_000_000), "the new price in the offer")
                file.write_text(written + 'core = "much"\n')
                process.send_signal(signal.SIGHUP)
                words = adapter.log.read_text  # what is wrong changes nothing, and is said
                await client.until(lambda _: "not reloaded" in words())
                assert await asked(77_000_000)
                assert f"line {LINES - 1}" not in client.err, "the lease outlived both"
                assert await client.ended() == 0, str(client)
            assert process.returncode is None and adapter.process is process
            view = await until_ended(world, before["id"])
            assert view["reason"] == "COMPLETED"
            bill = await settled_bill(world, before["id"])
            [line] = bill.lines  # one lease, at the price that both signed
            assert bill.reconciled and line.unit_ms > 0
            assert bill.owed < line.unit_ms * 77 // 1000

    story(tmp_path, tell)
