"""``tally up`` serves until Ctrl-C and, started again, knows everything; killed, it leaves no
orphan.
"""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.cli.embedded.product import Embedded
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.purse import Purse
from tests.e2e.support.embedded import (
    PATIENCE_S,
    job_file,
    parts_of,
    tally,
    until_gone,
    until_true,
)
from tests.e2e.support.up import PORTS, swept, up
from tests.requires import need_devnet, need_docker

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)


async def picture(env: dict[str, str]) -> dict[str, Any]:
    """All that must be the same after a restart, read through the doors that users have."""
    phrase = await anyio.Path(env["TALLY_PASSPHRASE_FILE"]).read_text()
    purse = Purse.load(env["TALLY_HOME"], passphrase=phrase.strip())
    async with Market(
        env["TALLY_MARKET"], wallet=purse, chain_url=env["TALLY_CHAIN_URL"]
    ) as market:
        offers = await until_true(market.offers, "an offer")
        jobs = await market.jobs()
        bills = [(await market.job(job["id"]).invoice(verify=True)).to_json() for job in jobs]
        channels = await market.http.get("/v1/channels")
    return {
        "offers": [{key: o[key] for key in o if "rate" in key or key in ("id", "provider")} for o in offers],
        "jobs": [
            [job[key] for key in ("id", "name", "state", "reason", "spent", "lease", "channel", "ticks")]
            for job in jobs
        ],
        "bills": bills,
        "channels": [(c["session_vk"], c["state"]) for c in channels["items"]],
    }  # fmt: skip


async def all_ended(env: dict[str, str]) -> bool:
    """Whether the market shows every channel as over."""
    return {state for _, state in (await picture(env))["channels"]} == {"ENDED"}


async def block(env: dict[str, str], which: str) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        return (await http.get(f"{env['TALLY_CHAIN_URL']}/blocks/{which}")).json()


def test_it_knows_everything_after_a_restart(tmp_path: Path) -> None:
    need_docker()
    need_devnet()
    home = tmp_path / "home"

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with swept(home):
                await story()

    async def story() -> None:
        async with up(home) as (running, env):
            file = job_file(tmp_path, await image(home), 2)
            ran = await tally("job", "run", str(file), "--yes", "--json", "--keep", "0", env=env)
            assert ran.process.returncode == 0, str(ran)
            assert ran.last["reason"] == "COMPLETED" and ran.last["settled"] is True, str(ran)
            # Its channel's end lies deep before the picture is taken: nothing of it changes any
            # more.
            await until_true(lambda: all_ended(env), "the channel's end, deep in the chain")
            before, tip = await picture(env), await block(env, "latest")
            assert before["bills"][0]["reconciled"] is True
            children = parts_of(running.process.pid)
            running.process.send_signal(signal.SIGINT)
            assert await running.ended() == 0, str(running)
            await until_gone(children)
        async with up(home) as (running, again):
            assert again == env
            assert await picture(again) == before
            assert (await block(again, str(tip["height"])))["hash"] == tip["hash"]
            assert (await block(again, "latest"))["height"] >= tip["height"]
            ran = await tally("job", "run", str(file), "--yes", "--json", "--keep", "0", env=again)
            assert ran.process.returncode == 0, str(ran)
            billed = await tally("invoice", ran.last["job"], "--verify", "--json", env=again)
            assert billed.process.returncode == 0, str(billed)
            assert billed.last["verified"] is True and billed.last["reconciled"] is True
            running.process.send_signal(signal.SIGTERM)
            assert await running.ended() == 0, str(running)

    anyio.run(main)


async def image(home: Path) -> str:
    """The id of the image that the adapter offers."""
    return await anyio.to_thread.run_sync(Embedded(home / "up").find_image)


def test_killed_it_leaves_no_orphan_and_the_next_one_starts(tmp_path: Path) -> None:
    need_devnet()
    home = tmp_path / "home"

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with swept(home):
                async with up(home) as (running, env):
                    children = parts_of(running.process.pid)
                    assert len(children) >= 3
                    second = await tally("up", "--json", "--home", str(home), *PORTS, env={})
                    assert second.process.returncode == 3, str(second)
                    assert "ALREADY_RUNNING" in "\n".join(second.err)
                    running.process.kill()
                    await running.ended()
                    await until_gone(children)
                async with up(home) as (_running, again):
                    assert again == env

    anyio.run(main)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            home = str(tmp_path / "home")
            tried = await tally("up", "--home", home, "--port", port, "--devnet-port", "0", env={})
        assert tried.process.returncode == 3, str(tried)
        assert any("PORT_TAKEN" in line and port in line for line in tried.err), str(tried)

    anyio.run(main)
