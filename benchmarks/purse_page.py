"""What ``docs/costs.md`` says of ``tally bench purse``: its section, after the table of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.channel_page import DOCUMENT, SECTION

GATES: Final[Mapping[str, int]] = {"routed, cold": 1_500, "routed, warm": 500}
"""The most that the network's fees may be of what was billed, in hundredths of a per cent."""

_HEAD: Final = (
    SECTION,
    "",
    (
        "One consumer, twenty providers, a hundred jobs of five seconds at 0.05 ADA each, five at"
        " each provider. Every transaction is real; the seconds are not waited for."
    ),
    (
        "Written by `tally bench purse --markdown`. Fees by who pays"
        " them, in ADA; *net*: what providers have more than before, the worst of them first."
        " What a router asks stands apart from the network's fees."
    ),
    "",
    (
        "| way | transactions | consumer's fees | providers' fees | market's fees | router's fees |"
        " of what is billed | most locked | worst net | all net | router asks | router's net |"
    ),
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
)
_TAIL: Final = (
    "",
    (
        "*Cold* counts the opens and the ends, *left open* a second hundred on the same channels,"
        " which are not ended. An end that brings less than it costs"
    ),
    (
        "waits for others, and is made without its claim if none comes"
        " ([0162](decisions/0162-no-end-is-made-at-a-loss.md)): the provider loses what it did, and"
        " pays nothing. So small debts at many providers stay dear with a channel"
    ),
    (
        "to each: a hundred jobs of 0.05 ADA are 5 ADA, and twenty channels cost 20 opens and 20"
        " ends. What changes that is one channel for all of them: a hop to a router, at most"
        " 15 % cold and 5 % warm (a gate)."
    ),
    "",
    (
        "*Routed*: the consumer's one hop is opened as clients do (*cold*) or was there, and was"
        " filled up once in between (*warm*); it ends at its word. The router's hops to the"
        " providers stand, as they do at a router"
    ),
    (
        "that serves others; *cold throughout* opens them for these jobs alone, by one transaction,"
        " and ends them after. What a provider has not claimed of a hop that stands counts as its"
        " own. *Warm*: an end waits for others"
    ),
    (
        "([0180](decisions/0180-a-routers-ends-wait.md)); with the 30th all go in one transaction,"
        " and its share of the fee counts. *Ended alone*: nobody else's came within the 15 minutes"
        " that it waits, and the router pays more for the end than it asks."
    ),
    ("It locks 52 ADA for each provider; the most locked is the consumer's."),
    "",
)


def section(rows: Sequence[Mapping[str, Any]]) -> str:
    """The lines of *rows*."""
    lines = [
        f"| {r['way']} | {r['transactions']} | {_ada(r['consumer_fees'])} |"
        f" {_ada(r['provider_fees'])} | {_ada(r['market_fees'])} | {_ada(r['router_fees'])} |"
        f" {r['bps'] / 100:.1f} % |"
        f" {_ada(r['locked'])} | {_ada(r['least_net'])} | {_ada(r['net'])} |"
        f" {_ada(r['route_fee'])} | {_ada(r['router_net'])} |"
        for r in rows
    ]
    return "\n".join([*_HEAD, *lines, *_TAIL])


def write(rows: Sequence[Mapping[str, Any]]) -> None:
    """Into the page, in place of what it said."""
    before = DOCUMENT.read_text(encoding="utf-8").partition(SECTION)[0].rstrip("\n")
    DOCUMENT.write_text(f"{before}\n\n{section(rows)}", encoding="utf-8")


def _ada(lovelace: int) -> str:
    sign, value = ("−" if lovelace < 0 else ""), abs(lovelace)
    return f"{sign}{value // 1_000_000}.{value % 1_000_000 // 1_000:03}"
