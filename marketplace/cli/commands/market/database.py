"""Where a market keeps its database and its keys, for the commands that serve and operate it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import anyio
import typer

from marketplace.cli.shared.refusals import UsageError
from marketplace.disk import private_folder
from marketplace.domain.errors import NotFound
from marketplace.market.context import Market
from marketplace.process.main import Config, assemble, folder_of
from marketplace.store.migrate import migrate as migrate_database

OPERATOR: Final = "operator"
HOOKS: Final = "webhooks"  # the key that webhooks' secrets are derived from
T = TypeVar("T")

Database = Annotated[
    str, typer.Option("--db", envvar="TALLY_DB", help="sqlite:///FILE or postgresql://…")
]


class NoDatabase(NotFound):
    """There is nothing to operate on."""

    code = "DATABASE_MISSING"
    remedy = "say which with --db or TALLY_DB, as `tally market serve` was told"


def database_of(db: str, home: Path) -> str:
    """The database's URL: *db*, or without one a file in *home*."""
    if db and not db.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise UsageError(f"--db: {db.partition(':')[0]!r} is neither sqlite nor postgresql")
    return db or f"sqlite:///{private_folder(home) / 'market.db'}"


def must_exist(database: str) -> None:
    """:class:`NoDatabase` if it is a file that is not there."""
    path = database.removeprefix("sqlite:///")
    if path != database and not Path(path).is_file():
        raise NoDatabase(f"there is no database at {path}")


def operate(database: str, home: Path, act: Callable[[Market], Awaitable[T]]) -> T:
    """*act* on the market's database, beside the processes that serve it."""
    folder = folder_of(database, home)
    must_exist(database)
    migrate_database(database)

    async def run() -> T:
        parts = assemble(Config(db=database, blob_folder=folder))
        try:
            return await act(parts.market)
        finally:
            parts.database.close()

    return anyio.run(run)
