"""What a payer sends goes through every door that it names: one that takes nothing keeps no job
from starting.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from marketplace.client.sdk.market import Market
from tests.integration.chain.test_submit_doors import Of, _Forwarding, serving
from tests.integration.client.test_cli import JOB, Shell, provide
from tests.integration.support.client import ADA, World, spec, story


def cut_off(world: World, at: str) -> str:
    """The chain's address at a door that shows it and takes no transaction."""
    return world.served.url.replace(world.served.origin, f"http://{at}")


@pytest.mark.parametrize("named", ["option", "environment"])
def test_the_sdk_pays_through_another_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    async def tell(world: World) -> None:
        purse, door = world.purse(), world.served.url
        doors = (door,) if named == "option" else None
        if named == "environment":
            monkeypatch.setenv("TALLY_SUBMIT_URLS", f"http://127.0.0.1:9/nobody {door}")
        with serving(_Forwarding, Of(behind=world.served.origin)) as at:
            async with Market(
                world.url, wallet=purse, chain_url=cut_off(world, at), submit_urls=doors
            ) as market:
                await market.run(spec())
                lease = await world.provider.lease()
                await world.provider.start(lease)
                await world.provider.ticks(lease, 2)
                held = market.payers.all[0]
                await world.provider.adapter.finish(lease)
                await world.provider.settle(held.session_vk, held.facts.open_tx, lease)

    story(tmp_path, tell)


def test_the_command_line_pays_through_another_door(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell = Shell(world)
        job = tmp_path / "hello.yaml"
        job.write_text(JOB)
        made = await shell.json("wallet", "new")
        world.served.devnet.faucet(made["address"], 200 * ADA)
        await shell.json("purse", "fund", "60 ADA", "--yes")
        with serving(_Forwarding, Of(behind=world.served.origin)) as at:
            shell.env["TALLY_CHAIN_URL"] = cut_off(world, at)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(provide, world)
                done = await shell.tally(
                    "job", "run", str(job), "--yes", "--submit-url", world.served.url
                )
                assert done.returncode == 0, done.stderr

    story(tmp_path, tell)
