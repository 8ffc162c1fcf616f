"""``tally wallet``: a key of one's own that funds purses; encrypted, never sent anywhere."""

from __future__ import annotations

from typing import Annotated

import anyio
import typer

from marketplace.chain.encoding import address as addresses
from marketplace.cli.commands.money.passphrase import change_passphrase
from marketplace.cli.shared.options import ChainUrl, Home, Json, ProjectId
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import guarded
from marketplace.cli.shared.screen import out
from marketplace.client.wallet.purse import Purse
from marketplace.disk import private_folder
from marketplace.domain.units import show_ada

app = typer.Typer(help="Make and show a wallet.", no_args_is_help=True, rich_markup_mode=None)

Mainnet = Annotated[bool, typer.Option("--mainnet", help="Show its mainnet address.")]


def describe(purse: Purse, mainnet: bool, chain_url: str, project_id: str) -> dict[str, object]:
    """Its address and, where a chain is named, its balance."""

    async def story() -> dict[str, object]:
        if not chain_url:
            return {"address": purse.address(mainnet=mainnet), "balance": None, "magic": None}
        from marketplace.chain.node.blockfrost import connect

        chain = await connect(chain_url, project_id)
        address = purse.wallet(mainnet=chain.mainnet).address
        balance = sum(utxo.lovelace for utxo in await chain.utxos(address))
        return {"address": addresses.to_text(address), "balance": balance, "magic": chain.magic}

    return anyio.run(story)


def show_facts(facts: dict[str, object], as_json: bool) -> None:
    """Both for people and for programs."""
    if as_json:
        print_json(facts)
        return
    out.print(str(facts["address"]), markup=False)
    if isinstance(facts["balance"], int):
        out.print(show_ada(facts["balance"]), markup=False)


@app.command()
def new(
    home: Home,
    mainnet: Mainnet = False,
    as_json: Json = False,
) -> None:
    """Make a wallet, encrypted under a passphrase; an existing one is only shown."""

    def story() -> None:
        purse = Purse.create(private_folder(home), name="wallet")
        show_facts(describe(purse, mainnet, "", ""), as_json)

    guarded(story)


@app.command()
def show(
    home: Home,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    mainnet: Mainnet = False,
    as_json: Json = False,
) -> None:
    """Its address and balance."""

    def story() -> None:
        purse = Purse.load(private_folder(home), name="wallet")
        show_facts(describe(purse, mainnet, chain_url, project_id), as_json)

    guarded(story)


@app.command()
def passphrase(home: Home) -> None:
    """Change the passphrase of this home's keys, the purse's too."""
    guarded(lambda: change_passphrase(home / "keys"))
