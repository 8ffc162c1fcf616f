"""A whole embedded market for one test: its own home, its own processes, nothing left behind.

Deadlines are for a machine that does ten other things; no test waits on a clock, only on what
happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from marketplace.cli.embedded.containers import Containers
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import start
from marketplace.client.net.answers import JobAnswer
from marketplace.client.sdk.market import Market
from marketplace.domain.metering.reading import Cause
from marketplace.domain.money.invoice.bill import Invoice, Line
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.units import LOVELACE_PER_ADA
from tests.e2e.support.wire import keep_ports
from tests.ports import free_port
from tests.requires import need_devnet, need_docker

TALLY = (sys.executable, "-m", "marketplace.cli.main")
PATIENCE_S = 400
PURSE = 300 * LOVELACE_PER_ADA
LINES = """
import time
for n in range({lines}):
    print("line", n, flush=True)
    time.sleep(1)
"""


@asynccontextmanager
async def embedded(
    folder: Path, kind: type[Embedded] = Embedded, **more: Any
) -> AsyncGenerator[Embedded]:
    """Devnet, market and adapter, started; stopped, and their containers removed, with the
    block.
    """
    ports = {"port": free_port(), "devnet_port": free_port()}  # its parts are killed, and come back
    place = kind(folder / "up", **{"block_ms": 400, "resume_window": "2m", **ports, **more})
    place.prepare()
    try:
        await start(place, PURSE)
        told = "Docker is here, and the image of this Python is not"
        assert place.image or kind is not Embedded, told
        yield place
    finally:
        with anyio.CancelScope(shield=True):
            await place.stop()
            await place.sweep()


@dataclass
class World:
    """An embedded market, Docker's own account of its containers, and the consumer's view."""

    place: Embedded
    docker: Containers
    market: Market
    folder: Path

    async def restart(self, name: str, **more: str) -> None:
        """Start part *name* again, as its supervisor would."""
        if name == "devnet":
            await self.place.start_devnet()
        elif name == "market":
            await self.place.start_market()
        else:
            await self.place.start_adapter(**more)

    async def kill(self, name: str) -> None:
        """SIGKILL, at once."""
        process = self.place.parts[name].process
        assert process is not None
        process.kill()
        await process.wait()


def story(
    folder: Path,
    tell: Callable[[World], Awaitable[None]],
    *,
    patience_s: float = PATIENCE_S,
    **more: Any,
) -> None:
    """*tell* in a fresh world."""
    need_docker()
    need_devnet()

    os.environ["TALLY_ALSO_URL"] = " ".join(keep_ports(3))

    async def main() -> None:
        with anyio.fail_after(patience_s):
            async with embedded(folder, **more) as place, Containers() as docker:
                purse = await place.purse("consumer")
                async with Market(
                    place.market_url, wallet=purse, chain_url=place.chain_url, keep=AT_ONCE
                ) as market:
                    await tell(World(place, docker, market, folder))

    anyio.run(main)


def job_file(folder: Path, image: str, lines: int, gpu: bool = False, name: str = "job") -> Path:
    """A job that prints a line each second."""
    path = folder / f"{name}.json"
    resources: dict[str, Any] = {"cpu": 0.5, "memory": "128MB"}
    if gpu:
        resources["gpu"] = {"count": 1}
    path.write_text(
        json.dumps({
            "version": 1,
            "name": name,
            "image": image,
            "command": ["python3", "-c", LINES.format(lines=lines)],
            "resources": resources,
            "price": {"budget": "5 ADA"},
            "policy": {"max_duration": "10m"},
        })
    )  # fmt: skip
    return path


@dataclass
class Command:
    """A running ``tally`` command: its lines as they come."""

    process: anyio.abc.Process
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    _news: anyio.Event = field(default_factory=anyio.Event)

    async def read(self, stream: anyio.abc.ByteReceiveStream, lines: list[str]) -> None:
        held = b""
        async for chunk in stream:
            *whole, held = (held + chunk).split(b"\n")
            lines += [line.decode() for line in whole]
            self._tell()
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def until(self, seen: Callable[[Command], bool], seconds: float = 180) -> None:
        """Until *seen*, or fail with all that it said."""
        try:
            with anyio.fail_after(seconds):
                while not seen(self):
                    assert self.process.returncode is None, f"it ended: {self}"
                    with anyio.move_on_after(1):
                        await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"it did not come: {self}") from None

    async def ended(self, seconds: float = 240) -> int:
        """Its exit code."""
        with anyio.fail_after(seconds):
            return await self.process.wait()

    @property
    def last(self) -> dict[str, Any]:
        """The JSON of its last line."""
        lines = [line for line in self.out if line.strip()]
        assert lines, f"it printed nothing: {self.err[-20:]}"
        return json.loads(lines[-1])

    def __str__(self) -> str:
        return f"code {self.process.returncode}\n" + "\n".join([*self.out[-20:], *self.err[-40:]])


@asynccontextmanager
async def command(
    *arguments: str,
    env: dict[str, str] | None = None,
    own_group: bool = False,
    program: Sequence[str] = TALLY,
) -> AsyncGenerator[Command]:
    """``tally`` *arguments* as a process of its own; killed with the block if it still runs.

    *program* is the ``tally`` of another version.
    """
    process = await anyio.open_process(
        [*program, *arguments],
        stdin=-3,
        env={**os.environ, **(env or {}), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
        start_new_session=own_group,
    )
    made = Command(process)
    assert process.stdout is not None and process.stderr is not None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.read, process.stdout, made.out)
            tasks.start_soon(made.read, process.stderr, made.err)
            try:
                yield made
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def tally(*arguments: str, env: dict[str, str], program: Sequence[str] = TALLY) -> Command:
    """One command, to its end."""
    async with command(*arguments, env=env, program=program) as made:
        await made.ended()
    return made


async def until_true(seen: Callable[[], Awaitable[Any]], what: str, seconds: float = 200) -> Any:
    """The first true answer of *seen*."""
    try:
        with anyio.fail_after(seconds):
            while not (found := await seen()):  # noqa: ASYNC110  it is asked, it tells nobody
                await anyio.sleep(0.3)
            return found
    except TimeoutError:
        raise AssertionError(f"it never came: {what}") from None


async def newest_job(world: World) -> dict[str, Any]:
    """The consumer's newest job, once there is one."""
    jobs = await until_true(world.market.jobs, "a job")
    return jobs[0]


