"""``tally bench runtimes``: what a container, a plain process and a mesh cost the same work.

One step of a small model in PyTorch, on one core: on the host, as the process runtime runs it and
in Docker, which take turns. Then three members that train together: over loopback, over meshes that
are direct, and over meshes by a market's relay; with gradients averaged at each step
(``DistributedDataParallel``), and with parameters averaged once for several, at once or by
Hivemind. All on one machine.

A figure is the median of the rounds' medians; the interval is from the least of them to the most.
It holds the median of all such rounds with a probability of 1 - 2^(1 - rounds), 94 % of five.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from benchmarks import runtimes_places as places
from benchmarks import yardstick
from benchmarks.machine import machine
from benchmarks.runtimes_places import MEMBERS, Ran
from benchmarks.runtimes_programs import ALONE, PARAMETERS, TOGETHER, WARM, WAYS, numbers
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import UsageError, guarded

ROUNDS: Final = 5
STEPS: Final = 200
SHARED_STEPS: Final = 8
"""Of a block of members' steps; local updates are averaged once in so many."""
BLOCKS: Final = 3
TORCH: Final = Path(".venv/stacks/frameworks")
_ENV: Final = {"OMP_NUM_THREADS": "1"}

T = TypeVar("T")
Measured = dict[str, list[int]]
"""Of each figure, what every round found."""


class NoTorch(UsageError):
    """There is nothing to measure with."""

    code = "BENCH_NO_TORCH"
    remedy = "run `make stacks`, or name an environment of this Python with PyTorch by --torch"


def run(torch: Path, rounds: int, steps: int, members_too: bool) -> dict[str, Any]:
    """Every figure; ``lacks`` says what could not be measured here, and why."""
    python = str(torch / "bin" / "python3")
    if not Path(python).exists():
        raise NoTorch(f"{torch} has no bin/python3")
    lacks: dict[str, str] = {}

    async def measure() -> dict[str, Any]:
        alone = await _alone(torch, python, rounds, steps, lacks)
        together: dict[str, dict[str, Any]] = {}
        missing = places.lacks_mesh()
        if members_too and missing:
            lacks["members"] = missing
        elif members_too:
            together = await _together(torch, python, rounds)
        return {"alone": alone, "together": together}

    return {
        **anyio.run(measure), "rounds": rounds, "steps": steps, "members": MEMBERS,
        "parameters": PARAMETERS, "lacks": lacks, "machine": machine(),
    }  # fmt: skip


async def _alone(
    torch: Path, python: str, rounds: int, steps: int, lacks: dict[str, str]
) -> dict[str, Any]:
    asked = ("-u", "-c", ALONE, str(WARM), str(steps))
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as folder:
        runtime = places.processes(Path(folder), "bench", torch)

        async def host() -> Ran:
            return await anyio.to_thread.run_sync(places.on_host, (python, *asked), _ENV)

        async def process() -> Ran:
            return await places.as_workload(runtime, places.spec((python, *asked), _ENV))

        ways: dict[str, Callable[[], Awaitable[Ran]]] = {"host": host, "process": process}
        found = await anyio.to_thread.run_sync(places.docker, Path(folder), torch)
        if isinstance(found, str):
            lacks["docker"] = found
        else:
            daemon, image = found

            async def docker() -> Ran:
                line = ("python3", *asked)
                return await places.as_workload(daemon, places.spec(line, _ENV, image=image))

            ways["docker"] = docker
        return await in_turn(ways, rounds, _of_one)


def _of_one(ran: Ran) -> dict[str, int]:
    """When its program began, had PyTorch, and what a step took."""
    ((began,),), ((imported,),) = numbers(ran.said, "began"), numbers(ran.said, "imported")
    took = [ns for (ns,) in numbers(ran.said, "step")]
    return {
        "start_ms": (began - ran.asked_ns) // 1_000_000,
        "import_ms": (imported - began) // 1_000_000,
        "step_us": round(median(took)) // 1000,
    }


