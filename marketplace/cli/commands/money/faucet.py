"""``tally faucet``: devnet money for an address."""

from __future__ import annotations

from typing import Annotated

import httpx
import typer

from marketplace.cli.shared.options import ChainUrl, Json
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.screen import out
from marketplace.domain.errors import Fault, Refusal
from marketplace.domain.units import parse_money, show_ada

app = typer.Typer(help="Devnet money for an address.", rich_markup_mode=None)


class FaucetUnreachable(Fault):
    """No devnet answers there."""

    code = "FAUCET_UNREACHABLE"
    remedy = "start one with `tally devnet` or `tally up`, or name it with --chain-url"


class FaucetRefused(Refusal):
    """The devnet answered no."""

    code = "FAUCET_REFUSED"
    remedy = "check the address: a devnet's begins with addr_test"


def ask(chain_url: str, address: str, lovelace: int) -> str:
    """The id of the transaction that pays *lovelace* to *address*."""
    root = chain_url.removesuffix("/").removesuffix("/api/v0")
    try:
        answer = httpx.post(
            f"{root}/devnet/faucet",
            json={"address": address, "lovelace": lovelace},
            timeout=30,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        raise FaucetUnreachable(f"no devnet answers at {root}") from error
    if answer.status_code != 200:
        raise FaucetRefused(f"the devnet answered {answer.status_code}: {_why(answer)}")
    return str(answer.json()["tx_hash"])


def _why(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]


@app.command()
def faucet(
    address: str,
    amount: Annotated[str, typer.Argument(help="Such as '100 ADA'.")],
    chain_url: ChainUrl = "http://127.0.0.1:8090/api/v0",
    as_json: Json = False,
) -> None:
    """Pay AMOUNT to ADDRESS out of nothing: devnet only."""
    lovelace = parse_money(amount)
    tx = ask(chain_url, address, lovelace)
    if as_json:
        print_json({"tx": tx, "lovelace": lovelace})
    else:
        out.print(f"{show_ada(lovelace)} to {address}\ntransaction {tx}", markup=False)
