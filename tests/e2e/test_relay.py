"""A relay is billed for the time in which it serves: another implementation of node-to-node is the workload, a real
adapter its host, and the bill is held against the relay's own account of its life.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from adapter.runtime.docker.door import connect
from marketplace.cli.embedded.product import PROCESS_ONLY, Embedded
from marketplace.client.sdk.market import Market
from marketplace.domain.ouroboros.reading import NETWORKS
from tests.e2e.support.embedded import PATIENCE_S, command, embedded, tally, until_true
from tests.integration.chain.test_relay_probe import Block
from tests.ports import free_port
from tests.requires import need_bubblewrap, need_devnet, need_docker, need_node
from tests.unit.support.browser_verifier import browser_says

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
PROGRAM: Final = Path(__file__).parents[1] / "ouroboros"
PREPROD: Final = NETWORKS["preprod"]
Life = tuple[tuple[str, int], ...]
Meanwhile = Callable[[Embedded, str], Awaitable[None]]
JobFile = Callable[[Path, Embedded, int, Life], Path]
LIFE: Final[Life] = (
    ("syncing", 3),
    ("tip", 7),
    ("lagging", 4),
    ("gone", 4),
    ("tip", 6),
    ("lagging", 2),
)
LONG: Final[Life] = (
    ("syncing", 60), ("tip", 300), ("lagging", 30), ("gone", 30), ("tip", 60), ("lagging", 1),
)  # fmt: skip
TICK_MS: Final = 1000
PARTS: Final = ("relay.mjs", "scripted.mjs", "package.json", "node_modules")


class RelayHost(Embedded):
    """A provider of plain processes, which may listen at this machine's own ports."""

    def find_image(self) -> str:
        return PROCESS_ONLY

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        path.write_text("host_network = true\n" + path.read_text())
        return path


class RelayInContainer(Embedded):
    """A provider of containers, to whom the relay's image is known."""

    def find_image(self) -> str:
        self.built: list[str] = []
        self.base = super().find_image()
        return self.build("first")

    def build(self, version: str) -> str:
        """The relay's image of that name, by its digest."""
        # The labels make it no other test's, which would remove it.
        labels = {"version": version, "of": str(self.home)}
        self.built.append(build_relay(context(self.base), labels))
        return self.built[-1]

    async def sweep(self) -> int:
        swept = await super().sweep()
        await anyio.to_thread.run_sync(self._forget)
        return swept

    def _forget(self) -> None:
        for image in self.built:
            forget_relay(image)


def build_relay(given: io.BytesIO, labels: dict[str, str]) -> str:
    """The image of that :func:`context`, by its digest."""
    client = connect("")
    try:
        built, _ = client.images.build(
            fileobj=given, custom_context=True, rm=True, forcerm=True, labels=labels
        )
    finally:
        client.close()
    return str(built.id)


def forget_relay(image: str) -> None:
    client = connect("")
    try:
        client.images.remove(image, force=True)
    finally:
        client.close()


def context(base: str, life: Path | None = None) -> io.BytesIO:
    """What Docker builds the relay's image from: this machine's node, its libraries, the program.
    With a *life* it is run whatever a job's command says, as a published image's entrypoint is.
    """
    made, node = io.BytesIO(), shutil.which("node") or ""
    said = subprocess.run(["ldd", node], capture_output=True, text=True, check=True).stdout
    libraries = [path for line in said.splitlines() for path in re.findall(r"=> (/\S+)", line)]
    lines = f"FROM {base}\nCOPY libraries /usr/lib/x86_64-linux-gnu\nCOPY relay /relay\n"
    if life is not None:
        run = ["/relay/node", "/relay/scripted.mjs", "3001", "/relay/life.json", "12798"]
        lines += f"ENTRYPOINT {json.dumps(run)}\n"
    with tarfile.open(fileobj=made, mode="w", dereference=True) as archive:
        about = tarfile.TarInfo("Dockerfile")
        about.size = len(lines)
        archive.addfile(about, io.BytesIO(lines.encode()))
        for path in libraries:
            archive.add(path, f"libraries/{Path(path).name}")
        archive.add(node, "relay/node")
        for part in PARTS:
            archive.add(PROGRAM / part, f"relay/{part}")
        if life is not None:
            archive.add(life, "relay/life.json")
    made.seek(0)
    return made


def in_container(folder: Path, place: Embedded, port: int, life: Life) -> Path:
    """A job file of a relay that lives so in a container, at a port of its own."""
    write_life(folder, life)
    return written(
        folder,
        image=place.image,
        command=["/relay/node", "/relay/scripted.mjs", str(port), "/workspace/life.json"],
        files=[{"src": str(folder / "life.json"), "dst": "/workspace/life.json"}],
        relay={"network": "preprod", "port": port, "lag": "60s"},
    )


