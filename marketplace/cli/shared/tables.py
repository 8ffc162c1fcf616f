"""Jobs and quotes as tables for people; ``--json`` prints what the market said instead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, cast

from rich.table import Table
from rich.text import Text

from marketplace.cli.shared.printing import print_table, show
from marketplace.cli.shared.screen import out
from marketplace.domain.metering.kinds import KINDS, show_price
from marketplace.domain.units import show_ada

Json = dict[str, Any]
JOB_COLUMNS: Final = ("job", "name", "state", "spent", "at most", "device")
_SIMULATED: Final = "SIMULATED"
_TIMES: Final = ("created", "started", "finished")


def device_text(device: object, simulated: object) -> str:
    """A device's name, marked once where it is simulated (most such names say so themselves)."""
    name = str(device or "")
    marked = not simulated or _SIMULATED in name.upper()
    return name if marked else f"{_SIMULATED} {name}".strip()


def job_row(job: Json) -> tuple[object, ...]:
    """One line of ``tally job list``."""
    ceiling = int(job.get("ceiling") or 0)
    return (
        job.get("id", ""),
        job.get("name", ""),
        f"{job.get('state', '')} {job.get('reason') or ''}".strip(),
        show_ada(int(job.get("spent") or 0)),
        show_ada(ceiling) if ceiling else "",
        device_text(job.get("device"), job.get("simulated")),
    )


def show_job(view: Json) -> None:
    """Where it stands, what it cost, why it ended, its transactions, and what to do next."""
    _facts(f"{view.get('name') or 'job'}  {view.get('id')}", _job_facts(view))
    moves = cast("list[Json]", view.get("transactions") or [])
    if moves:
        out.print()
        columns = ("transactions", "state", "fee", "id")
        rows = [
            (tx["kind"], tx["state"], show_ada(int(tx["fee"])) if tx.get("fee") else "", tx["id"])
            for tx in moves
        ]
        print_table("", columns, rows, whole=("id",))
    out.print()
    out.print(_next(view), markup=False, style="dim")


def _job_facts(view: Json) -> list[tuple[str, str]]:
    code = view.get("exit_code")
    exited = f" (exit code {code})" if code is not None else ""
    times = [(name, when(int(view.get(f"{name}_at_ms") or 0))) for name in _TIMES]
    return [
        ("state", f"{view.get('state', '')} {view.get('reason') or ''}".strip() + exited),
        ("message", str(view.get("message") or "")),
        ("why it waits", _explained(view.get("explain")) if view.get("state") != "ENDED" else ""),
        ("device", device_text(view.get("device"), view.get("simulated"))),
        ("provider", str(view.get("provider") or "")),
        ("price", _price(view)),
        ("spent", _spent(view)),
        ("delivered", _delivered(view)),
        ("retries", str(view.get("retries") or "")),
        *times,
        ("lease", str(view.get("lease") or "")),
        ("channel", str(view.get("channel") or "")),
    ]


def _price(view: Json) -> str:
    rate = int(view.get("rate_micro") or 0)
    return show_price(rate, str(view.get("resource"))) if rate else ""


def _spent(view: Json) -> str:
    text = show_ada(int(view.get("spent") or 0))
    for name, words in (("ceiling", "of at most"), ("budget", "budget")):
        if view.get(name):
            text += f", {words} {show_ada(int(view[name]))}"
    return text.replace(", of", " of")


def _delivered(view: Json) -> str:
    ms = int(view.get("unit_ms") or 0)
    if not ms:
        return ""
    return f"{ms} {KINDS[str(view.get('resource'))].word}-ms in {view.get('ticks')} ticks"


def _explained(explain: object) -> str:
    if not isinstance(explain, dict):
        return str(explain or "")
    row = cast(Json, explain)
    return str(row.get("summary") or row.get("message") or "")


def _next(view: Json) -> str:
    name, state = view.get("id"), view.get("state")
    if state == "ENDED":
        return f"tally job logs {name}   tally job outputs {name}   tally invoice {name} --verify"
    return f"tally job logs -f {name}   tally job stop {name}"


def share_note(resource: str, units_milli: int) -> str:
    """What a part of a device is worth; nothing for whole ones and for cores."""
    if resource not in KINDS or not KINDS[resource].devices or not 0 < units_milli < 1000:
        return ""
    return "is billed and nothing enforces it: only jobs of your own run beside it"


def show_quote(answer: Json) -> None:
    """Device, price, ceiling, and why the others lost."""
    facts = [
        ("device", device_text(answer.get("device"), answer.get("simulated"))),
        ("provider", str(answer.get("provider") or "")),
        ("price", _price(answer)),
        ("at most", show_ada(int(answer.get("ceiling") or 0))),
        ("share", share_note(str(answer.get("resource")), int(answer.get("units_milli") or 0))),
    ]
    _facts("quote: nothing is reserved or paid", facts)
    others = cast("list[Json]", answer.get("alternatives") or [])
    rows = [
        (
            str(other.get("provider", ""))[:16],
            device_text(other.get("device"), other.get("simulated")),
            other.get("why") or _price({"resource": answer.get("resource"), **other}),
        )
        for other in others
    ]
    if rows:
        out.print()
        print_table("alternatives", ("provider", "device", "why not"), rows)


def when(ms: int) -> str:
    """A time for people; nothing for none."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if ms else ""


def _facts(title: str, facts: list[tuple[str, str]]) -> None:
    """Names and values; those without a value are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value:
            table.add_row(name, Text(value))
    out.print(Text(title, style="bold"))
    show(table)


def with_fees(owed: int, fees: int | None, route_fee: int = 0) -> str:
    """The bill as a sum: what was computed, a router's fee if there is one, what the network took,
    and all of it.
    """
    parts = f"compute {show_ada(owed)}"
    if route_fee:
        parts += f" + router {show_ada(route_fee)}"
    if fees is None:
        return f"{parts}; a chain says the network fees"
    whole = show_ada(owed + route_fee + fees)
    return f"{parts} + network fees {show_ada(fees)} = {whole}"