async def until_ended(world: World, name: str) -> JobAnswer:
    """The job's last view; it must say why it ended."""
    job = world.market.job(name)

    async def over() -> bool:
        return (await job.refresh())["state"] == "ENDED"

    await until_true(over, f"the end of {name}")
    assert job.view["reason"], job.view
    return job.view


async def settled_bill(world: World, name: str) -> Invoice:
    """The job's bill once the ledger agrees with it to the lovelace."""
    job = world.market.job(name)

    async def agrees() -> Invoice | None:
        bill = await job.invoice(verify=True)
        return bill if bill.reconciled else None

    return await until_true(agrees, f"the settlement of {name}")


def lost_ms(line: Line) -> int:
    """What the container lived through and nobody was billed for."""
    return sum(x.ms for x in line.lost if x.cause not in (Cause.PULLING, Cause.STARTING))


async def check_against_docker(world: World, bill: Invoice, slack_ms: int = 1000) -> None:
    """Nothing billed beyond Docker's own time, and nothing vanished without a word."""
    for line in bill.lines:
        docker_ms = await world.docker.ran_ms(line.lease)
        assert docker_ms is not None, f"Docker never saw {line.lease}"
        billed_ms = line.unit_ms * 1000 // line.units_milli
        assert billed_ms <= docker_ms + 1000, (billed_ms, docker_ms, line)
        assert abs(billed_ms + lost_ms(line) - docker_ms) <= slack_ms, (billed_ms, docker_ms, line)


def parts_of(parent: int) -> list[int]:
    """The processes that *parent* started."""
    found: list[int] = []
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        found += [int(pid) for pid in children.read_text().split()]
    return found


async def until_gone(pids: list[int]) -> None:
    """Until none of these processes runs."""

    async def gone() -> bool:
        return not [pid for pid in pids if Path(f"/proc/{pid}").exists()]  # noqa: ASYNC240

    await until_true(gone, f"the end of {pids}", 60)