def as_process(folder: Path, _place: Embedded, port: int, life: Life) -> Path:
    """A job file of a relay that lives so, with all that it needs as its files."""
    write_life(folder, life)
    with tarfile.open(folder / "relay.tgz", "w:gz") as archive:
        for part in PARTS:
            archive.add(PROGRAM / part, part)
    run = f"tar xzf relay.tgz && exec node scripted.mjs {port} life.json"
    return written(
        folder,
        command=["sh", "-c", run],
        files=[
            {"src": str(folder / name), "dst": f"/workspace/{name}"}
            for name in ("relay.tgz", "life.json")
        ],
        relay={"network": "preprod", "port": port, "lag": "60s"},
        ports=[{"port": port, "direct": True}],
        env={"OPENSSL_CONF": "/dev/null"},  # /etc is not there
        egress="open",
        placement={"isolation": "process"},
    )


def written(folder: Path, **job: Any) -> Path:
    """The job file."""
    path = folder / "relay.json"
    more = {
        "version": 1,
        "name": "relay",
        "resources": {"cpu": 0.5, "memory": "256MB"},
        "price": {"budget": "5 ADA"},
        "policy": {"max_duration": "30m"},
    }
    path.write_text(json.dumps({**more, **job}))
    return path


def write_life(folder: Path, life: Life) -> None:
    """The chain that the relay has, and what it does with it."""
    first = PREPROD.clock.at(int(time.time() * 1000)) - 200
    told = [
        json.loads(Block(first + n, n).told())
        for n in range(200 + 2 * sum(seconds for _, seconds in life) + 120)
    ]
    script = {"magic": PREPROD.magic, "zero_ms": PREPROD.clock.when(first), "first": first}
    (folder / "life.json").write_text(json.dumps({**script, "chain": told, "life": life}))


@dataclass(frozen=True)
class Lived:
    """What the relay said of itself: each state with the ms that it lasted."""

    stretches: tuple[tuple[str, int], ...]

    @staticmethod
    def read(lines: list[str]) -> Lived:
        said = [line.split() for line in lines if line.split()[1:] and line.split()[1].isdecimal()]
        times = [(state, int(at)) for state, at in said]
        return Lived(tuple((state, after - at) for (state, at), (_, after) in pairwise(times)))

    def ms(self, state: str) -> tuple[int, int]:
        """How long in all, and how often it began or ended."""
        of = [ms for name, ms in self.stretches if name == state]
        return sum(of), 2 * len(of)


def test_a_relay_is_billed_for_the_time_at_its_tip(tmp_path: Path) -> None:
    """However busy this machine is: never for a second that did not serve, and each line has its
    time.
    """
    bill, lived = told(tmp_path, LIFE)
    tip_ms, changes = lived.ms("tip")
    # A reading is at most a tick later than the look that it holds.
    assert tip_ms / 2 < billed_ms(bill) <= tip_ms + changes // 2 * TICK_MS, (bill, lived)
    assert {"syncing", "lagging", "unreachable"} <= lost(bill).keys()


@pytest.mark.nightly  # tests/e2e/test_relay_life.py proves containers
def test_so_is_one_in_a_container(tmp_path: Path) -> None:
    need_docker()
    bill, lived = told(tmp_path, LIFE, host=RelayInContainer, job=in_container)
    tip_ms, changes = lived.ms("tip")
    assert tip_ms / 2 < billed_ms(bill) <= tip_ms + changes // 2 * TICK_MS, (bill, lived)
    assert {"syncing", "lagging", "unreachable"} <= lost(bill).keys()


@pytest.mark.nightly
@pytest.mark.alone  # eight minutes
@pytest.mark.timeout(PATIENCE_S + 720)
def test_each_change_costs_a_tick_at_most(tmp_path: Path) -> None:
    bill, lived = told(tmp_path, LONG)
    tip_ms, changes = lived.ms("tip")
    print(f"at the tip {tip_ms} ms, billed {billed_ms(bill)} ms, {changes} changes", lost(bill))
    assert abs(tip_ms - billed_ms(bill)) <= changes * TICK_MS
    for cause, state in (("lagging", "lagging"), ("unreachable", "gone")):
        ms, of = lived.ms(state)
        assert abs(lost(bill)[cause] - ms) <= of * TICK_MS, cause


