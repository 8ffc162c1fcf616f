"""What ``tally adapter status`` and ``earnings`` show: fits a terminal of 80 columns by leaving
columns out, the least needed first, and breaks no word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from marketplace.cli.shared.fitting import fitting as places
from marketplace.cli.shared.fitting import widths
from marketplace.domain.units import show_ada

ALARMS: Final = 5


def fitting(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int,
    drop: Sequence[str],
) -> Table | Text:  # fmt: skip
    """*rows* as a table of at most *width*; columns of *drop* are left out in that order until it
    fits. Without rows a line that says so.
    """
    if not rows:
        return Text(f"{title}: none", style="dim")
    _, most = widths(columns, rows, ())
    kept = places(columns, most, width, drop)
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for at in kept:
        table.add_column(columns[at], no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(row[at]) for at in kept))
    return table


def status_screen(report: Mapping[str, Any], width: int) -> Group:
    """The status as one picture."""
    market = report["market"]
    away = "NOT CONNECTED: you are not listed; it goes on trying"
    head = [
        f"provider {report['provider'][:16]}…",
        f"market {market['url']} {'connected' if market['connected'] else away}",
        *_money(report),
        *_fees(report),
        *_hops(report),
        *_stock(report),
    ]
    names = {one["uuid"]: one["model"] for one in report["devices"]}
    leases = [
        (
            one["id"][-8:], one["state"] + (f" ({one['pause']})" if one["pause"] else ""),
            ", ".join(names.get(uuid, uuid) for uuid in one["devices"]) or "cores",
            one["rate"], one["utilisation"], show_ada(one["owed"]), show_ada(one["ceiling"]),
        )
        for one in report["leases"]
    ]  # fmt: skip
    devices = [
        (
            one["model"], f"{one['health']} {one['note']}".strip(), one["rate"],
            (one["lease"] or "")[-8:], "SIMULATED" if one["simulated"] else "",
        )
        for one in report["devices"]
    ]  # fmt: skip
    devices.append(("cores", "", report["core_rate"], "", ""))
    why = [Text(line) for line in report["why_no_work"]]
    alarms = [Text(f"{a['code']}: {a['message']}") for a in report["alarms"][-ALARMS:]]
    return Group(
        *(Text(line) for line in head),
        fitting(
            "Leases", ("lease", "state", "device", "rate", "last minute", "owed", "of at most"),
            leases, width, ("last minute", "of at most", "rate", "device"),
        ),
        *(Text(line) for line in _relays(report)),
        fitting(
            "Devices", ("device", "health", "price", "lease", ""), devices, width,
            ("lease", "health", ""),
        ),
        *why, *alarms,
    )  # fmt: skip


def _relays(report: Mapping[str, Any]) -> list[str]:
    """Each that runs here: whether it is billed, and how the market sees it."""
    lines: list[str] = []
    for lease in report["leases"]:
        relay = lease.get("relay")
        if relay is None:
            continue
        off, market = relay["off_tip"], relay["market"]
        here = f"not billed: {off.replace('_', ' ')}" if off else "at its tip"
        line = f"relay {lease['id'][-8:]}: {here}"
        if market is not None:
            said, why = market["standing"].lower().replace("_", " "), market["why"]
            line += f"; the market sees it {said}" + (f" ({why})" if why else "")
        lines.append(line)
    return lines


def _stock(report: Mapping[str, Any]) -> list[str]:
    """What is on the host of images, and what starts take: nothing before the first look."""
    told = report.get("stock")
    if not told:
        return []
    line = f"images {told['images']}, {told['images_mib'] / 1024:.1f} GiB"
    if told["start_ms"]:
        line += f"; a start takes {told['start_ms'] / 1000:.1f} s"
    if told["pull_bytes_s"]:
        line += f", a pull {told['pull_bytes_s'] / 1e6:.0f} MB/s"
    return [line]


def _money(report: Mapping[str, Any]) -> list[str]:
    earned = (
        f"earned {show_ada(report['earned'])}   claimed {show_ada(report['claimed'])}   "
        f"unclaimed {show_ada(report['unclaimed'])}"
    )
    money = report.get("money")
    if money is None:
        return [earned]
    total, last = money["total"], money["last"]
    lines = [earned, f"net {_net(total)}"]
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    lines += [f"today net {_net(one)}" for one in money["days"] if one["day"] == today]
    if last:
        lines.append(f"last payment {show_ada(last['claimed'])}, {_moment(last['at_ms'])}:")
        lines.append(f"  {last['tx']}")
    return [*lines, *(f"next: {line}" for line in money["next"])]


def _net(one: Mapping[str, int]) -> str:
    """``1.2 ADA = 1.5 claimed − 0.3 fees``; own money moved is nobody's loss."""
    other = one["claimed"] - one["fees"] - one["net"]
    net, claimed, fees = (show_ada(one[name]) for name in ("net", "claimed", "fees"))
    said = f"{net} = {claimed} claimed − {fees} fees"
    if other:
        said += f" − {show_ada(other)} to settlers"
    if one["moved"]:
        said += f"; {show_ada(one['moved'])} of the fee key's own went to the payout"
    return said


