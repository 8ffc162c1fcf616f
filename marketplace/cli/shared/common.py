"""The door of every command: errors become one line and an exit code, reads become a table or JSON.

Exit codes: 0 done, 1 the job failed, 2 usage, 3 refused (no match, budget, channel), 4 the world
failed (unreachable, chain).
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from marketplace.disk import DiskFull
from marketplace.domain.errors import Fault, Malformed, Refusal, TallyError

DONE: Final = 0
JOB_FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
WORLD_FAILED: Final = 4
INTERRUPTED: Final = 130  # as shells say of SIGINT

# Lines are never broken: what is copied or piped (ids, addresses, hashes) must stay whole.
out: Final = Console(highlight=False, emoji=False, soft_wrap=True)
err: Final = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
_PIPED_WIDTH: Final = 1000

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")]
Home = Annotated[
    Path,
    typer.Option(
        envvar="TALLY_HOME",
        help="Where keys and state are kept.",
        default_factory=lambda: Path.home() / ".tally",
        show_default="~/.tally",
    ),
]
Market = Annotated[str, typer.Option(envvar="TALLY_MARKET", help="The market's address.")]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")]
ChainUrl = Annotated[
    str, typer.Option(envvar="TALLY_CHAIN_URL", help="A Blockfrost-compatible address.")
]
ProjectId = Annotated[
    str, typer.Option(envvar="TALLY_PROJECT_ID", help="The key that this address asks for.")
]
SubmitUrl = Annotated[
    list[str] | None,
    typer.Option(
        envvar="TALLY_SUBMIT_URLS",
        help="A further door through which transactions are sent, too; may be given again.",
    ),
]

DEFAULT_MARKET: Final = "http://127.0.0.1:8000"


class UsageError(Malformed):
    """The command line does not say what is needed."""

    code = "USAGE"
    remedy = "see `tally COMMAND --help`"


class PortTaken(Refusal):
    """Another program listens where a part should."""

    code = "PORT_TAKEN"
    remedy = "stop what listens there, or choose another with --port"


class MachineRefused(Fault):
    """This machine does not let a command read, write or listen."""

    code = "MACHINE_REFUSED"
    remedy = "make the path readable and writable for this user, or name another"


class Declined(Refusal):
    """The person said no."""

    code = "NOT_CONFIRMED"
    remedy = "nothing was spent; add --yes to skip the question"


@dataclass(frozen=True)
class Where:
    """The addresses that a command works with; *submit_urls*: further doors for what it sends."""

    market: str
    chain_url: str
    project_id: str
    home: Path
    submit_urls: tuple[str, ...] = ()


def configure_logs() -> None:
    """Logs are for stderr; TALLY_LOG=info or debug shows more of them.

    Called where something that logs is imported: structlog costs more than most reads.
    """
    import logging

    import structlog

    level = logging.getLevelNamesMapping().get(os.environ.get("TALLY_LOG", "").upper())
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level or logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def exit_code(error: TallyError) -> int:
    """Which exit code *error* ends with."""
    if isinstance(error, UsageError) or type(error) is Malformed:  # an argument that does not parse
        return USAGE
    return WORLD_FAILED if isinstance(error, Fault) else REFUSED


def fail(error: TallyError) -> NoReturn:
    """One line with code, cause and remedy on stderr; then the exit code of its kind."""
    remedy = UsageError.remedy if type(error) is Malformed else error.remedy
    err.print(f"[bold red]{error.code}[/]: ", end="")
    err.print(error.message, markup=False, end="\n" if not remedy else " ")
    if remedy:
        err.print(f"— {remedy}", markup=False, style="dim")
    sys.exit(exit_code(error))


def guarded(command: Callable[[], Any]) -> Any:
    """Run *command*; any :class:`TallyError`, also inside a group of them, ends as one line."""
    try:
        return command()
    except TallyError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # whoever read has had enough
        sys.exit(DONE)
    except OSError as error:
        fail(of_machine(error))
    except BaseExceptionGroup as group:
        first = first_tally_error(group)
        if first is not None:
            fail(first)
        if group.split(KeyboardInterrupt)[1] is None:
            sys.exit(INTERRUPTED)
        raise


def of_machine(error: OSError) -> TallyError:
    """What this machine refused, in words."""
    where = f"{error.filename}: " if error.filename else ""
    text = f"{where}{error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(text)
    return PortTaken(text) if error.errno == errno.EADDRINUSE else MachineRefused(text)


def first_tally_error(group: BaseExceptionGroup[BaseException]) -> TallyError | None:
    """The first of ours in a task group's error, or None."""
    for error in group.exceptions:
        if isinstance(error, TallyError):
            return error
        if isinstance(error, OSError):
            return of_machine(error)
        if isinstance(error, BaseExceptionGroup):
            found = first_tally_error(error)  # pyright: ignore[reportUnknownArgumentType]
            if found is not None:
                return found
    return None


def print_json(value: object) -> None:
    """One JSON document on stdout; bytes as hex."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], whole: Sequence[str] = ()
) -> None:
    """A table for people; a line that says so when it is empty. Columns of *whole* are never folded.

    Where the terminal is too narrow for a table without broken words, every row stands on lines of its own: a key or a
    transaction that runs over two lines cannot be copied.
    """
    if not rows:
        out.print(f"[dim]{title}: none[/]")
        return
    cells = [[str(cell) for cell in row] for row in rows]
    least, most = _widths(columns, cells, whole)
    gaps = 2 * (len(columns) - 1)
    room = (out.width if out.is_terminal else _PIPED_WIDTH) - gaps
    if sum(least) > room:
        _print_stacked(title, columns, cells)
        return
    table = Table(
        title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False
    )
    for column, width in zip(columns, _shared(least, most, room), strict=True):
        table.add_column(column, overflow="fold", no_wrap=column in whole, width=width)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    show(table)


def _widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str]
) -> tuple[list[int], list[int]]:
    """(least, most) of each column in characters: without breaking a word, and without folding at all."""
    least: list[int] = []
    most: list[int] = []
    for place, column in enumerate(columns):
        texts = [column, *(row[place] for row in rows)]
        parts = texts if column in whole else [word for text in texts for word in text.split()]
        least.append(max(map(cell_len, parts)))
        most.append(max(map(cell_len, texts)))
    return least, most


def _shared(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths within *room*: what each column needs, and of what is left the first that want more."""
    left = room - sum(least)
    widths: list[int] = []
    for low, high in zip(least, most, strict=True):
        more = min(left, high - low)
        left -= more
        widths.append(low + more)
    return widths


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
        wide = Console(file=out.file, width=_PIPED_WIDTH, highlight=False, emoji=False)
        wide.print(table)


def confirm_spend(what: str, yes: bool) -> None:
    """Show *what* is spent and ask; :class:`Declined` unless the answer is yes."""
    out.print(what, markup=False)
    if yes:
        return
    if not sys.stdin.isatty():
        raise Declined("nobody is there to confirm")
    if not typer.confirm("Go on?", default=False):
        raise Declined("not confirmed")


def private_folder(path: Path) -> Path:
    """*path*, made if it is missing, readable by its owner only."""
    path.mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o700)
    return path


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
