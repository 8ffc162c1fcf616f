"""``tally market``: serve a market, migrate its database, deploy the scripts.

What an operator does to its database is in ``operator.py``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
import typer

from marketplace.chain.actions.session import Desk, deploy
from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit import FileLog
from marketplace.cli.commands.market import operator as market_operator
from marketplace.cli.commands.market import registry as registry_command
from marketplace.cli.commands.market import router as router_command
from marketplace.cli.commands.market.database import (
    HOOKS,
    OPERATOR,
    Database,
    database_of,
)
from marketplace.cli.shared.options import ChainUrl, Home, Json, Port, ProjectId, SubmitUrl, Yes
from marketplace.cli.shared.printing import confirm_spend, print_json
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.screen import err, out
from marketplace.cli.shared.session import desk
from marketplace.client.net.price_source import check
from marketplace.client.wallet.purse import Purse
from marketplace.cluster_store.process import Shelves
from marketplace.disk import private_folder
from marketplace.domain.hkdf import hkdf_sha256
from marketplace.domain.units import parse_duration_ms, parse_money, show_ada
from marketplace.domain.work.image_names import registry_name
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.market.base.settings import Settings
from marketplace.passphrase import PassphraseMissing, passphrase
from marketplace.process.chain_supervisor import Connect
from marketplace.process.main import Config, folder_of, serve
from marketplace.process.routing import Route
from marketplace.router.running import Place, RouterRun, assemble
from marketplace.store.migrate import migrate as migrate_database
from marketplace.system import LOOP, SystemClock, SystemIds

app = typer.Typer(
    help="Serve, migrate, settle and operate a market.", no_args_is_help=True, rich_markup_mode=None
)

PublicChainUrl = Annotated[
    str, typer.Option(help="Chain address told to clients that name none; never one with a key.")
]
PublicUrl = Annotated[
    str, typer.Option(help="How the world reaches this market: named in every sign-in.")
]
AlsoUrl = Annotated[
    list[str] | None,
    typer.Option(
        envvar="TALLY_ALSO_URL",
        help="A further address at which clients dial it, such as one inside a cluster.",
    ),
]
InternalUrl = Annotated[
    str,
    typer.Option(
        envvar="TALLY_INTERNAL_URL",
        help="How the market's other processes reach this one; without it, where it listens.",
    ),
]
AppsUrl = Annotated[
    str,
    typer.Option(
        envvar="TALLY_APPS_URL",
        help="The domain under which each port of a workload has an address of its own, such as"
        " https://apps.example: all names under it lead to this market.",
    ),
]
Origin = Annotated[list[str] | None, typer.Option(help="Web pages that may call the API.")]
ForwardedAllowIps = Annotated[
    str,
    typer.Option(
        envvar="TALLY_FORWARDED_ALLOW_IPS",
        help="Proxies whose X-Forwarded-For is believed: addresses or networks, with commas"
        " between. Without it all clients of a proxy elsewhere share one client's limits.",
    ),
]
EndShare = Annotated[
    str, typer.Option(help="The most that you pay for ending one channel together with others'.")
]
EndBudget = Annotated[
    str, typer.Option(help="And for all of them in a day; 0 ADA: each provider ends its own.")
]
PriceUrl = Annotated[
    str,
    typer.Option(
        envvar="TALLY_PRICE_URL",
        help="Where the price of ADA is read, for the pages to show. None by default.",
    ),
]
MeshRelay = Annotated[
    str,
    typer.Option(
        "--mesh",
        envvar="TALLY_MESH",
        help="Relay for members of clusters that reach each other by no other way: an IPv4 address"
        " of this machine at which their hosts reach it, and UDP ports, one a member of the"
        " largest cluster, such as 203.0.113.5:42000-42063. They carry ciphertext.",
    ),
]
StoreFolder = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="TALLY_STORE_FOLDER",
        help="Keep stores of clusters: a folder, and how much fits into each of them, such as"
        " /srv/stores:10GB. Of several processes of a market one does.",
    ),
]
StoreAt = Annotated[
    str, typer.Option(help="Where the stores are served, HOST:PORT; port 0 takes a free one.")
]
StoreUrl = Annotated[
    str,
    typer.Option(
        envvar="TALLY_STORE_URL",
        help="How adapters reach the stores: https://host, which leads to --store-at. Said to"
        " each process of the market.",
    ),
]
StoreKeep = Annotated[str, typer.Option(help="How long a store is kept that no cluster uses.")]
HellosPerMinute = Annotated[
    int, typer.Option(min=1, help="Connections of adapters and payers from one address.")
]

RouteFolder = Annotated[
    Path | None,
    typer.Option(
        "--route",
        envvar="TALLY_ROUTE",
        help="Pass payments on: a folder for the router's keys, books and limits.toml. See `tally"
        " market router`.",
    ),
]
RouteTower = Annotated[
    Path | None,
    typer.Option(help="A second copy of the router's books, on another disk; for `tally watch`."),
]
RoutePayout = Annotated[
    str,
    typer.Option(
        help="Where the router is paid, and where the rest of its ended hops goes; without it, its"
        " own purse."
    ),
]


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


def _route(place: Place, chain_url: str, project_id: str, submit_urls: Sequence[str]) -> Route:
    """How to open the router of *place* at its own door to the chain."""
    if not chain_url:
        raise UsageError("--route needs a chain: name one with --chain-url")

    async def opened() -> RouterRun:
        chain = await connect(chain_url, project_id, submit_urls=submit_urls)
        return await assemble(place, chain, SystemClock(), SystemIds())

    return opened


def _operator(home: Path, needed: bool) -> Purse | None:
    """The market's keystore; without a passphrase none, unless it is *needed*: on a chain it pays
    and is paid, and who may use which of its stores follows from a key of its own.
    """
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
    public_chain_url: PublicChainUrl = "",
    public_url: PublicUrl = "",
    also_url: AlsoUrl = None,
    internal_url: InternalUrl = "",
    apps_url: AppsUrl = "",
    origin: Origin = None,
    forwarded_allow_ips: ForwardedAllowIps = "127.0.0.1",
    hellos_per_minute: HellosPerMinute = Settings.hellos_per_minute,
    resume_window: Annotated[
        str, typer.Option(help="How long a lost provider may take to come back.")
    ] = "10m",
    settle_every: Annotated[str, typer.Option(help="Time between two rounds of claims.")] = "30s",
    end_share: EndShare = "0.06 ADA",
    end_budget: EndBudget = "5 ADA",
    price_url: PriceUrl = "",
    registry: Annotated[
        str,
        typer.Option(
            envvar="TALLY_REGISTRY",
            help="The name of this market's registry of images, host[:port]: see `tally market"
            " registry`.",
        ),
    ] = "",
    loopback_hooks: Annotated[
        bool, typer.Option(help="Webhooks may call this machine. Of a devnet's market alone.")
    ] = False,
    mesh: MeshRelay = "",
    store: StoreFolder = "",
    store_at: StoreAt = "127.0.0.1:0",
    store_url: StoreUrl = "",
    store_keep: StoreKeep = "30d",
    route: RouteFolder = None,
    route_tower: RouteTower = None,
    route_payout: RoutePayout = "",
) -> None:
    """Serve until Ctrl-C. Prints one JSON line with its address when it is ready."""
    database = database_of(db, home)

    async def run() -> None:
        purse = _operator(home, needed=bool(chain_url or store or store_url))
        settings = replace(
            Settings(),
            resume_window_ms=parse_duration_ms(resume_window),
            settle_every_ms=parse_duration_ms(settle_every),
            end_share=parse_money(end_share),
            end_budget=parse_money(end_budget),
            hellos_per_minute=hellos_per_minute,
            loopback_hooks=loopback_hooks,
            registry=registry_name(registry) if registry else "",
        )
        hook_key = purse.keys.load_or_create(HOOKS).seed if purse is not None else b""
        shelves = Shelves.read(
            store, store_at, store_url, parse_duration_ms(store_keep) // 1000,
            hkdf_sha256(hook_key, b"tally/cluster-store/v1"),
        )  # fmt: skip
        await serve(
            Config(
                shelves=shelves,
                price_url=check(price_url) if price_url else "",
                mesh_relay=RelayPlace.read(mesh, os.urandom(32)) if mesh else None,
                db=database,
                blob_folder=folder_of(database, home),
                host=host,
                port=port,
                public_url=public_url,
                also_urls=tuple(also_url or ()),
                internal_url=internal_url,
                apps_url=apps_url,
                origins=tuple(origin or ()),
                forwarded_allow_ips=forwarded_allow_ips,
                settings=settings,
                connect=_chain(
                    home, purse, chain_url, project_id, public_chain_url, submit_url or ()
                ),
                route=_route(
                    Place.of(route, route_tower, route_payout),
                    chain_url,
                    project_id,
                    submit_url or (),
                )
                if route is not None
                else None,
                hook_key=hook_key,
                on_ready=lambda url, magic: print_json({"url": url, "magic": magic}),
            )
        )

    anyio.run(run, backend_options=LOOP)


@app.command()
def migrate(home: Home, db: Database = "") -> None:
    """Bring the database to this version's schema."""
    database = database_of(db, home)
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


for _command in (
    market_operator.suspend,
    market_operator.unsuspend,
    market_operator.fee,
    market_operator.rekey_webhooks,
    market_operator.priority,
    market_operator.audit,
    market_operator.backup,
    market_operator.restore,
    router_command.router,
    registry_command.registry,
):
    app.command()(_command)
