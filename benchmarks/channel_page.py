"""What is said of the table of ``tally bench channel``: its gates, and ``docs/costs.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

SIZES: Final = (1, 10, 40)
SECTION: Final = "## A hundred small jobs"
"""Written by ``tally bench purse``; kept as it is."""
DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs" / "costs.md"


def gates(report: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """(gate, measured, bound, holds) for every gate of the channel's design that *report* can
    answer.
    """
    rows = report["rows"]

    def row(step: str, channels: int | None, each: bool) -> dict[str, Any] | None:
        found = [
            r
            for r in rows
            if r["asset"] == "ADA"
            and r["step"] == step
            and (r["channels"] == channels if channels is not None else r["channels"] not in SIZES)
            and (r["channels"] == 1 or (r["providers"] > 1) == each)
        ]
        return max(found, key=lambda r: r["channels"]) if found else None

    checks: list[tuple[str, float, float, bool]] = []

    def at_most(name: str, value: float, bound: float) -> None:
        checks.append((name, value, bound, value <= bound))

    def at_least(name: str, value: float, bound: float) -> None:
        checks.append((name, value, bound, value >= bound))

    one, ten, forty = (row("claim", n, False) for n in SIZES)
    each_ten, each_forty = row("claim", 10, True), row("claim", 40, True)
    most, finish = row("claim", None, False), row("finish", None, False)
    if one:
        at_most("claim, 1 channel", one["fee"], 250_000)
    if ten:
        at_most("claim, 10 channels of one payout", ten["fee"], 470_000)
    if ten and forty:
        at_most("marginal channel, same payout", (forty["fee"] - ten["fee"]) / 30, 27_000)
        at_most("memory per channel at 40", forty["mem"] / 40, 70_000)
        at_most("steps per channel at 40", forty["steps"] / 40, 85_000_000)
    if each_ten and each_forty:
        at_most(
            "marginal channel, another payout each",
            (each_forty["fee"] - each_ten["fee"]) / 30,
            33_000,
        )
    if most:
        at_least("channels per transaction", most["channels"], 45)
        at_most("per channel at the maximum", most["fee"] / most["channels"], 30_000)
    if finish:
        at_most("Finish, per channel at the maximum", finish["fee"] / finish["channels"], 24_000)
        at_least("Finish, channels per transaction", finish["channels"], 60)
    alone, forty_ends = row("finish", 1, False), row("together", 40, True)
    if alone:
        at_most("end, one alone", alone["fee"], 230_000)
    if forty_ends:
        at_most("end, each of 40 adapters' in one transaction", forty_ends["fee"] / 40, 38_000)
    if together := row("together", None, True):
        at_least("ends of as many adapters: channels per transaction", together["channels"], 40)
    at_most("both scripts together, bytes", report["scripts_bytes"], 3_000)
    if "building" in report:
        at_most("building one claim, ms", report["building"]["claim_1_ms"], 150)
        at_most("building a claim of 45, ms", report["building"]["claim_45_ms"], 2_000)
    return checks


_MEASURED_PUBLIC: Final = {
    "claim, 1 channel": "256,727",
    "claim, 10 channels of one payout": "571,358",
    "marginal channel, same payout": "34,959",
    "marginal channel, another payout each": "not offered",
    "channels per transaction": "45",
    "per channel at the maximum": "39,900",
    "memory per channel at 40": "180,284",
    "steps per channel at 40": "126,977,432",
    "both scripts together, bytes": "3,046",
}


_HEAD: Final = (
    "# What settling costs",
    "",
    (
        "Every row is a real transaction: evaluated, signed, and accepted by the devnet's"
        " ledger with the parameters that mainnet had under protocol 10"
    ),
    (
        "(44 lovelace a byte, 155,381 fixed, 0.0577 a unit of memory, 0.0000721 a step, 15 a"
        " byte of reference script). Written by"
    ),
    (
        "`tally bench channel --markdown`; CI compares the figures with a fresh run. Fees in"
        " lovelace (1,000,000 = 1 ADA)."
    ),
    "",
    (
        "The public bar is x402 `batch-settlement` over Subbit (preprod, September 2026), the"
        " best that is published for Cardano."
    ),
    "",
    "| | best public | gate | here |",
    "|---|---|---|---|",
)
_NOTES: Final = (
    "",
    (
        "*together*: ends of as many adapters, each with a key of its own: each has checked the"
        " transaction by its own look at the chain and signed it before it was sent, which is in"
    ),
    (
        "its building time. Whoever puts them together pays"
        " ([0094](decisions/0094-ends-are-batched.md)); *finish* with one channel is one alone."
    ),
    (
        "Where a row for 40 is missing, that many exceed one transaction. A claim of ADA needs"
        " nothing else. A payout in a token must hold the least lovelace of an output as well"
        " (about 1.2 ADA,"
    ),
    (
        "which the provider keeps), paid by its own adapter. Collateral is a plain output of 5"
        " ADA without a return; a time to live"
    ),
    (
        "of 15 minutes is in every transaction. Under the cost models that mainnet has had"
        " since 18 June 2026 a fee is at most a few lovelace off, and as many channels fit."
    ),
    "",
)


def _bounds(report: dict[str, Any]) -> list[str]:
    """A row for each gate: the public bar, the gate, what was measured."""
    lines: list[str] = []
    for name, value, bound, holds in gates(report):
        sign = "≥" if "channels per" in name else "≤"
        public = _MEASURED_PUBLIC.get(name, "–")
        lines.append(
            f"| {name} | {public} | {sign} {bound:,.0f} |"
            f" {value:,.0f}{'' if holds else ' (missed)'} |"
        )
    return lines


def _steps(report: dict[str, Any]) -> list[str]:
    """A row for each transaction that was built and accepted."""
    machine = f" ({report['machine']})" if "machine" in report else ""
    lines = [
        "",
        (
            f"Both scripts together: {report['scripts_bytes']:,} bytes. Building times are medians"
            f" of 20{machine}."
        ),
        "",
        (
            "| step | asset | channels | providers | bytes | memory | steps | fee | per channel |"
            " build ms |"
        ),
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r['step']} | {r['asset']} | {r['channels']} | {r['providers']} | {r['bytes']:,} |"
        f" {r['mem']:,} | {r['steps']:,} | {r['fee']:,} | {r['fee'] // r['channels']:,} |"
        f" {r['build_ms']} |"
        for r in report["rows"]
    ]
    return lines


def markdown(report: dict[str, Any]) -> str:
    """``docs/costs.md``."""
    return "\n".join([*_HEAD, *_bounds(report), *_steps(report), *_NOTES])
