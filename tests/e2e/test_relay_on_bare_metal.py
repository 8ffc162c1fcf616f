"""A relay's life as a plain process, as ``test_relay_life`` has it in containers: its chain on a volume, its port open to its
peers, its figures through the market, started anew by another program, and begun elsewhere when its host is gone.
"""

from __future__ import annotations

import json
import os
import signal
import tarfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx
import pytest

from marketplace.client.sdk.market import Market
from tests.e2e.support.embedded import PATIENCE_S, Command, command, embedded, tally, until_true
from tests.e2e.support.volumes import DearDisk
from tests.e2e.test_relay import PARTS, PROGRAM, RelayHost, is_probed, write_life
from tests.e2e.test_relay_life import addresses, serves
from tests.ports import free_port
from tests.requires import need_bubblewrap, need_devnet, need_node, need_volumes

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2 * PATIENCE_S + 180)]


class Host(DearDisk, RelayHost):
    """A provider of plain processes and of disk."""


def test_a_relay_outlives_its_start_its_program_and_its_host(tmp_path: Path) -> None:
    need_devnet()
    need_node()
    need_bubblewrap()
    need_volumes(tmp_path)

    async def main() -> None:
        with anyio.fail_after(2 * PATIENCE_S):
            async with embedded(tmp_path, Host) as place, AsyncExitStack() as commands:
                purse = await place.purse("consumer")
                market = await commands.enter_async_context(Market(place.market_url, wallet=purse))
                await lived(Operator(tmp_path, place, market, free_port(), free_port()), commands)

    anyio.run(main)


@dataclass
class Operator:
    """Who rents it; *port* and *figures* are the host's own."""

    folder: Path
    place: Any
    market: Market
    port: int
    figures: int

    @property
    def env(self) -> dict[str, str]:
        return self.place.environment

    def file(self, name: str, **job: Any) -> str:
        path = self.folder / "relays" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        more = {"version": 1, "name": name, "policy": {"max_duration": "1h"}}
        path.write_text(json.dumps({**more, "price": {"budget": "2 ADA"}, **job}))
        return str(path)

    def process(self, name: str, line: str, **job: Any) -> str:
        """A job of a shell's line, with the relay's program beside it."""
        names = ("relay.tgz", "life.json")
        files = [{"src": str(self.folder / one), "dst": f"/workspace/{one}"} for one in names]
        alone = {"command": ["sh", "-c", line], "placement": {"isolation": "process"}}
        small = {"resources": {"cpu": 0.5, "memory": "256MB"}, "egress": "open"}
        env = {"env": {"OPENSSL_CONF": "/dev/null"}}  # /etc is not there
        return self.file(name, files=files, **alone, **small, **env, **job)

    def relay(self, first: str = "") -> str:
        run = f"tar xzf relay.tgz && {first} exec node scripted.mjs {self.port} /data/life.json"
        return self.process(
            "relay-1", f"{run} {self.figures}", kind="service",
            volumes=[{"volume": "relay-1-chain", "path": "/data"}],
            ports=[{"port": self.port, "direct": True}, self.figures],
            relay={"network": "preprod", "port": self.port, "lag": "60s"},
        )  # fmt: skip

    @asynccontextmanager
    async def serving(self, file: str) -> AsyncGenerator[tuple[str, str]]:
        """Its job and its address, at its tip; it is stopped with the block."""
        before = {one["id"] for one in await self.market.jobs()}
        async with command("job", "run", file, "--yes", "--json", env=self.env) as runs:

            async def there() -> tuple[str, str] | None:
                await anyio.sleep(1)
                assert runs.process.returncode is None, str(runs)
                new = [
                    one
                    for one in await self.market.jobs(state="RUNNING")
                    if one["id"] not in before
                ]
                stood = await serves(new[0]["id"], self.env) if new else None
                return (new[0]["id"], stood.last["place"]) if new and stood else None

            job, where = await until_true(there, "the tip")
            yield job, where
            await tally("job", "stop", job, env=self.env)
            await runs.ended()

    async def told_to_prometheus(self, job: str) -> str:
        headers = {"Authorization": f"Bearer {self.market.http.token}"}
        async with httpx.AsyncClient(base_url=self.place.market_url, headers=headers) as asks:
            answer = await asks.get(f"/p/{job}/{self.figures}/metrics")
        assert answer.status_code == 200, answer.text
        return answer.text


def pack(folder: Path, program: str = "") -> None:
    """The relay's program, of another version with some *program* at its end."""
    with tarfile.open(folder / "relay.tgz", "w:gz") as archive:
        for part in PARTS:
            archive.add(PROGRAM / part, part)
        if program:
            (folder / "version").write_text(program)
            archive.add(folder / "version", "version")


async def lived(operator: Operator, commands: AsyncExitStack) -> None:
    folder, env, place = operator.folder, operator.env, operator.place
    await anyio.to_thread.run_sync(write_life, folder, (("tip", 900),))
    await anyio.to_thread.run_sync(pack, folder)
    first = operator.process("first", "sleep 3")  # a new account pays before it has two leases
    paid = await tally("job", "run", first, "--yes", "--json", env=env)
    assert paid.last["reason"] == "COMPLETED", str(paid)
    chain = operator.file("relay-1-chain", kind="volume", resources={"disk": "64MB"})
    await commands.enter_async_context(command("job", "run", chain, "--yes", "--json", env=env))
    [volume] = await until_true(lambda: volumes(env), "the volume")

    async with operator.serving(operator.relay("cp life.json /data/ &&")) as (job, where):
        assert await is_probed(where), where  # from outside, without the market
        assert "cardano_node_metrics_slotNum_int" in await operator.told_to_prometheus(job)
    await anyio.to_thread.run_sync(pack, folder, "newer")
    async with operator.serving(operator.relay()) as (_, where):
        assert await is_probed(where), where  # from what its volume has

    snapshot, told = folder / "chain.tar.age", folder / "told"
    kept = await tally("volume", "export", "relay-1-chain", str(snapshot), env=env)
    assert kept.process.returncode == 0, str(kept)
    keeps = (
        "node", "keep", str(folder / "relays"), "--snapshot", str(snapshot), "--away", "5s",
        "--every", "2s", "--yes", "--hook", f'echo "$RELAY_BEFORE>$RELAY_PLACE" >> {told}',
    )  # fmt: skip
    async with command(*keeps, env=env) as keeper:
        before = await addresses(told, 1, keeper)
        assert await is_probed(before[0][1:]), before
        await place.start_adapter("adapter2")
        lost = place.parts["adapter"].process
        lost.kill()
        await lost.wait()
        for pid in programs(operator.port):  # the host is gone, and with it what ran there
            os.kill(pid, signal.SIGKILL)
        after = (await addresses(told, 2, keeper))[1].split(">")
        assert after[0] == before[0][1:] != after[1]
        await until_true(lambda: is_probed(after[1]), "the tip elsewhere")
        [moved] = [one for one in await volumes(env) if one["provider"] != volume["provider"]]
        assert moved["name"] == "relay-1-chain"


async def volumes(env: dict[str, str]) -> list[dict[str, Any]]:
    await anyio.sleep(2)
    listed: Command = await tally("volume", "list", "--json", env=env)
    return cast("list[dict[str, Any]]", listed.last)


def programs(port: int) -> list[int]:
    """The processes that listen there as the relay's program."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            if b"scripted.mjs" in words and str(port).encode() in words:
                found.append(int(entry.name))
    return found
