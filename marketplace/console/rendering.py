"""The console's templates and the words they use: money, rates, times and sizes for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from marketplace.console.said import why_ended
from marketplace.domain.metering.kinds import show_units
from marketplace.domain.sold import nominal_least
from marketplace.domain.units import (
    LOVELACE_PER_ADA,
    MICRO,
    SECONDS_AN_HOUR,
    four_digits,
    hourly,
    show_duration,
)
from marketplace.market.state.exchange import Exchange, worth

_HERE: Final = Path(__file__).resolve().parents[1]


def folder() -> Path:
    """``web/``: inside the installed package, or beside it in a checkout."""
    packaged = _HERE / "web"
    return packaged if packaged.is_dir() else _HERE.parent / "web"


def ada(lovelace: int) -> Markup:
    """``₳1.668``: four digits at most, the exact amount in its title."""
    return Markup('<span class="ada" title="{}">{}</span>').format(exact(lovelace), about(lovelace))


def about(lovelace: int) -> str:
    """``₳1.668``: four digits at most, for where a title cannot be."""
    text = exact(four_digits(lovelace))
    return text.removesuffix(".00") if abs(lovelace) >= 1_000_000_000 else text


def exact(lovelace: int) -> str:
    """``₳12.34``: exact, two to six decimals."""
    whole, part = divmod(abs(lovelace), 1_000_000)
    digits = f"{part:06d}"
    digits = digits[:2] + digits[2:].rstrip("0")
    return f"{'−' if lovelace < 0 else ''}₳{_group(whole)}.{digits}"


def rate(micro: int) -> str:
    """``1900 lovelace/s`` of micro-lovelace per unit-second."""
    whole, part = divmod(micro, 1_000_000)
    tail = f".{part:06d}".rstrip("0").rstrip(".") if part else ""
    return f"{_group(whole)}{tail} lovelace/s"


def an_hour(micro: int) -> Markup:
    """A rate as ADA an hour, exact in its title."""
    return ada(hourly(micro)) + " an hour"


def plain_hour(micro: int) -> str:
    """A rate as ADA an hour, where a title cannot be."""
    return f"{about(hourly(micro))} an hour"


def per_hour(micro: int) -> str:
    """A rate as a form has it: ``4.68`` ADA an hour; "" for none."""
    return exact(hourly(micro)).lstrip("₳").replace("\u202f", "") if micro else ""


def per_second(text: str) -> int:
    """Micro-lovelace a second of ``4.68`` ADA an hour (a point or a comma); 0 for nothing."""
    whole, _, part = text.replace(",", ".").partition(".")
    lovelace = int(whole or 0) * LOVELACE_PER_ADA + int(part.ljust(6, "0") or 0)
    return lovelace * MICRO // SECONDS_AN_HOUR


def ago(ms: int, now: int) -> str:
    """``just now``, ``3 min ago``, ``in 2 h``: how people say where *ms* lies from *now*."""
    apart = abs(now - ms) // 1000
    if apart < 5:
        return "just now" if ms <= now else "in a moment"
    number, unit = next(
        (apart // size, unit)
        for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
        if apart >= size
    )
    return f"{number} {unit} ago" if ms <= now else f"in {number} {unit}"


def when(ms: int, now: int) -> Markup:
    """A time as people say it, exact in its title and for machines; an em dash for none."""
    return _time(ms, "ago", lambda _: ago(ms, now))


def clock(ms: int) -> Markup:
    """A time of day, for what happened one after another; the date is in its title."""
    return _time(ms, "clock", lambda at: f"{at:%H:%M:%S}")


def _time(ms: int, form: str, shown: Callable[[datetime], str]) -> Markup:
    if not ms:
        return Markup("—")
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(
        at.isoformat(), form, f"{at:%Y-%m-%d %H:%M:%S} UTC", shown(at)
    )


def size(mib: int) -> str:
    """``80 GB`` of MiB."""
    return f"{round(mib / 1024):d} GB" if mib >= 1024 else f"{mib} MB"


_SOLD_GB: Final = (
    1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 45, 48, 64, 80, 94, 96, 128, 141, 144, 180,
    192, 256, 288,
)  # fmt: skip


def memory(mib: int) -> str:
    """``24 GB`` of a device that shows 23028 MiB: the size it is sold as, which filters ask for."""
    sold = [gb for gb in _SOLD_GB if nominal_least(gb * 1024) <= mib <= gb * 1024]
    return f"{sold[0]} GB" if sold else size(mib)


_EXPLORERS: Final = {
    764824073: "https://cardanoscan.io/transaction/",
    1: "https://preprod.cardanoscan.io/transaction/",
    2: "https://preview.cardanoscan.io/transaction/",
}


def explorer(tx: str, magic: int) -> str:
    """Where a transaction of the network *magic* is shown to people; "" for a devnet's."""
    whole = len(tx) == 64 and all(c in "0123456789abcdef" for c in tx)
    return _EXPLORERS[magic] + tx if whole and magic in _EXPLORERS else ""


