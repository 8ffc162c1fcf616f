"""The console's templates and the words they use: money, rates, times and sizes for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from marketplace.domain.units import show_duration

_HERE: Final = Path(__file__).resolve().parents[1]
_SECONDS_PER_HOUR: Final = 3600


def folder() -> Path:
    """``web/``: inside the installed package, or beside it in a checkout."""
    packaged = _HERE / "web"
    return packaged if packaged.is_dir() else _HERE.parent / "web"


def ada(lovelace: int) -> str:
    """``12.34 ADA``: exact, two to six decimals."""
    whole, part = divmod(abs(lovelace), 1_000_000)
    digits = f"{part:06d}"
    digits = digits[:2] + digits[2:].rstrip("0")
    return f"{'−' if lovelace < 0 else ''}{_group(whole)}.{digits} ADA"


def rate(micro: int) -> str:
    """``1900 lovelace/s`` of micro-lovelace per unit-second."""
    whole, part = divmod(micro, 1_000_000)
    tail = f".{part:06d}".rstrip("0").rstrip(".") if part else ""
    return f"{_group(whole)}{tail} lovelace/s"


def hourly(micro: int) -> str:
    """The same rate as ADA an hour."""
    return f"{ada(micro * _SECONDS_PER_HOUR // 1_000_000)} an hour"


def when(ms: int) -> Markup:
    """A time that machines read as well; an em dash for none."""
    if not ms:
        return Markup("—")
    at = datetime.fromtimestamp(ms / 1000, UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), shown)


def size(mib: int) -> str:
    """``80 GB`` of MiB."""
    return f"{round(mib / 1024):d} GB" if mib >= 1024 else f"{mib} MB"


def short(text: str, length: int = 10) -> str:
    """The beginning of a key or an id."""
    return text if len(text) <= length + 2 else f"{text[:length]}…"


def per_cent(part: int, whole: int) -> int:
    """0 where there is nothing to be a part of."""
    return part * 100 // whole if whole else 0


def words(code: str) -> str:
    """``PROVIDER_LOST`` as ``provider lost``."""
    return code.replace("_", " ").lower()


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


def environment() -> Environment:
    """All templates; an undefined name is an error, everything is escaped."""
    made = Environment(
        loader=FileSystemLoader(folder() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "ada": ada, "rate": rate, "hourly": hourly, "when": when, "size": size, "short": short,
        "words": words, "duration": show_duration, "pretty": _pretty,
    }  # fmt: skip
    made.filters.update(filters)
    functions: dict[str, Any] = {"per_cent": per_cent, "spark": spark}
    made.globals.update(functions)
    return made
