"""``tally market``: serve a market, migrate its database, deploy the scripts, operate it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
import typer

from marketplace.api.main import Config, folder_of, serve
from marketplace.chain.actions import Desk, deploy
from marketplace.chain.connect import connect
from marketplace.chain.ledger import ChainLedger
from marketplace.chain.submit import FileLog
from marketplace.cli.common import (
    ChainUrl,
    Home,
    Json,
    ProjectId,
    Yes,
    confirm_spend,
    out,
    print_json,
    private_folder,
)
from marketplace.cli.desk import desk
from marketplace.client.purse import Purse
from marketplace.domain.units import parse_duration_ms, show_ada
from marketplace.service.market import Settings
from marketplace.store.migrate import migrate as migrate_database

app = typer.Typer(
    help="Serve, migrate, settle and operate a market.", no_args_is_help=True, rich_markup_mode=None
)

Database = Annotated[
    str, typer.Option("--db", envvar="TALLY_DB", help="sqlite:///FILE or postgresql://…")
]
OPERATOR = "operator"


def _database(db: str, home: Path) -> str:
    return db or f"sqlite:///{private_folder(home) / 'market.db'}"


async def _ledger(home: Path, chain_url: str, project_id: str, public: str) -> ChainLedger | None:
    """With the operator's key when the keystore has one, else reading only."""
    if not chain_url:
        return None
    chain = await connect(chain_url, project_id)
    purse = Purse.create(home, name=OPERATOR)
    wallet = purse.wallet(mainnet=chain.mainnet)
    log = FileLog(private_folder(home) / "operator.transactions")
    return ChainLedger(chain, Desk(chain, wallet, "", log), public)


@app.command("serve")
def serve_(
    home: Home,
    db: Database = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    public_chain_url: Annotated[
        str,
        typer.Option(help="Chain address told to clients that name none; never one with a key."),
    ] = "",
    public_url: Annotated[str, typer.Option(help="How the world reaches this market.")] = "",
    origin: Annotated[
        list[str] | None, typer.Option(help="Web pages that may call the API.")
    ] = None,
    resume_window: Annotated[
        str, typer.Option(help="How long a lost provider may take to come back.")
    ] = "10m",
    settle_every: Annotated[str, typer.Option(help="Time between two rounds of claims.")] = "30s",
) -> None:
    """Serve until Ctrl-C. Prints one JSON line with its address when it is ready."""
    database = _database(db, home)

    async def run() -> None:
        ledger = await _ledger(home, chain_url, project_id, public_chain_url)
        magic = int((await ledger.network())["magic"]) if ledger is not None else 42
        settings = replace(
            Settings(),
            magic=magic,
            resume_window_ms=parse_duration_ms(resume_window),
            settle_every_ms=parse_duration_ms(settle_every),
        )
        await serve(
            Config(
                db=database,
                blob_folder=folder_of(database, home),
                host=host,
                port=port,
                public_url=public_url,
                origins=tuple(origin or ()),
                settings=settings,
                ledger=ledger,
                on_ready=lambda url: print_json({"url": url, "magic": magic}),
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
            "Deploy the channel's scripts: about 15 ADA, most of it stays locked in the outputs that hold them.",
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
