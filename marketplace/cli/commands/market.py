"""``tally market``: serve a market, migrate its database, deploy the scripts, operate it.

Over 400 lines: a command each, with the help of every option.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypeVar

import anyio
import typer

from marketplace.chain.actions.session import Desk, deploy
from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit import FileLog
from marketplace.cli.shared.options import ChainUrl, Home, Json, Port, ProjectId, SubmitUrl, Yes
from marketplace.cli.shared.printing import confirm_spend, print_json
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.screen import err, out
from marketplace.cli.shared.session import desk
from marketplace.client.wallet.purse import Purse
from marketplace.disk import private_folder
from marketplace.domain.errors import Malformed, NotFound
from marketplace.domain.units import parse_duration_ms, show_ada
from marketplace.market.base.settings import Settings
from marketplace.market.context import Market
from marketplace.market.upkeep import operator
from marketplace.passphrase import PassphraseMissing, passphrase
from marketplace.process.chain_supervisor import Connect
from marketplace.process.main import Config, assemble, folder_of, serve
from marketplace.store import backup as backups
from marketplace.store.migrate import migrate as migrate_database

app = typer.Typer(
    help="Serve, migrate, settle and operate a market.", no_args_is_help=True, rich_markup_mode=None
)

Database = Annotated[
    str, typer.Option("--db", envvar="TALLY_DB", help="sqlite:///FILE or postgresql://…")
]
Subject = Annotated[
    str, typer.Argument(help="A provider (64 hex digits) or an account (56).", metavar="ID")
]
OPERATOR: Final = "operator"
HOOKS: Final = "webhooks"  # the key that webhooks' secrets are derived from
_PROVIDER, _ACCOUNT = 64, 56  # hex digits of a metering key, and of a payment key's hash
T = TypeVar("T")


class NoDatabase(NotFound):
    """There is nothing to operate on."""

    code = "DATABASE_MISSING"
    remedy = "say which with --db or TALLY_DB, as `tally market serve` was told"


def _database(db: str, home: Path) -> str:
    if db and not db.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise UsageError(f"--db: {db.partition(':')[0]!r} is neither sqlite nor postgresql")
    return db or f"sqlite:///{private_folder(home) / 'market.db'}"


def _chain(
    home: Path,
    purse: Purse | None,
    chain_url: str,
    project_id: str,
    public: str,
    submit_urls: Sequence[str] = (),
) -> Connect | None:
    """How to reach the chain, with the operator's key; None without one."""
    if purse is None or not chain_url:
        return None
    log = FileLog(private_folder(home) / "operator.transactions")

    async def to() -> tuple[int, ChainLedger]:
        chain = await connect(chain_url, project_id, submit_urls=submit_urls)
        desk = Desk(chain, purse.wallet(mainnet=chain.mainnet), "", log)
        return chain.magic, ChainLedger(chain, desk, public)

    return to


def _operator(home: Path, needed: bool) -> Purse | None:
    """The market's keystore; without a passphrase none, unless it is *needed*."""
    try:
        return Purse.create(
            home, name=OPERATOR, passphrase=None if needed else passphrase(ask=False)
        )
    except PassphraseMissing:
        if needed:
            raise
        err.print(
            "no passphrase: this market signs no webhooks (TALLY_PASSPHRASE_FILE names one)",
            markup=False,
        )
        return None


