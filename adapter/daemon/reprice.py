"""New prices in a TOML configuration: only those lines are written, all others stay."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from adapter.config import ConfigRefused, parse
from marketplace.disk import write_whole

_HEADER = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*=""")


def read_prices(words: list[str]) -> dict[str, str]:
    """``core=5`` or ``RTX 4090=200 lovelace`` as names and prices; a bare number is lovelace a
    second. ConfigRefused for anything else.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, price = word.partition("=")
        if not equals or not name.strip() or not price.strip():
            raise ConfigRefused(f"{word!r} is no price: write core=5, or 'RTX 4090=220 lovelace'")
        price = price.strip()
        found[name.strip()] = f"{price} lovelace" if price.isdecimal() else price
    return found


def with_prices(text: str, prices: Mapping[str, str]) -> str:
    """*text* (TOML) with *prices* in its table ``[prices]``, which is made where it is missing."""
    lines, left = text.splitlines(), dict(prices)
    table, end = "", None
    for i, line in enumerate(lines):
        header = _HEADER.match(line)
        if header:
            table = header[1].strip()
        elif table == "prices":
            named = _KEY.match(line)
            name = next((part for part in named.groups() if part is not None), "") if named else ""
            if name in left:
                lines[i] = _line(name, left.pop(name)) + _comment(line)
        if table == "prices" and line.strip():
            end = i + 1
    fresh = [_line(name, price) for name, price in left.items()]
    if end is None:
        lines += ["", "[prices]", *fresh]
    else:
        lines[end:end] = fresh
    return "\n".join(lines) + "\n"


def reprice(path: Path, prices: Mapping[str, str]) -> None:
    """Write *prices* into the file at *path*, whole or not at all, after it was read as a
    configuration; ConfigRefused leaves it as it was.
    """
    if path.suffix in (".yaml", ".yml"):
        raise ConfigRefused(f"{path}: only TOML is written; edit it, then `tally adapter reload`")
    text = with_prices(path.read_text(), prices)
    read = parse(tomllib.loads(text))
    if not {name for name in prices if name not in ("core", "disk")} <= read.prices.models.keys():
        raise ConfigRefused(f"{path}: its [prices] is not written as one table; edit it by hand")
    was = path.stat()
    write_whole(path, text.encode())
    os.chmod(path, was.st_mode & 0o777)  # whoever could read it still can
    os.chown(path, was.st_uid, was.st_gid)


def _line(name: str, price: str) -> str:
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return f"{name if bare else _quoted(name)} = {_quoted(price)}"


def _quoted(text: str) -> str:
    if any(ord(c) < 32 for c in text):
        raise ConfigRefused("a price's name has a control character")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _comment(line: str) -> str:
    """What stands behind the value, if it is a comment (a price has no ``#``)."""
    at = line.find("#", line.find("="))
    return "" if at < 0 else f"   {line[at:]}"
