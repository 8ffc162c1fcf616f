"""A relay's life in containers, by job files and commands: its chain on a volume, its port open to its peers, its figures
through the market, started anew, upgraded, and begun elsewhere from a snapshot, without a hand, when its host is gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx
import pytest

from marketplace.client.sdk.market import Market
from tests.e2e.support.embedded import PATIENCE_S, Command, command, embedded, tally, until_true
from tests.e2e.support.volumes import DearDisk, Renter
from tests.e2e.test_relay import RelayInContainer, is_probed, write_life
from tests.requires import need_devnet, need_docker, need_node, need_volumes

pytestmark = [pytest.mark.prove, pytest.mark.timeout(2 * PATIENCE_S + 180)]
PORT, FIGURES = 3001, 12798
"""Where relays listen, and where cardano-node tells Prometheus its figures."""
FIRST = "cp life.json /data/"
SMALL = (
    "--network", "preprod", "--for", "1h", "--cores", "0.5", "--memory", "256MB", "--disk", "1GB",
    "--lag", "60s", "--budget", "2 ADA", "--volume-budget", "1 ADA",
)  # fmt: skip
SERVES = f"exec /relay/node /relay/scripted.mjs {PORT} /data/life.json {FIGURES}"


class Host(DearDisk, RelayInContainer):
    """A provider of containers and of disk."""


def test_a_relay_outlives_its_start_its_image_and_its_provider(tmp_path: Path) -> None:
    need_docker()
    need_devnet()
    need_node()
    need_volumes(tmp_path)

    async def main() -> None:
        with anyio.fail_after(2 * PATIENCE_S):
            async with embedded(tmp_path, Host) as place, AsyncExitStack() as commands:
                purse = await place.purse("consumer")
                market = await commands.enter_async_context(Market(place.market_url, wallet=purse))
                await lived(Operator(tmp_path, place, commands, market))

    anyio.run(main)


@dataclass
class Operator(Renter):
    """Who rents it. *market*: one connection for all looks, which are counted by the market."""

    market: Market
    ran_before: list[str] = field(default_factory=list[str])

    @asynccontextmanager
    async def relay(self, line: str, volume: str, **more: Any) -> AsyncGenerator[str]:
        """One that serves, by its job; it is stopped with the block."""
        mounts = [{"volume": volume, "path": "/data"}]
        asked = self.line(
            "relay", line, volumes=mounts, policy={"max_duration": "1h"},
            ports=[{"port": PORT, "direct": True}, FIGURES],
            relay={"network": "preprod", "port": PORT, "lag": "60s"}, **more,
        )  # fmt: skip
        async with self.serving(*asked) as job:
            yield job

    @asynccontextmanager
    async def serving(self, *asked: str) -> AsyncGenerator[str]:
        """The job of the command *asked*, a relay at its tip; it is stopped with the block."""
        env = self.place.environment
        async with command(*asked, env=env) as runs:
            job = await until_true(lambda: self.at_tip(runs), "the tip")
            yield job
            await tally("job", "stop", job, env=env)
            await runs.ended()

    async def at_tip(self, runs: Command) -> str:
        """The job that has come to its tip; empty while none has."""
        assert runs.process.returncode is None, str(runs)
        await anyio.sleep(1)
        for one in await self.market.jobs(state="RUNNING"):
            if one["name"] not in ("relay", "relay-1") or one["id"] in self.ran_before:
                continue
            events = self.market.job(one["id"]).events(follow=False)
            if "AT_TIP" in [told["kind"] async for told in events if "kind" in told]:
                self.ran_before.append(one["id"])
                return one["id"]
        return ""

    async def figures(self, job: str) -> str:
        """What it tells Prometheus, through the market."""
        headers = {"Authorization": f"Bearer {self.market.http.token}"}
        async with httpx.AsyncClient(base_url=self.place.market_url, headers=headers) as asks:
            answer = await asks.get(f"/p/{job}/{FIGURES}/metrics")
        assert answer.status_code == 200, answer.text
        return answer.text


async def lived(operator: Operator) -> None:
    place, folder = operator.place, operator.folder
    assert isinstance(place, Host)
    env = place.environment
    await operator.told("first", "sleep 3")  # a new account pays before it has two leases
    _, volume = await operator.rents("relay-1-chain")
    await anyio.to_thread.run_sync(write_life, folder, (("tip", 900),))
    given = [{"src": str(folder / "life.json"), "dst": "/workspace/life.json"}]

    async with operator.relay(f"{FIRST} && {SERVES}", "relay-1-chain", files=given) as job:
        figures = await operator.figures(job)
        assert "cardano_node_metrics_slotNum_int" in figures
        stood = await until_true(lambda: serves(job, env), "both say that it serves")
        assert stood.last["says"] == "AT_TIP", str(stood)
        first = stood.last["place"]
        assert await is_probed(first), first  # by whoever asks it, without the market
        shown = await tally("job", "show", job, env=env)
        assert f"{PORT} at {first}" in str(shown), str(shown)

    written = ("node", "relay", str(folder / "relays"), *SMALL, "--image", place.image)
    made = await tally(*written, "--", "sh", "-c", SERVES, env=env)
    assert made.process.returncode == 0, str(made)
    file = str(folder / "relays" / "relay-1.yaml")
    async with operator.serving("job", "run", file, "--yes", "--json") as job:
        # Started anew, from what its volume has and from nothing else.
        stood = await until_true(lambda: serves(job, env), "it serves again")
        assert await is_probed(stood.last["place"]), str(stood)
    newer = await anyio.to_thread.run_sync(place.build, "newer")
    assert newer != place.image
    async with operator.relay(SERVES, "relay-1-chain", image=newer):
        pass

    snapshot = folder / "chain.tar.age"
    kept = await tally("volume", "export", "relay-1-chain", str(snapshot), env=env)
    assert kept.process.returncode == 0, str(kept)
    told = folder / "told"
    keeps = (
        "node", "keep", str(folder / "relays"), "--snapshot", str(snapshot), "--away", "5s",
        "--every", "2s", "--yes", "--hook", f'echo "$RELAY_BEFORE>$RELAY_PLACE" >> {told}',
    )  # fmt: skip
    async with command(*keeps, env=env) as keeper:
        before = await addresses(told, 1, keeper)
        assert before[0].startswith(">") and await is_probed(before[0][1:]), before
        await until_true(lambda: kept_at(env, volume["provider"]), "the relay where its chain is")
        await place.start_adapter("adapter2")
        lost = place.parts["adapter"].process
        assert lost is not None
        lost.kill()
        await lost.wait()
        # Nobody's hand: another volume at the other provider, the snapshot onto it, the relay, the hook.
        after = await addresses(told, 2, keeper)
        was, place_now = after[1].split(">")
        assert was == before[0][1:] != place_now
        await until_true(lambda: is_probed(place_now), "the tip")
        [job] = await until_true(lambda: elsewhere(env, volume["provider"]), "its job")
        assert "cardano_node_metrics_slotNum_int" in await operator.figures(job)
        assert str(snapshot) in str(keeper), str(keeper)


async def serves(job: str, env: dict[str, str]) -> Command | None:
    """Its status, once the market sees its tip as well: the first look may be one too early."""
    await anyio.sleep(1)
    stood = await tally("node", "status", job, "--json", env=env)
    return stood if stood.process.returncode == 0 and stood.last["place"] else None


async def addresses(told: Path, count: int, keeper: Command) -> list[str]:
    """What the hook was told, so often."""
    try:
        return await until_true(lambda: hooked(told, count, keeper), f"address {count}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {keeper}") from error


async def hooked(told: Path, count: int, keeper: Command) -> list[str] | None:
    """What the hook was told, once it was told so often."""
    await anyio.sleep(1)
    assert keeper.process.returncode is None, str(keeper)
    at = anyio.Path(told)
    lines = (await at.read_text()).splitlines() if await at.exists() else []
    assert len(lines) <= count, lines
    return lines if len(lines) == count else None


async def running(env: dict[str, str]) -> list[dict[str, Any]]:
    await anyio.sleep(2)
    said = await tally("job", "list", "--state", "RUNNING", "--json", env=env)
    return [one for one in cast("list[dict[str, Any]]", said.last) if one["kind"] == "service"]


async def kept_at(env: dict[str, str], provider: str) -> bool:
    return [one["provider"] for one in await running(env)] == [provider]


async def elsewhere(env: dict[str, str], provider: str) -> list[str]:
    """The relay's job that runs at another provider."""
    return [one["id"] for one in await running(env) if one["provider"] != provider]
