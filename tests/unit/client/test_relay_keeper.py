"""Who keeps a relay, at a market of a few lines: what it rents, whom it tells, and what it writes down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.relays.core import Rules
from marketplace.client.relays.folder import RelayFile
from marketplace.client.relays.keeper import RelayKeeper, Wanted
from marketplace.client.relays.stage import Stage
from marketplace.domain.supply.offer import offer_id
from marketplace.domain.work.direct_port import DirectPorts, DirectPortsUnproven
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Port
from marketplace.domain.work.relay import RelayNeed
from marketplace.domain.work.volume import Mount
from marketplace.system import SystemClock
from tests.unit.support.adapter import core_job, volume_job

pytestmark = pytest.mark.anyio
CHAIN = volume_job()
RELAY = core_job(
    name="relay-1", kind="service", ports=(Port(3001, direct=True),),
    relay=RelayNeed("preprod", 3001), volumes=(Mount("chain", "/data"),),
)  # fmt: skip
OFFER = {
    "id": "offer", "provider": "", "region": "", "labels": {}, "trust": 0, "isolation": [], "core_rate_micro": 0,
    "cpu": {"model": "", "cores": 1, "milli": 1000}, "memory_mib": 1, "disk_mib": 1, "gpus": [],
    "egress": True, "state": "LISTED",
}  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Place:
    """A market: its jobs by id, and since when a provider is away."""

    made: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    away: set[str] = field(default_factory=set[str])
    forged: bool = False
    dies: bool = False
    purse: None = None

    @property
    def http(self) -> Any:
        async def get(path: str) -> Any:
            gone = "all" in self.away or any(path.endswith(offer_id(one)) for one in self.away)
            since = SystemClock().now_ms() - 60_000 if gone else 0
            return {**OFFER, "away_since_ms": since}

        return SimpleNamespace(get=get)

    async def run(self, loaded: LoadedJob) -> Any:
        spec, number = loaded.spec, len(self.made) + 1
        provider = f"{number:02d}" * 32
        lease = f"lease_{number}"
        self.made[f"job_{number}"] = {
            "id": f"job_{number}", "name": spec.name, "kind": spec.kind, "state": "RUNNING",
            "provider": provider, "lease": lease, "spec": spec.to_wire(), "created_at_ms": number,
            "started_at_ms": 1, "finished_at_ms": 0, "unit_ms": 0, "rate_micro": 1, "spent": 0,
        }  # fmt: skip
        return SimpleNamespace(id=f"job_{number}")

    async def jobs(self, state: str) -> list[Any]:
        return [one for one in self.made.values() if one["state"] == state]

    def attach(self, name: str) -> None:
        assert name in self.made

    def job(self, name: str) -> Any:
        row = self.made[name]

        async def refresh() -> Any:
            return row

        async def stop() -> None:
            if self.dies:
                raise KeyError("as a kill would")
            row["state"] = "ENDED"

        async def direct_ports() -> DirectPorts | None:
            if self.forged:
                raise DirectPortsUnproven("the provider did not sign")
            return DirectPorts(
                row["lease"], f"{name.replace('_', '')}.example", ((3001, 30_000),), 1
            )

        async def events(follow: bool) -> AsyncIterator[Any]:
            yield {
                "id": "e", "job": name, "lease": row["lease"], "at_ms": 1, "kind": "AT_TIP",
                "detail": {},
            }  # fmt: skip

        return SimpleNamespace(refresh=refresh, stop=stop, direct_ports=direct_ports, events=events)

    def spec(self, job: str) -> JobSpec:
        return JobSpec.from_wire(self.made[job]["spec"])

    def alive(self) -> list[str]:
        return [name for name, row in self.made.items() if row["state"] == "RUNNING"]


async def kept(
    folder: Path, place: Place, until: Callable[[], object], hook: str = "", most: int = 2
) -> list[str]:
    """What a keeper said, until so much is so; another takes up from there."""
    said: list[str] = []
    rules = Rules(away_ms=30_000, most=most)
    wanted = Wanted(LoadedJob(CHAIN, {}), LoadedJob(RELAY, {}), None, hook, rules, 0.005)
    keeper = RelayKeeper(cast(Any, place), RelayFile(folder, "relay-1"), wanted, said.append)
    with RelayFile(folder, "relay-1").held():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.run)
            with anyio.fail_after(20):
                while not until():  # noqa: ASYNC110  it is seen, and tells nobody
                    await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
    return said


def stage(folder: Path) -> Stage:
    return RelayFile(folder, "relay-1").read().stage


def heard(folder: Path) -> str:
    """The address that the hook took last."""
    return RelayFile(folder, "relay-1").read().told


async def test_it_rents_a_volume_and_a_relay_on_it_and_tells_its_address(tmp_path: Path) -> None:
    place, told = Place(), tmp_path / "told"
    hook = f'echo "$RELAY_NAME $RELAY_BEFORE>$RELAY_PLACE" >> {told}'
    await kept(tmp_path, place, lambda: heard(tmp_path), hook)
    assert place.alive() == ["job_1", "job_2"] and place.spec("job_1").is_volume
    assert [one.volume for one in place.spec("job_2").volumes] == ["lease_1"]
    assert told.read_text() == "relay-1 >job2.example:30000\n"
    await kept(tmp_path, place, lambda: stage(tmp_path) is Stage.SERVING, hook)
    assert len(place.made) == 2 and told.read_text().count("\n") == 1  # another keeper: nothing new


async def test_one_whose_host_is_gone_is_begun_elsewhere_and_left(tmp_path: Path) -> None:
    place, told = Place(), tmp_path / "told"
    hook = f'echo "$RELAY_BEFORE>$RELAY_PLACE" >> {told}'
    await kept(tmp_path, place, lambda: heard(tmp_path), hook)
    lost = place.made["job_1"]["provider"]
    place.away = {lost}
    said = await kept(tmp_path, place, lambda: len(place.made) >= 3)
    assert place.made["job_1"]["state"] == place.made["job_2"]["state"] == "ENDED"
    assert place.spec("job_3").placement.not_providers == (lost,)
    assert any("begins elsewhere" in line for line in said)
    place.away = set()
    await kept(tmp_path, place, lambda: heard(tmp_path) == "job4.example:30000", hook)
    assert told.read_text().splitlines()[1] == "job2.example:30000>job4.example:30000"
    assert place.alive() == ["job_3", "job_4"]


async def test_a_keeper_that_dies_while_it_leaves_a_host_leaves_nothing_that_runs(
    tmp_path: Path,
) -> None:
    """A provider that came back would be paid for what nobody wants."""
    place = Place()
    await kept(tmp_path, place, lambda: stage(tmp_path) is Stage.SERVING)
    place.away, place.dies = {place.made["job_1"]["provider"]}, True
    with pytest.raises(BaseExceptionGroup):
        await kept(tmp_path, place, lambda: False)
    assert place.alive() == ["job_1", "job_2"]
    place.dies = False
    await kept(tmp_path, place, lambda: len(place.made) >= 3)
    assert not {"job_1", "job_2"} & set(place.alive())


async def test_a_market_that_says_forever_that_a_provider_is_away_is_paid_for_so_much(
    tmp_path: Path,
) -> None:
    place = Place(away={"all"})

    def over() -> bool:
        now = RelayFile(tmp_path, "relay-1").read()
        return len(now.replaced_ms) == 3 and not place.alive()

    await kept(tmp_path, place, over)
    looks = iter(range(50))
    said = await kept(tmp_path, place, lambda: next(looks, None) is None)
    assert [line for line in said if "nothing is rented now" in line] == said
    assert len([one for one in place.made.values() if one["kind"] == "volume"]) == 1 + 2


async def test_an_address_that_nobody_signed_is_told_nobody_and_hides_no_loss(
    tmp_path: Path,
) -> None:
    place, told = Place(forged=True), tmp_path / "told"
    hook = f"echo x >> {told}"
    said = await kept(tmp_path, place, lambda: stage(tmp_path) is Stage.SERVING, hook)
    assert any("DIRECT_PORTS_UNPROVEN" in line for line in said) and not told.exists()
    place.away = {"01" * 32}
    await kept(tmp_path, place, lambda: len(place.made) >= 3, hook)


async def test_a_hook_that_fails_hears_of_it_again(tmp_path: Path) -> None:
    place, tries = Place(), tmp_path / "tries"
    hook = f'echo x >> {tries}; test "$(wc -l < {tries})" -ge 3'
    await kept(tmp_path, place, lambda: heard(tmp_path), hook)
    assert tries.read_text().count("x") == 3


async def test_what_was_agreed_to_before_a_crash_is_taken_up(tmp_path: Path) -> None:
    """The jobs run, and nothing was written down."""
    place = Place()
    await place.run(LoadedJob(CHAIN, {}))
    await place.run(LoadedJob(replace(RELAY, volumes=(Mount("lease_1", "/data"),)), {}))
    said = await kept(tmp_path, place, lambda: stage(tmp_path) is Stage.SERVING)
    assert len(place.made) == 2 and sum("is taken up" in line for line in said) == 2