async def _together(torch: Path, python: str, rounds: int) -> dict[str, Any]:
    def line(at: int) -> tuple[str, ...]:
        told = (at, MEMBERS, WARM, SHARED_STEPS, BLOCKS)
        return (python, "-u", "-c", TOGETHER, *map(str, told))

    async def none() -> list[str]:
        return await places.over_loopback(line, _ENV)

    async def direct() -> list[str]:
        return await places.over_mesh("direct", torch, line, _ENV)

    async def relayed() -> list[str]:
        return await places.over_mesh("relayed", torch, line, _ENV)

    def of_all(said: list[str]) -> dict[str, int]:
        return of_members(said, one_network=False)

    def of_loopback(said: list[str]) -> dict[str, int]:
        return of_members(said, one_network=True)

    ways = {"none": none, "direct": direct, "relayed": relayed}
    return await in_turn(ways, rounds, of_all, {"none": of_loopback})


def of_members(said: list[str], one_network: bool) -> dict[str, int]:
    """A step's time and the bytes that a member sends for it, by how they train. In *one_network*
    each counts what all send.
    """
    found: dict[str, int] = {}
    for way in WAYS:
        rows = [numbers(one, way) for one in said]
        slowest = [
            max(block) for block in zip(*([ns for ns, _ in own] for own in rows), strict=True)
        ]
        sent = [round(median(count for _, count in own)) for own in rows]
        found[f"{way}_us"] = round(median(slowest)) // 1000
        found[f"{way}_bytes"] = sum(sent) // (len(said) ** 2 if one_network else len(said))
    return found


async def in_turn(
    ways: Mapping[str, Callable[[], Awaitable[T]]],
    rounds: int,
    read: Callable[[T], dict[str, int]],
    other: dict[str, Callable[[T], dict[str, int]]] | None = None,
) -> dict[str, Any]:
    """Each of *ways* once a round, begun by another each time; its figures."""
    names, told = list(ways), dict[str, Measured]()
    for at in range(rounds):
        for step in range(len(names)):
            name = names[(at + step) % len(names)]
            reads = (other or {}).get(name, read)
            for figure, value in reads(await ways[name]()).items():
                told.setdefault(name, {}).setdefault(figure, []).append(value)
    return {name: {key: _told(rows) for key, rows in told[name].items()} for name in names}


def _told(rows: Sequence[int]) -> dict[str, Any]:
    return {"median": round(median(rows)), "least": min(rows), "most": max(rows), "rows": rows}


def _range(figure: dict[str, Any], unit: int, digits: int) -> str:
    """``median (least to most)``."""
    found = (figure[key] / unit for key in ("median", "least", "most"))
    middle, least, most = (f"{one:,.{digits}f}" for one in found)
    return f"{middle} ({least} to {most})"


def show(result: dict[str, Any]) -> None:
    """As lines, for people."""
    for name, row in result["alone"].items():
        print(
            f"{name}: begins after {_range(row['start_ms'], 1, 0)} ms, has PyTorch"
            f" {_range(row['import_ms'], 1, 0)} ms later; a step takes"
            f" {_range(row['step_us'], 1000, 2)} ms"
        )
    for name, row in result["together"].items():
        for way in WAYS:
            print(
                f"{result['members']} members, mesh {name}, {way}: a step takes"
                f" {_range(row[f'{way}_us'], 1000, 1)} ms, and a member sends"
                f" {_range(row[f'{way}_bytes'], 1000, 0)} kB for it"
            )
    for what, why in result["lacks"].items():
        print(f"{what}: not measured here: {why}")
    print(f"{result['rounds']} rounds, interval from the least to the most; {result['machine']}")


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench runtimes", description=__doc__)
    parser.add_argument("--torch", type=Path, default=TORCH, help="an environment with PyTorch")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=STEPS, help="of one program alone")
    parser.add_argument("--alone", action="store_true", help="measure no members")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    result = guarded(
        lambda: run(options.torch.resolve(), options.rounds, options.steps, not options.alone)
    )
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
    else:
        print(yardstick.said(result["yardstick"]))
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
