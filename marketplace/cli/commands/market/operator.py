"""What an operator does to a market's database, beside the processes that serve it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from marketplace.cli.commands.market.database import (
    HOOKS,
    OPERATOR,
    Database,
    database_of,
    must_exist,
    operate,
)
from marketplace.cli.shared.options import Home, Json, Yes
from marketplace.cli.shared.printing import confirm_spend, print_json
from marketplace.cli.shared.screen import out
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Malformed, NotFound
from marketplace.market.context import Market
from marketplace.market.upkeep import operator
from marketplace.process.main import folder_of
from marketplace.store import backup as backups

Subject = Annotated[
    str, typer.Argument(help="A provider (64 hex digits) or an account (56).", metavar="ID")
]
_PROVIDER, _ACCOUNT = 64, 56  # hex digits of a metering key, and of a payment key's hash


def _is_provider(subject: str) -> bool:
    try:
        length = len(bytes.fromhex(subject)) * 2
    except ValueError:
        length = 0
    if length not in (_PROVIDER, _ACCOUNT):
        raise Malformed(f"{subject[:80]!r} is neither a provider nor an account")
    return length == _PROVIDER


def suspend(
    home: Home,
    subject: Subject,
    why: Annotated[str, typer.Option(help="Shown to whom it concerns; kept in the audit log.")],
    db: Database = "",
    yes: Yes = False,
) -> None:
    """Match a provider no more and stop its leases, or close an account and stop its jobs.

    What was earned or paid in stays its owner's. A serving market sees it within 15 seconds.
    """
    provider = _is_provider(subject)
    what = "provider" if provider else "account"
    confirm_spend(f"Suspend {what} {subject}: {why}", yes)

    async def act(market: Market) -> int:
        if provider:
            return await operator.suspend_provider(market, subject, why)
        return await operator.suspend_account(market, subject, why)

    stopped = operate(database_of(db, home), home, act)
    things = "leases" if provider else "jobs"
    out.print(f"{what} suspended, {stopped} {things} stopped", markup=False)


def unsuspend(home: Home, subject: Subject, db: Database = "") -> None:
    """Take a suspension back."""
    provider = _is_provider(subject)

    async def act(market: Market) -> None:
        if provider:
            await operator.restore_provider(market, subject)
        else:
            await operator.restore_account(market, subject)

    operate(database_of(db, home), home, act)
    out.print(f"{'provider' if provider else 'account'} is back", markup=False)


def fee(
    home: Home,
    basis_points: Annotated[int, typer.Argument(help="Of each claim, 0 to 100; 50 is 0.5 %.")],
    db: Database = "",
) -> None:
    """The least settlement fee that an offer must grant to be listed. Signed terms keep theirs."""

    async def act(market: Market) -> None:
        await operator.set_fee(market, basis_points)

    operate(database_of(db, home), home, act)
    out.print(f"offers posted from now on grant at least {basis_points} basis points", markup=False)


def rekey_webhooks(home: Home, db: Database = "", yes: Yes = False) -> None:
    """A new key for webhooks' secrets, for when the old one is lost or was seen by others.

    Stop every market process first. Every webhook's owner has to rotate it to see its new secret.
    """
    purse = Purse.create(home, name=OPERATOR)
    confirm_spend("Make a new key: no webhook's secret of today signs anything after this.", yes)

    async def act(market: Market) -> int:
        purse.keys.forget(HOOKS)
        return await operator.rekey_hooks(market, purse.keys.create(HOOKS).seed)

    count = operate(database_of(db, home), home, act)
    out.print(f"{count} webhooks wait for their owners to rotate them", markup=False)


def priority(
    home: Home,
    account: Annotated[str, typer.Argument(help="An account (56 hex digits).")],
    most: Annotated[int, typer.Argument(help="The highest it may ask for, 0 to 100.")],
    db: Database = "",
    yes: Yes = False,
) -> None:
    """Grant an account jobs of higher priority: they go first, and others' leases end for them
    after a notice.
    """
    if _is_provider(account):
        raise Malformed("a priority is granted to an account, which has 56 hex digits")
    confirm_spend(f"Let account {account} ask for priority up to {most}", yes)

    async def act(market: Market) -> None:
        await operator.grant_priority(market, account, most)

    operate(database_of(db, home), home, act)
    out.print(f"account {account} may ask for priority up to {most}", markup=False)


def audit(
    home: Home,
    limit: Annotated[int, typer.Option(help="How many entries.")] = 50,
    actor: Annotated[
        str, typer.Option(help="Only what this one did; an account or operator.")
    ] = "",
    db: Database = "",
    as_json: Json = False,
) -> None:
    """Who did what to whom, newest first."""
    rows = operate(
        database_of(db, home), home, lambda market: operator.audit_log(market, limit, actor)
    )
    if as_json:
        print_json(
            {
                "items": [
                    {"id": row.id, "at_ms": row.at_ms, "actor": row.actor, "action": row.action,
                     "subject": row.subject, "detail": row.detail}
                    for row in rows
                ]
            }
        )  # fmt: skip
        return
    for row in rows:
        told = " ".join(f"{name}={value}" for name, value in row.detail.items())
        line = (
            f"{_when(row.at_ms)}  {row.actor[:16]:<16}  {row.action:<16}  {row.subject[:16]} "
            f" {told}"
        )
        out.print(line.rstrip(), markup=False, soft_wrap=True)


def backup(
    home: Home,
    file: Annotated[Path, typer.Argument(help="A new file; readable by you only.")],
    db: Database = "",
) -> None:
    """Write one consistent snapshot of the database, also while the market serves."""
    database = database_of(db, home)
    must_exist(database)
    if file.exists():
        raise Malformed(f"{file} exists: a backup never replaces a file")
    rows = backups.backup(database, file)
    _note(database, home, "backup", file, rows)
    out.print(f"{rows} rows in {file}; blobs lie in {folder_of(database, home)}", markup=False)


def restore(
    home: Home,
    file: Annotated[Path, typer.Argument(help="What `tally market backup` wrote.")],
    db: Database = "",
) -> None:
    """Load a backup into an empty database, SQLite or PostgreSQL, all or nothing."""
    if not file.is_file():
        raise NotFound(f"there is no file {file}")
    database = database_of(db, home)
    rows = backups.restore(database, file)
    _note(database, home, "restore", file, rows)
    out.print(f"{rows} rows restored from {file}", markup=False)


def _note(database: str, home: Path, action: str, file: Path, rows: int) -> None:
    operate(
        database,
        home,
        lambda market: operator.note(market, f"database.{action}", str(file), rows=rows),
    )


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