def billed_ms(bill: dict[str, Any]) -> int:
    [line] = bill["lines"]
    return line["unit_ms"] * 1000 // line["units_milli"]


def lost(bill: dict[str, Any]) -> dict[str, int]:
    [line] = bill["lines"]
    return {part["cause"]: part["ms"] for part in line["lost"]}


@pytest.mark.nightly
def test_while_nobody_looks_nothing_is_billed(tmp_path: Path) -> None:
    """The adapter is killed and comes back: the relay ran on, and nobody saw that it served."""
    away_s = 8

    async def kill(place: Embedded, job: str) -> None:
        async def served() -> bool:
            return bool((await market_story(place, job)).count("AT_TIP"))

        await until_true(served, "the tip")
        stood = await tally("node", "status", job, "--json", env=place.environment)
        where = stood.last["place"]
        assert await is_probed(where), where  # from outside, without the market
        await anyio.sleep(4)
        process = place.parts["adapter"].process
        assert process is not None
        process.kill()
        await process.wait()
        await anyio.sleep(away_s)
        assert not await is_probed(where)
        await place.start_adapter()
        await until_true(lambda: is_probed(where), "the same address again")

    bill, lived = told(tmp_path, (("syncing", 3), ("tip", 60), ("lagging", 1)), kill)
    tip_ms, _ = lived.ms("tip")
    assert lost(bill)["unproven"] >= away_s * 1000
    assert 4000 < billed_ms(bill) <= tip_ms + TICK_MS - away_s * 1000


def told(
    folder: Path,
    life: Life,
    meanwhile: Meanwhile | None = None,
    host: type[Embedded] = RelayHost,
    job: JobFile = as_process,
) -> tuple[dict[str, Any], Lived]:
    """The bill of a relay that lived so, and its own account."""
    need_node()
    need_bubblewrap()
    need_devnet()

    async def main() -> tuple[dict[str, Any], Lived]:
        with anyio.fail_after(PATIENCE_S + sum(seconds for _, seconds in life)):
            async with embedded(folder, host) as place:
                file = job(folder, place, free_port(), life)
                return await lived_and_paid(folder, place, file, life, meanwhile)

    return anyio.run(main)


async def is_probed(where: str) -> bool:
    """Whether a relay at its tip answers at *where*, as its peers would ask it."""
    looked = await tally("node", "probe", where, "--network", "preprod", "--lag", "60s", env={})
    return looked.process.returncode == 0


async def lived_and_paid(
    folder: Path, place: Embedded, file: Path, life: Life, meanwhile: Meanwhile | None
) -> tuple[dict[str, Any], Lived]:
    env = place.environment
    async with command("job", "run", str(file), "--yes", "--json", "--keep", "0", env=env) as ran:
        if meanwhile is not None:
            async with Market(place.market_url, wallet=await place.purse("consumer")) as market:
                [job] = await until_true(market.jobs, "the job")
            await meanwhile(place, job["id"])
        ended = await ran.ended(PATIENCE_S + sum(seconds for _, seconds in life))
        assert ended == 0 and ran.last["reason"] == "COMPLETED", str(ran)
    job, saved = ran.last["job"], folder / "evidence.json"
    billed = await tally("invoice", job, "--verify", "--json", "--save", str(saved), env=env)
    assert billed.last["reconciled"] is True, str(billed)
    agree(saved.read_text(), billed.last)
    kinds = await market_story(place, job)
    assert "AT_TIP" in kinds and "OFF_TIP" in kinds, kinds
    stood = await tally("node", "status", job, "--json", env=env)
    assert stood.process.returncode == 1, str(stood)  # it has ended
    line = billed.last["lines"][0]
    assert stood.last["served_ms"] == line["unit_ms"] * 1000 // line["units_milli"]
    assert stood.last["spent"] == line["owed"] and stood.last["lags_ms"]
    logged = await tally("job", "logs", job, env=env)
    return billed.last, Lived.read(logged.out)


async def market_story(place: Embedded, job: str) -> list[str]:
    """The kinds of the job's events so far."""
    async with Market(place.market_url, wallet=await place.purse("consumer")) as market:
        told = [one async for one in market.job(job).events(follow=False)]
    return [one["kind"] for one in told if "kind" in one]


def agree(evidence: str, bill: dict[str, Any]) -> None:
    """The browser's verifier says the same of every line."""
    [said] = browser_says([(evidence, [])])
    assert said["rule"] == "", said
    [theirs], [ours] = said["bill"]["lines"], bill["lines"]
    for name in ("unit_ms", "owed", "lost"):
        assert theirs[name] == ours[name], name