@app.command("serve")
def serve_(
    home: Home,
    db: Database = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Port = 8000,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    public_chain_url: Annotated[
        str,
        typer.Option(help="Chain address told to clients that name none; never one with a key."),
    ] = "",
    public_url: Annotated[
        str, typer.Option(help="How the world reaches this market: named in every sign-in.")
    ] = "",
    also_url: Annotated[
        list[str] | None,
        typer.Option(
            envvar="TALLY_ALSO_URL",
            help="A further address at which clients dial it, such as one inside a cluster.",
        ),
    ] = None,
    internal_url: Annotated[
        str,
        typer.Option(
            envvar="TALLY_INTERNAL_URL",
            help="How the market's other processes reach this one; without it, where it listens.",
        ),
    ] = "",
    origin: Annotated[
        list[str] | None, typer.Option(help="Web pages that may call the API.")
    ] = None,
    forwarded_allow_ips: Annotated[
        str,
        typer.Option(
            envvar="TALLY_FORWARDED_ALLOW_IPS",
            help="Proxies whose X-Forwarded-For is believed: addresses or networks, with commas"
            " between. Without it all clients of a proxy elsewhere share one client's limits.",
        ),
    ] = "127.0.0.1",
    hellos_per_minute: Annotated[
        int, typer.Option(min=1, help="Connections of adapters and payers from one address.")
    ] = Settings.hellos_per_minute,
    resume_window: Annotated[
        str, typer.Option(help="How long a lost provider may take to come back.")
    ] = "10m",
    settle_every: Annotated[str, typer.Option(help="Time between two rounds of claims.")] = "30s",
) -> None:
    """Serve until Ctrl-C. Prints one JSON line with its address when it is ready."""
    database = _database(db, home)

    async def run() -> None:
        purse = _operator(home, needed=bool(chain_url))
        settings = replace(
            Settings(),
            resume_window_ms=parse_duration_ms(resume_window),
            settle_every_ms=parse_duration_ms(settle_every),
            hellos_per_minute=hellos_per_minute,
        )
        await serve(
            Config(
                db=database,
                blob_folder=folder_of(database, home),
                host=host,
                port=port,
                public_url=public_url,
                also_urls=tuple(also_url or ()),
                internal_url=internal_url,
                origins=tuple(origin or ()),
                forwarded_allow_ips=forwarded_allow_ips,
                settings=settings,
                connect=_chain(
                    home, purse, chain_url, project_id, public_chain_url, submit_url or ()
                ),
                hook_key=purse.keys.load_or_create(HOOKS).seed if purse is not None else b"",
                on_ready=lambda url, magic: print_json({"url": url, "magic": magic}),
            )
        )

    anyio.run(run)


@app.command()
def migrate(home: Home, db: Database = "") -> None:
    """Bring the database to this version's schema."""
    database = _database(db, home)
    migrate_database(database)
    out.print("the database is up to date", markup=False)


