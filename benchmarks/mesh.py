"""``tally bench mesh``: how much of wireguard-go's own throughput a mesh keeps, direct and relayed.

One TCP stream between the same two hosts on this machine (:mod:`benchmarks.mesh_lines`): by
wireguard-go alone, by a mesh's direct path, and by the market's relay, by turns, so that other work
meets all three. Everything runs on the cores of this machine, so no figure is that of a line; the
ratio is what is asked for. The interval is from the lowest to the highest round.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from adapter.mesh import device
from benchmarks import yardstick
from benchmarks.machine import machine
from benchmarks.mesh_lines import KINDS, lines
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import UsageError, guarded

ROUNDS: Final = 5
SECONDS: Final = 3.0
GOAL_PERCENT: Final = 70
"""Of wireguard-go alone, for a direct path."""


class NoMesh(UsageError):
    """This machine cannot make one."""

    code = "MESH_MISSING"
    remedy = "run it as root on Linux, with /dev/net/tun, wireguard-go, iproute2 and util-linux"


def run(rounds: int = ROUNDS, seconds: float = SECONDS) -> dict[str, Any]:
    """``{"bytes_per_s": {kind: {"median", "low", "high", "rounds"}}, "percent_of_bare": {kind:
    ...}, "rounds", "seconds", "machine"}``; NoMesh, LineLost, MeshFault. A share is the median of
    the shares of the single rounds, in percent.
    """
    lacks = device.missing()
    if lacks:
        raise NoMesh(f"a mesh needs {lacks}")
    before = machine()
    rates: dict[str, list[int]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="tally-mesh-") as folder, lines(Path(folder)) as made:
        for number in range(rounds):
            turn = number % len(made)
            for line in (*made[turn:], *made[:turn]):
                rates[line.kind].append(line.rate(seconds))
    return {
        "bytes_per_s": {kind: _spread(found) for kind, found in rates.items()},
        "percent_of_bare": {
            kind: _spread([
                round(100 * one / bare) for one, bare in zip(found, rates["bare"], strict=True)
            ])
            for kind, found in rates.items()
            if kind != "bare"
        },
        "rounds": rounds,
        "seconds": seconds,
        "machine": before,
    }  # fmt: skip


def _spread(found: list[int]) -> dict[str, Any]:
    return {"median": round(median(found)), "low": min(found), "high": max(found), "rounds": found}


def _print(result: dict[str, Any]) -> None:
    for kind, row in result["bytes_per_s"].items():
        low, mid, high = (row[key] / 1e6 for key in ("low", "median", "high"))
        share = result["percent_of_bare"].get(kind)
        said = f"{kind}: {mid:.1f} MB/s ({low:.1f} to {high:.1f})"
        if share is not None:
            said += f"; {share['median']} % of bare ({share['low']} to {share['high']})"
        if kind == "direct" and share is not None:
            reached = share["median"] >= GOAL_PERCENT
            said += f"; the goal is {GOAL_PERCENT} %: {'reached' if reached else 'missed'}"
        print(said)
    print(f"{result['rounds']} rounds of {result['seconds']} s each, {result['machine']}")


def _stop(_signal: int, _frame: object) -> None:
    """An ordinary end, so that everything is cleaned up."""
    sys.exit(128 + signal.SIGTERM)


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench mesh", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each line in each round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _stop)
    result = guarded(lambda: run(options.rounds, options.seconds))
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
    else:
        print(yardstick.said(result["yardstick"]))
        _print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
