"""A start does not wait for the chain while leases run, and refuses to mix networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from blockfrost import BlockFrostApi

from adapter import equipment, main
from adapter.config import Config, ConfigRefused, check
from adapter.core.state import State
from adapter.core.workload import RuntimeFault
from adapter.host.keys import Keys
from adapter.journal.journal import Journal
from adapter.main import OtherNetwork
from adapter.money.deferred_chain import DeferredChain
from adapter.runtime.docker.market_images import MarketImages
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.domain.protocol import wire
from tests.fakes import seed
from tests.unit.support.adapter import SESSION, Bench

pytestmark = pytest.mark.anyio
VK = SESSION.verify_key


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Noted:
    """A chain that writes down what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    def watch(self, session_vk: bytes) -> None:
        self.asked.append(("watch", session_vk))

    def examine(self, session_vk: bytes, tx: bytes) -> None:
        self.asked.append(("examine", session_vk))

    def settle(self, session_vk: bytes) -> None:
        self.asked.append(("settle", session_vk))

    def heard(self, message: wire.EndsProposed | wire.EndDeclined) -> None:
        self.asked.append(("heard", b""))

    async def run(self) -> None:
        await anyio.sleep_forever()


async def test_what_is_asked_of_a_late_chain_is_handed_over() -> None:
    noted, there = Noted(), anyio.Event()

    async def make() -> Noted:
        await there.wait()
        return noted

    late = DeferredChain(make)
    late.watch(b"1")
    late.settle(b"2")
    async with anyio.create_task_group() as group:
        group.start_soon(late.run)
        await anyio.wait_all_tasks_blocked()
        assert noted.asked == []
        late.watch(b"3")
        there.set()
        await anyio.wait_all_tasks_blocked()
        assert noted.asked == [("watch", b"1"), ("watch", b"3"), ("settle", b"2")]
        late.watch(b"4")
        late.settle(b"5")
        assert noted.asked[3:] == [("watch", b"4"), ("settle", b"5")]
        group.cancel_scope.cancel()


async def silent() -> ChainReader:
    """A chain that never answers."""
    await anyio.sleep_forever()
    raise AssertionError


async def other() -> ChainReader:
    """Network 1."""
    return ChainReader(BlockFrostApi(project_id="none", base_url="http://127.0.0.1:9"), 1, 1.0)


async def test_with_leases_the_network_is_the_journals(tmp_path: Path) -> None:
    journal, held = Journal(tmp_path / "j.db"), Bench().running().state
    journal.bind(42)
    with anyio.fail_after(10):
        assert await main.network(journal, held, silent) == 42
    journal.close()


async def test_without_leases_the_chain_says_which_network_it_is(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "j.db")
    assert await main.network(journal, State(), other) == 1
    journal.bind(42)
    assert await main.network(journal, State(), other) == 1
    assert journal.network() == 1
    journal.bind(42)
    channels = State(channels=Bench().running().state.channels)
    with pytest.raises(OtherNetwork, match="network 42, the chain there is 1"):
        await main.network(journal, channels, other)
    assert journal.network() == 42
    journal.close()


def test_a_docker_that_is_away_is_waited_for_and_nothing_else_runs_instead(tmp_path: Path) -> None:
    away = Config(state=tmp_path, docker_host=f"unix://{tmp_path}/no.sock")
    registry = MarketImages("http://127.0.0.1:1", seed("adapter"), lambda: 0)
    keys = Keys(seed("adapter"), seed("end"), seed("fee"))
    for runtime in ("docker", "both"):
        with pytest.raises(RuntimeFault):
            equipment.runtimes(replace(away, runtime=runtime), keys, registry)
    found = equipment.runtimes(replace(away, runtime="process"), keys, registry)
    assert set(found) == {"process"}
    with pytest.raises(ConfigRefused, match="runtime is docker"):
        check(replace(away, runtime="auto"))
