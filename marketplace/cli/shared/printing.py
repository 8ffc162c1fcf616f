"""What a command prints: tables for people, JSON for programs, and a question before money is
spent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from marketplace.cli.shared import fitting
from marketplace.cli.shared.refusals import Declined
from marketplace.cli.shared.screen import out

PIPED_WIDTH: Final = 1000
_SIMULATED: Final = "SIMULATED"


def print_json(value: object) -> None:
    """One JSON document on stdout; bytes as hex."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    whole: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> None:
    """A table for people; a line that says so when it is empty. Columns of *whole* are never
    folded.

    Where the terminal is too narrow for all columns without broken words, those of *drop* are left
    out, in that order, and named below. What is too wide even so has every row on lines of its own:
    a key or a transaction that runs over two lines cannot be copied.
    """
    if not rows:
        out.print(f"[dim]{title}: none[/]")
        return
    cells = [[str(cell) for cell in row] for row in rows]
    least, most = fitting.widths(columns, cells, whole)
    room = out.width if out.is_terminal else PIPED_WIDTH
    kept = fitting.fitting(columns, least, room, drop)
    if fitting.taken(least, kept) > room:
        _print_stacked(title, columns, cells)
        return
    table = Table(
        title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False
    )
    wide = fitting.shared([least[at] for at in kept], [most[at] for at in kept], room)
    for at, width in zip(kept, wide, strict=True):
        table.add_column(columns[at], overflow="fold", no_wrap=columns[at] in whole, width=width)
    for row in cells:
        table.add_row(*(Text(row[at]) for at in kept))
    show(table)
    if left := [name for at, name in enumerate(columns) if at not in kept]:
        out.print(f"[dim]no room for: {', '.join(left)} (a wider terminal, or --json)[/]")


def _print_stacked(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Each row as a block of names and values, one a line."""
    wide = max(map(cell_len, columns))
    if title:
        out.print(Text(title, style="bold"))
    for number, row in enumerate(rows):
        if number:
            out.print()
        for column, cell in zip(columns, row, strict=True):
            if cell:
                out.print(Text.assemble((f"{column:<{wide}}  ", "dim"), cell))


def show(table: Table) -> None:
    """*table* within the terminal; as wide as it needs to be for a pipe."""
    if out.is_terminal:
        out.print(table, soft_wrap=False)
    else:  # a console's own width is the most that a print may ask for
        wide = Console(file=out.file, width=PIPED_WIDTH, highlight=False, emoji=False)
        wide.print(table)


def device_text(name: str, simulated: bool) -> str:
    """A device's name, marked once where it is simulated (most such names say so themselves)."""
    marked = not simulated or _SIMULATED in name.upper()
    return name if marked else f"{_SIMULATED} {name}".strip()


def confirm_spend(what: str, yes: bool) -> None:
    """Show *what* is spent and ask; :class:`Declined` unless the answer is yes."""
    out.print(what, markup=False)
    if yes:
        return
    if not sys.stdin.isatty():
        raise Declined("nobody is there to confirm")
    import typer  # every command that asks has loaded it; what only prints does without

    if not typer.confirm("Go on?", default=False):
        raise Declined("not confirmed")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
