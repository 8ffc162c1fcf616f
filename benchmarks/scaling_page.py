"""The figures of ``docs/scaling.md``: its tables between two marks, and its plot."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.scaling_settings import GOALS, KINDS, Setting, cheapest, table
from benchmarks.scaling_world import Outcome

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
PAGE: Final = DOCS / "scaling.md"
PLOT: Final = DOCS / "scaling.svg"
BEGIN: Final = "<!-- tally bench scaling -->"
END: Final = "<!-- end -->"
MARKS: Final = {"reactive": "o", "predictive": "^", "fixed": "s", "oracle": "*"}
SHOWN: Final = 0.1  # of requests late: what is beyond is of no use to anybody


def write(found: dict[str, dict[Setting, Outcome]]) -> None:
    """Both, from what was found of each trace."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    tables = "\n\n".join(_table(name, outcomes) for name, outcomes in found.items())
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}", encoding="utf-8")
    _plot(found)


def _table(name: str, outcomes: dict[Setting, Outcome]) -> str:
    asked = next(iter(outcomes.values())).asked
    lines = [
        f"### {name}: {asked:,} requests counted",
        "",
        f"| late at most | {' | '.join(f'{kind}, replica-hours' for kind in KINDS)} | saved by the"
        " forecast | its setting |",
        "|---|" + "---|" * (len(KINDS) + 2),
    ]
    for goal, (late, *hours) in zip(GOALS, table(outcomes), strict=True):
        waiting, ahead = (cheapest(outcomes, kind, goal) for kind in KINDS[:2])
        saved, how = "–", "–"
        if waiting is not None and ahead is not None:
            share = 1 - outcomes[ahead].replica_ms / outcomes[waiting].replica_ms
            saved, how = f"{share:.1%}", ahead.said()
        lines.append(f"| {late} | {' | '.join(hours)} | {saved} | {how} |")
    return "\n".join(lines)


def _plot(found: dict[str, dict[Setting, Outcome]]) -> None:
    mpl.rcParams["svg.hashsalt"] = "tally"  # the same figures give the same file
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(5 * len(found), 4.2), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for place, (name, outcomes) in zip(axes, found.items(), strict=True):
        for kind in KINDS:
            shown = [
                (one.hours, 100 * one.late_share)
                for setting, one in outcomes.items()
                if setting.kind == kind and one.late_share <= SHOWN
            ]
            if shown:
                place.scatter(*zip(*shown, strict=True), marker=MARKS[kind], label=kind, s=22)
        place.set_title(name)
        place.set_xlabel("replica-hours")
        place.set_ylabel("% of requests late")
        place.set_yscale("symlog", linthresh=0.1)
        place.set_ylim(-0.02, 100 * SHOWN)
    axes[0].legend()
    figure.savefig(PLOT, metadata={"Date": None})  # pyright: ignore[reportUnknownMemberType] -- its types lack IO's
