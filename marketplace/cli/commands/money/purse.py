"""``tally purse``: the small hot balance that opens channels without a wallet's window."""

from __future__ import annotations

from typing import Annotated

import anyio
import typer

from marketplace.chain.encoding import address as addresses
from marketplace.cli.commands.money.channel_home import glance, holdings, summary
from marketplace.cli.commands.money.passphrase import change_passphrase
from marketplace.cli.commands.money.wallet import Mainnet, describe, show_facts
from marketplace.cli.shared.logs import configure_logs
from marketplace.cli.shared.options import ChainUrl, Home, Json, ProjectId, SubmitUrl, Where, Yes
from marketplace.cli.shared.printing import confirm_spend, print_json, print_table
from marketplace.cli.shared.refusals import UsageError, guarded
from marketplace.cli.shared.screen import out
from marketplace.client.wallet.purse import Purse
from marketplace.disk import private_folder
from marketplace.domain.errors import Refusal
from marketplace.domain.units import parse_money, show_ada
from marketplace.keystore import Keystore
from marketplace.passphrase import passphrase

app = typer.Typer(
    help="Fund, show and sweep the hot purse.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def fund(
    home: Home,
    amount: Annotated[
        str, typer.Argument(help="Such as '50 ADA'; without it only the address is shown.")
    ] = "",
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    mainnet: Mainnet = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make the purse if needed and pay AMOUNT into it from the wallet of the same home.

    Without AMOUNT, or from any other wallet: send ADA to the address that is shown.
    """

    def story() -> None:
        folder = private_folder(home)
        store = Keystore(folder / "keys")
        given = passphrase(confirm=not store.exists)
        purse = Purse.create(folder, passphrase=given)
        if not amount:
            show_facts(describe(purse, mainnet, chain_url, project_id), as_json)
            return
        lovelace = parse_money(amount)
        if not chain_url:
            raise UsageError("paying needs a chain: --chain-url or TALLY_CHAIN_URL")
        wallet = Purse.load(folder, passphrase=given, name="wallet")
        tx = anyio.run(
            _pay, wallet, purse, lovelace, chain_url, project_id, yes, tuple(submit_url or ())
        )
        if as_json:
            print_json({"tx": tx, "lovelace": lovelace})
        else:
            out.print(f"{show_ada(lovelace)} on the way, transaction {tx}", markup=False)

    guarded(story)


async def _pay(
    wallet: Purse,
    purse: Purse,
    lovelace: int,
    chain_url: str,
    project_id: str,
    yes: bool,
    submit_urls: tuple[str, ...],
) -> str:
    from marketplace.chain.node.blockfrost import connect
    from marketplace.client.wallet.chain_wallet import Till

    configure_logs()
    chain = await connect(chain_url, project_id, submit_urls=submit_urls)
    to = purse.address(mainnet=chain.mainnet)
    await anyio.to_thread.run_sync(confirm_spend, f"pay {show_ada(lovelace)} to {to}", yes)
    return (await Till(wallet, chain).pay(addresses.from_text(to), lovelace)).hex()


@app.command()
def show(
    home: Home,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    mainnet: Mainnet = False,
    as_json: Json = False,
) -> None:
    """What is free, what is locked where and until when, and how it comes home; without a chain,
    what its books say.
    """

    def story() -> None:
        from marketplace.client.payer import journal

        purse = Purse.load(private_folder(home))
        books = (_channel(purse, vk) for vk in journal.channels_in(purse.channels))
        channels = [one for one in books if not one.pop("hop")]  # those are paid over one of these
        found, facts = None, describe(purse, mainnet, "", "")
        if chain_url:
            mine, found = anyio.run(holdings, Where("", chain_url, project_id, home))
            facts = {"address": mine.address, "balance": found.free, "magic": mine.chain.magic}
            facts |= summary(found)
            living = {one.session_vk.hex(): one.to_json() for one in found.channels}
            channels = [c | living.pop(str(c["session_vk"]), {}) for c in channels]
            channels += living.values()
        if as_json:
            print_json({**facts, "channels": channels})
            return
        out.print(str(facts["address"]), markup=False)
        if found is not None:
            glance(found)
        else:
            _books(channels)

    guarded(story)


def _books(channels: list[dict[str, object]]) -> None:
    """By the books alone: no chain was asked."""
    rows = [
        (
            c["session_vk"],
            c["state"],
            show_ada(int(str(c["signed"]))),
            show_ada(int(str(c["amount"]))),
            f"{c['open_tx']}#{c['index']}",
        )
        for c in channels
    ]
    columns = ("session key", "state", "signed", "paid in", "opened by")
    print_table("channels", columns, rows, whole=("session key", "opened by"))


def _channel(purse: Purse, session_vk: bytes) -> dict[str, object]:
    from marketplace.client.payer import journal

    loaded = journal.peek(purse.channels, session_vk)
    facts = loaded.facts.to_json() if loaded.facts is not None else {}
    return {
        "session_vk": session_vk.hex(),
        "state": facts.get("state", ""),
        "amount": facts.get("amount", 0),
        "open_tx": facts.get("open_tx", ""),
        "index": facts.get("index", 0),
        "provider": facts.get("provider", ""),
        "router": bool(facts.get("router")),
        "hop": facts.get("hop", ""),
        "signed": loaded.book.signed,
        "stopped": loaded.book.stopped,
        "leases": sorted(loaded.terms),
    }


@app.command(name="passphrase")
def change(home: Home) -> None:
    """Change the passphrase of this home's keys, the wallet's too."""
    guarded(lambda: change_passphrase(home / "keys"))


class ChannelsOpen(Refusal):
    """Money is still in channels; sweeping takes only what is at the address."""

    code = "CHANNELS_OPEN"
    remedy = "end their jobs first (`tally job stop`), or sweep again later with what came home"


@app.command()
def sweep(
    home: Home,
    to: Annotated[str, typer.Argument(help="Where everything goes.")],
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Send everything at the purse's address to TO. Its keys stay: what comes home later can
    follow.
    """

    def story() -> None:
        if not chain_url:
            raise UsageError("sweeping needs a chain: --chain-url or TALLY_CHAIN_URL")
        purse = Purse.load(private_folder(home))
        tx, lovelace = anyio.run(
            _sweep, purse, to, chain_url, project_id, yes, tuple(submit_url or ())
        )
        if as_json:
            print_json({"tx": tx, "lovelace": lovelace})
        else:
            out.print(f"{show_ada(lovelace)} on the way, transaction {tx}", markup=False)

    guarded(story)


async def _sweep(
    purse: Purse,
    to: str,
    chain_url: str,
    project_id: str,
    yes: bool,
    submit_urls: tuple[str, ...],
) -> tuple[str, int]:
    from marketplace.chain.node.blockfrost import connect
    from marketplace.client.wallet.chain_wallet import Till

    configure_logs()
    chain = await connect(chain_url, project_id, submit_urls=submit_urls)
    till = Till(purse, chain)
    address = addresses.from_text(to)
    if addresses.is_mainnet(address) != chain.mainnet:
        raise UsageError("this address is of another network")
    what = f"send everything, {show_ada(await till.balance())} less the fee, to {to}"
    await anyio.to_thread.run_sync(confirm_spend, what, yes)
    tx, lovelace = await till.sweep(address)
    return tx.hex(), lovelace