def short(text: str, length: int = 10) -> str:
    """The beginning of a key or an id."""
    return text if len(text) <= length + 2 else f"{text[:length]}…"


def per_cent(part: int, whole: int) -> int:
    """0 where there is nothing to be a part of."""
    return part * 100 // whole if whole else 0


def permille(part: int | None) -> str:
    """``97.3 %`` of thousandths; an em dash for none."""
    if part is None:
        return "—"
    whole, tenth = divmod(part, 10)
    return f"{whole}.{tenth} %" if tenth else f"{whole} %"


def words(code: str) -> str:
    """``PROVIDER_LOST`` as ``provider lost``."""
    return code.replace("_", " ").lower()


def bytes_of(count: int) -> str:
    """``512 bytes``, ``12.3 KB``, ``4.0 MB`` of a file."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count * 10 // size / 10:.1f} {unit}"
    return f"{count} bytes"


def milliseconds(us: int) -> str:
    """``0.4 ms`` of microseconds."""
    return f"{_group(us // 1000)}.{us % 1000 // 100} ms"


def spark(values: Sequence[int], width: int = 240, height: int = 48) -> str:
    """The points of a polyline over *values*, oldest first, scaled from 0; "" for a flat line."""
    most = max(values, default=0)
    if len(values) < 2 or most == min(values):
        return ""
    step = width / (len(values) - 1)
    return " ".join(
        f"{i * step:.1f},{height - 2 - v * (height - 4) / most:.1f}" for i, v in enumerate(values)
    )


def _group(whole: int) -> str:
    return f"{whole:,}".replace(",", "\u202f")


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def fiat(lovelace: int, exchange: Exchange | None) -> Markup:
    """``≈ $2.11 · €1.95`` with its time in the title; nothing where no price is known."""
    if exchange is None:
        return Markup("")
    signs = (("$", exchange.usd_micro), ("€", exchange.eur_micro))
    text = " · ".join(f"{sign}{_other(worth(lovelace, micro))}" for sign, micro in signs if micro)
    at = datetime.fromtimestamp(exchange.at_ms / 1000, UTC)
    return Markup('<span class="fiat" title="at the price of {} UTC">≈ {}</span>').format(
        f"{at:%Y-%m-%d %H:%M}", text
    )


def _other(micro: int) -> str:
    """Two decimals from one unit on; below, four digits as of ADA."""
    if micro >= MICRO or micro == 0:
        whole, part = divmod((micro + 5_000) // 10_000, 100)
        return f"{_group(whole)}.{part:02d}"
    return exact(four_digits(micro)).lstrip("₳")


def environment(
    now: Callable[[], int], exchange: Callable[[], Exchange | None] = lambda: None
) -> Environment:
    """All templates; an undefined name is an error, everything is escaped. *now* in milliseconds;
    *exchange*: what an ADA is worth, if that is known.
    """
    made = Environment(
        loader=FileSystemLoader(folder() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def relative(ms: int) -> Markup:
        return when(ms, now())

    def known() -> Exchange | None:
        found = exchange()
        return found if found is not None and found.fresh(now()) else None

    def in_fiat(lovelace: int) -> Markup:
        return fiat(lovelace, known())

    def fiat_hourly(micro: int) -> Markup:
        return fiat(hourly(micro), known())

    filters: dict[str, Callable[..., Any]] = {
        "ada": ada, "about": about, "exact": exact, "rate": rate, "hourly": an_hour,
        "an_hour": plain_hour, "fiat": in_fiat, "fiat_hourly": fiat_hourly,
        "units": show_units, "when": relative,
        "clock": clock, "size": size, "memory": memory, "bytes": bytes_of, "short": short,
        "milliseconds": milliseconds,
        "words": words, "permille": permille, "duration": show_duration, "pretty": _pretty,
    }  # fmt: skip
    made.filters.update(filters)
    functions: dict[str, Any] = {
        "per_cent": per_cent, "spark": spark, "why_ended": why_ended, "exchange": known,
        "explorer": explorer,
    }  # fmt: skip
    made.globals.update(functions)
    return made
