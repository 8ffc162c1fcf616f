"""A machine of the consumer's own in a cluster's mesh, of real adapters end to end: it joins by a
WireGuard file, reaches a public member at its address and a hidden one by the market's relay, and
is out once it is signed out.
"""

from __future__ import annotations

import json
import random
import stat
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from marketplace.cli.embedded.supervise import Part
from marketplace.client.sdk.cluster import standing
from marketplace.client.sdk.market import Market
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.work.mesh_net import FIRST_GUEST
from tests.e2e.support.behind_nat import OUTSIDE, relay
from tests.e2e.support.clusters import SOON_S, Processes, Watched, ticked
from tests.e2e.support.embedded import PURSE, Command, command, embedded, tally, until_true
from tests.e2e.support.own_machine import OwnMachine, own_machine
from tests.e2e.test_cluster_mesh import all_met, meshed
from tests.ports import free_port
from tests.requires import need_bubblewrap, need_devnet, need_mesh, need_nats

pytestmark = [pytest.mark.prove, pytest.mark.timeout(200)]


class OneHidden(Processes):
    """The second adapter is behind a NAT; the market is dialled from outside, too."""

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        own = f'endpoint = "{need_mesh()}"'
        assert own in path.read_text()
        if name == "adapter2":
            path.write_text(path.read_text().replace(own, 'endpoint = "nat"'))
        return path

    def part(self, name: str, *arguments: str) -> Part:
        made = super().part(name, *arguments)
        if name == "market":
            made.env = {**made.env, "TALLY_ALSO_URL": f"http://{OUTSIDE}:{self.port}"}
        return made


def test_a_machine_of_ones_own_joins_by_a_wireguard_file_until_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_bubblewrap()
    need_devnet()
    need_nats()
    first, port, file = random.randint(20, 59) * 1000 + 700, free_port(), tmp_path / "mesh.conf"
    monkeypatch.setenv("TALLY_MESH", f"{need_mesh()}:{first}-{first + 3}")

    async def tell(made: OneHidden, market: Market, own: OwnMachine) -> None:
        one = Watched(await market.run_gang(meshed("visited", 2, least=2)))
        await one.until_said("running")
        jobs, gang = one.gang.members, one.gang.id
        await all_met(jobs)
        env = {**made.environment, "TALLY_MARKET": f"http://{OUTSIDE}:{port}"}
        leases = {at: str((await job.refresh())["lease"]) for at, job in enumerate(jobs)}
        hidden = [await made.host(job) for job in jobs].index("adapter2")

        async def heard(address: str, what: str) -> None:
            async def said() -> bool:
                return await anyio.to_thread.run_sync(own.hears, address, 9000) == what

            await until_true(said, f"{what} at {address}", SOON_S)

        asked = ("job", "mesh", gang, "--join", str(file), "--json")
        plain = await tally(*asked, env=env, program=own.tally)
        assert plain.process.returncode == 0, str(plain)
        assert plain.last["members"] == [1 - hidden]
        assert plain.last["left_out"].keys() == {str(hidden)}
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        await anyio.to_thread.run_sync(own.takes, file)
        public = _addresses(file, plain.last)[1 - hidden]
        await heard(public, leases[1 - hidden])

        async with command(*asked, "--stay", env=env, program=own.tally) as stays:
            await stays.until(lambda said: bool(said.out), SOON_S)
            assert stays.last["members"] == [0, 1] and stays.last["by_relay"] == [hidden]
            assert stays.last["guest"] == plain.last["guest"] == FIRST_GUEST
            await anyio.to_thread.run_sync(own.takes, file)
            for at, address in _addresses(file, stays.last).items():
                await heard(address, leases[at])
            await _shown(market, gang)
            await _left(gang, env, own, stays)
        for address in _addresses(file, stays.last).values():
            assert not await anyio.to_thread.run_sync(own.hears, address, 9000, 3.0)
        assert one.said.count("running") == 1, "nobody waited for the guest"
        await ticked(market, jobs, 1)
        await one.finish()

    async def main() -> None:
        with anyio.fail_after(150):
            async with embedded(tmp_path, OneHidden, port=port) as made, relay(port):
                assert isinstance(made, OneHidden)
                await made.start_adapter("adapter2")
                async with Market(
                    made.market_url, wallet=await made.consumer(PURSE), chain_url=made.chain_url,
                    keep=AT_ONCE,
                ) as market:  # fmt: skip
                    await tell(made, market, own)

    with own_machine() as own:
        anyio.run(main)


def _addresses(file: Path, said: dict[str, Any]) -> dict[int, str]:
    """Of the members that it reaches, by its file."""
    found: dict[int, str] = {}
    member = -1
    for line in file.read_text().splitlines():
        if line.startswith("# member-"):
            member = int(line.removeprefix("# member-").partition(":")[0])
        if line.startswith("AllowedIPs = "):
            found[member] = line.removeprefix("AllowedIPs = ").removesuffix("/32")
    assert sorted(found) == said["members"]
    return found


async def _shown(market: Market, gang: str) -> None:
    """Each member says that it hears the guest."""

    async def seen() -> bool:
        found = await standing(market, gang)
        return all(FIRST_GUEST in {who.member for who in one.hears} for one in found.members)

    await until_true(seen, "the guest in every sight", SOON_S)


async def _left(gang: str, env: dict[str, str], own: OwnMachine, stays: Command) -> None:
    done = await tally("job", "mesh", gang, "--leave", "--json", env=env, program=own.tally)
    assert done.process.returncode == 0, str(done)
    assert json.loads(done.out[-1]) == {"gang": gang, "left": 1}
    assert await stays.ended(SOON_S) == 0, str(stays)