@app.command("deploy")
def deploy_(
    home: Home,
    key: Annotated[str, typer.Option(help="Whose wallet pays.")] = OPERATOR,
    asset: Annotated[str, typer.Option(help="Hex of policy and name; empty for ADA.")] = "",
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Put the reference scripts on chain and register the script's stake credential, once."""

    async def act() -> None:
        mine = await desk(home, key, chain_url, project_id, asset=asset)
        confirm_spend(
            "Deploy the channel's scripts: about 15 ADA, most of it stays locked in the outputs"
            " that hold them.",
            yes,
        )
        sent = await deploy(mine)
        if as_json:
            print_json({"tx": sent.tx_id.hex() if sent else None, "fee": sent.fee if sent else 0})
        elif sent is None:
            out.print("everything is there already", markup=False)
        else:
            out.print(f"deployed in {sent.tx_id.hex()}, fee {show_ada(sent.fee)}", markup=False)

    anyio.run(act)


@app.command()
def address(
    home: Home,
    mainnet: Annotated[bool, typer.Option(help="For mainnet.")] = False,
) -> None:
    """The operator's address: fund it so that the market can claim for sleeping providers."""
    out.print(Purse.create(home, name=OPERATOR).address(mainnet=mainnet), markup=False)


# ---- operating -----------------------------------------------------------------------------------


def _operate(database: str, home: Path, act: Callable[[Market], Awaitable[T]]) -> T:
    """*act* on the market's database, beside the processes that serve it."""
    folder = folder_of(database, home)
    _must_exist(database)
    migrate_database(database)

    async def run() -> T:
        parts = assemble(Config(db=database, blob_folder=folder))
        try:
            return await act(parts.market)
        finally:
            parts.database.close()

    return anyio.run(run)


def _must_exist(database: str) -> None:
    path = database.removeprefix("sqlite:///")
    if path != database and not Path(path).is_file():
        raise NoDatabase(f"there is no database at {path}")


def _is_provider(subject: str) -> bool:
    try:
        length = len(bytes.fromhex(subject)) * 2
    except ValueError:
        length = 0
    if length not in (_PROVIDER, _ACCOUNT):
        raise Malformed(f"{subject[:80]!r} is neither a provider nor an account")
    return length == _PROVIDER


@app.command()
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

    stopped = _operate(_database(db, home), home, act)
    things = "leases" if provider else "jobs"
    out.print(f"{what} suspended, {stopped} {things} stopped", markup=False)


@app.command()
def unsuspend(home: Home, subject: Subject, db: Database = "") -> None:
    """Take a suspension back."""
    provider = _is_provider(subject)

    async def act(market: Market) -> None:
        if provider:
            await operator.restore_provider(market, subject)
        else:
            await operator.restore_account(market, subject)

    _operate(_database(db, home), home, act)
    out.print(f"{'provider' if provider else 'account'} is back", markup=False)


@app.command()
def fee(
    home: Home,
    basis_points: Annotated[int, typer.Argument(help="Of each claim, 0 to 100; 50 is 0.5 %.")],
    db: Database = "",
) -> None:
    """The least settlement fee that an offer must grant to be listed. Signed terms keep theirs."""

    async def act(market: Market) -> None:
        await operator.set_fee(market, basis_points)

    _operate(_database(db, home), home, act)
    out.print(f"offers posted from now on grant at least {basis_points} basis points", markup=False)


@app.command("rekey-webhooks")
def rekey_webhooks(home: Home, db: Database = "", yes: Yes = False) -> None:
    """A new key for webhooks' secrets, for when the old one is lost or was seen by others.

    Stop every market process first. Every webhook's owner has to rotate it to see its new secret.
    """
    purse = Purse.create(home, name=OPERATOR)
    confirm_spend("Make a new key: no webhook's secret of today signs anything after this.", yes)

    async def act(market: Market) -> int:
        purse.keys.forget(HOOKS)
        return await operator.rekey_hooks(market, purse.keys.create(HOOKS).seed)

    count = _operate(_database(db, home), home, act)
    out.print(f"{count} webhooks wait for their owners to rotate them", markup=False)


@app.command()
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

    _operate(_database(db, home), home, act)
    out.print(f"account {account} may ask for priority up to {most}", markup=False)


@app.command()
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
    rows = _operate(
        _database(db, home), home, lambda market: operator.audit_log(market, limit, actor)
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


@app.command()
def backup(
    home: Home,
    file: Annotated[Path, typer.Argument(help="A new file; readable by you only.")],
    db: Database = "",
) -> None:
    """Write one consistent snapshot of the database, also while the market serves."""
    database = _database(db, home)
    _must_exist(database)
    if file.exists():
        raise Malformed(f"{file} exists: a backup never replaces a file")
    rows = backups.backup(database, file)
    _note(database, home, "backup", file, rows)
    out.print(f"{rows} rows in {file}; blobs lie in {folder_of(database, home)}", markup=False)


@app.command()
def restore(
    home: Home,
    file: Annotated[Path, typer.Argument(help="What `tally market backup` wrote.")],
    db: Database = "",
) -> None:
    """Load a backup into an empty database, SQLite or PostgreSQL, all or nothing."""
    if not file.is_file():
        raise NotFound(f"there is no file {file}")
    database = _database(db, home)
    rows = backups.restore(database, file)
    _note(database, home, "restore", file, rows)
    out.print(f"{rows} rows restored from {file}", markup=False)


def _note(database: str, home: Path, action: str, file: Path, rows: int) -> None:
    _operate(
        database,
        home,
        lambda market: operator.note(market, f"database.{action}", str(file), rows=rows),
    )


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