def _fees(report: Mapping[str, Any]) -> list[str]:
    fees = report.get("fees")
    if fees is None:
        return []
    if fees["lovelace"] is None:
        return [f"fee key {fees['address']}: not looked at yet"]
    aside = fees.get("collateral", 0)
    beside = f" beside {show_ada(aside)} of collateral" if aside else ""
    lines = [
        f"fee key {fees['address']} holds {show_ada(fees['lovelace'])}{beside}: enough for"
        f" {fees['enough_for']} more ends"
    ]
    return [*lines, f"fund it: {fees['fund']}"] if fees["low"] else lines


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _still_open(one: Mapping[str, Any]) -> str:
    """Why what a lease cost is not known to the end; empty once it is."""
    if one["ended"]:
        return ""
    return "its router's hop is open" if one.get("routed") else "its channel is open"


def _hops(report: Mapping[str, Any]) -> list[str]:
    """One line for each hop of a router."""
    hops = [one for one in report.get("channels", ()) if one.get("hop")]
    return [
        f"hop {one['id'][:8]} of router {one['hop']['owner'][:8]}: {one['hop']['leases']} leases,"
        f" {show_ada(one['hop']['reserved'])} of {show_ada(one['capacity'])} kept for them,"
        f" {show_ada(one['unclaimed'])} unclaimed" + (", FORKED" if one["hop"]["forked"] else "")
        for one in hops
    ]


def earnings_screen(found: Mapping[str, Any], width: int) -> Group:
    """By day, by lease, and the latest transactions, with what they cost."""
    sums = ("claimed", "fees", "moved", "net")
    days = [(one["day"], *(show_ada(one[name]) for name in sums)) for one in found["days"]]
    days.append(("all", *(show_ada(found["total"][name]) for name in sums)))
    leases = [
        (one["lease"][-8:], one["state"], show_ada(one["owed"]), show_ada(one["cost"]),
         show_ada(one["net"]), _still_open(one))
        for one in found["leases"]
    ]  # fmt: skip
    paid = [
        (_moment(one["at_ms"]), one["purpose"], show_ada(one["net"]), one["tx"])
        for one in found["payments"]
    ]
    return Group(
        fitting("By day (UTC)", ("day", *sums), days, width, ("moved",)),
        fitting(
            "By lease", ("lease", "state", "owed", "cost so far", "net", ""), leases, width,
            ("", "state"),
        ),
        fitting(
            "Transactions", ("when", "what", "net", "transaction"), paid, width,
            ("when", "what", "net"),
        ),
        *(Text(f"next: {line}") for line in found["next"]),
    )  # fmt: skip
