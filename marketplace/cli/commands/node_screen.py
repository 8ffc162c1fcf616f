"""Rented relays as a table, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.screen import out
from marketplace.domain.units import show_ada

if TYPE_CHECKING:
    from marketplace.client.sdk.relay_standing import RelayStanding

BARS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 20
COLUMNS: Final = (
    "relay", "of", "its provider says", "the market sees", "tip", "lag", "up", "spent", "a month",
)  # fmt: skip


def show(relays: Sequence[RelayStanding], as_json: bool) -> None:
    """A line each."""
    if as_json:
        for one in relays:
            print_json({**asdict(one), "lags_ms": list(one.lags_ms), "serves": one.serves})
        return
    print_table("relays", COLUMNS, [_row(one) for one in relays], drop=("tip", "lag", "spent"))
    for one in relays:
        if one.place:
            out.print(f"{one.job}: its peers reach it at {one.place}", markup=False)
        if one.why:
            out.print(f"{one.job}: the market says: {one.why}", markup=False)


def _row(one: RelayStanding) -> tuple[object, ...]:
    says = one.cause.replace("_", " ") if one.says == "OFF_TIP" else _words(one.says)
    up = f"{one.served_ms * 1000 // one.since_ms / 10:.1f} %" if one.since_ms else ""
    return (
        one.job, one.network, says or one.state.lower(), _words(one.seen),
        "" if one.tip_slot is None else one.tip_slot, spark(one.lags_ms), up,
        show_ada(one.spent), show_ada(one.month) if one.since_ms else "",
    )  # fmt: skip


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def spark(lags_ms: Sequence[int]) -> str:
    """How old the tip was, the newest last, each bar the worst of its part; a full bar is the worst
    of all, and the number behind it the newest, in seconds.
    """
    if not lags_ms:
        return ""
    step = -(-len(lags_ms) // WIDTH)
    parts = [max(lags_ms[at : at + step]) for at in range(0, len(lags_ms), step)]
    most = max(*parts, 1)
    bars = "".join(BARS[part * (len(BARS) - 1) // most] for part in parts)
    return f"{bars} {lags_ms[-1] // 1000} s"
