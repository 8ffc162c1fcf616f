"""``tally channel``: one's own money out, with a chain address alone and no market.

A channel is named by its session key; the output that opened it is read from its book, or found at
the purse's own address. Both are in the terms, in every invoice, and in `tally channel list`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.datum import read_stage
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.cli.commands.money.channel_check import check
from marketplace.cli.commands.money.channel_home import WITHIN, Within, close_all, list_own, sweep
from marketplace.cli.shared.options import ChainUrl, Home, Json, ProjectId, SubmitUrl, Where, Yes
from marketplace.cli.shared.printing import confirm_spend, print_json, print_table
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.session import chain, till
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.channel import Closing
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.units import parse_money, show_ada, show_duration

if TYPE_CHECKING:
    from marketplace.chain.channels.finder import ChannelView
    from marketplace.client.wallet.chain_wallet import Till

app = typer.Typer(
    help="One's own money out, with a chain address alone.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Session = Annotated[str, typer.Argument(help="The channel's session key, 64 hex digits.")]
Origin = Annotated[
    str,
    typer.Option(
        help="The output that opened it, TRANSACTION#INDEX: only for a channel of another purse."
    ),
]
KeyName = Annotated[str, typer.Option("--key", help="Which key of the keystore pays and signs.")]
Asset = Annotated[str, typer.Option(help="Hex of policy and name; empty for ADA.")]


app.command("check")(check)
app.command("sweep")(sweep)


class ChannelIsOver(Refusal):
    """The channel was finished already."""

    code = "CHANNEL_OVER"
    remedy = "its money is where the finishing transaction sent it"


@app.command("list")
def list_channels(
    home: Home,
    address: Annotated[
        str, typer.Argument(help="A channels' address; without it, the one of your own key.")
    ] = "",
    key: Annotated[
        str, typer.Option("--key", help="Which key of the keystore is yours.")
    ] = "purse",
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """Your channels, by your books and the chain together; or every channel at ADDRESS: with your
    stake part in it, they are yours.
    """
    if not address:
        list_own(home, key, chain_url, project_id, as_json)
        return

    async def look() -> list[dict[str, Any]]:
        reader = await chain(chain_url, project_id)
        at = addresses.from_text(address)
        return [row for row in map(_row, await reader.utxos(at)) if row is not None]

    rows = anyio.run(look)
    if as_json:
        print_json({"items": rows})
    else:
        cells = [
            (
                r["session_vk"],
                r["output"],
                r["stage"],
                show_ada(r["lovelace"]),
                show_ada(r["claimed"]),
            )
            for r in rows
        ]
        print_table(
            "channels",
            ("session key", "output", "stage", "holds", "claimed"),
            cells,
            whole=("session key", "output"),
        )


def _row(utxo: Utxo) -> dict[str, Any] | None:
    """A channel's output; None for something else that was sent to its address."""
    if utxo.datum is None:
        return None
    try:
        stage = read_stage(utxo.datum)
    except Refusal:
        return None
    return {
        "session_vk": stage.consts.session_vk.hex(),
        "output": str(utxo.ref),
        "stage": type(stage).__name__.lower(),
        "lovelace": utxo.lovelace,
        "claimed": stage.claimed,
        "expire_at_ms": stage.expire_at_ms if isinstance(stage, Closing) else None,
    }


async def _find(till: Till, session: str, origin: str, asset: str) -> ChannelView:
    from marketplace.chain.channels.finder import ChannelEnded

    try:
        session_vk = bytes.fromhex(session)
    except ValueError:
        raise Malformed("a session key is 64 hex digits") from None
    at = OutRef.parse(origin) if origin else await _origin(till, session_vk, asset)
    view = await till.look(session_vk, at, asset)
    if isinstance(view, ChannelEnded):
        raise ChannelIsOver(
            f"it ended at block {view.height}: {view.claimed} claimed, {view.refunded} refunded"
        )
    return view


async def _origin(till: Till, session_vk: bytes, asset: str) -> OutRef:
    """By its book, else at the purse's own address."""
    from marketplace.client.payer import journal

    if session_vk in journal.channels_in(till.purse.channels):
        facts = journal.peek(till.purse.channels, session_vk).facts
        if facts is not None and facts.open_tx:
            return OutRef(bytes.fromhex(facts.open_tx), facts.index)
    return await till.origin(session_vk, asset)


def _done(tx_id: bytes, fee: int, as_json: bool) -> None:
    if as_json:
        print_json({"tx": tx_id.hex(), "fee": fee})
    else:
        out.print(f"sent {tx_id.hex()}, fee {show_ada(fee)}", markup=False)


@app.command()
def close(
    home: Home,
    session: Annotated[
        str, typer.Argument(help="The channel's session key, 64 hex digits; or --all.")
    ] = "",
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Every channel that is idle: its provider is asked, else it is closed."
        ),
    ] = False,
    within: Within = WITHIN,
    origin: Origin = "",
    key: KeyName = "purse",
    asset: Asset = "",
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Start the close period of your channel; after it anybody may send the rest home. With --all
    each provider is asked to end its channel first, which costs you nothing.
    """
    if bool(session) == every:
        raise UsageError("name one channel, or --all")
    if every:
        where = Where("", chain_url, project_id, home, tuple(submit_url or ()))
        close_all(where, within, yes, as_json)
        return

    async def act() -> None:
        mine = await till(home, key, chain_url, project_id, submit_url or ())
        view = await _find(mine, session, origin, asset)
        period = show_duration(view.consts.close_period_ms)
        confirm_spend(
            f"Close a channel that holds {show_ada(view.amount)}; the provider has {period} to"
            " claim.",
            yes,
        )
        from marketplace.chain.actions.session import close_channel

        async with mine.turn():
            settled = await close_channel(mine.desk(asset), view)
        _done(settled.sent.tx_id, settled.sent.fee, as_json)

    anyio.run(act)


@app.command()
def finish(
    session: Session,
    home: Home,
    origin: Origin = "",
    payout: Annotated[
        str, typer.Option(help="The provider's address; needed with a voucher.")
    ] = "",
    voucher: Annotated[str, typer.Option(help="CUMULATIVE:SIGNATURE of the last voucher.")] = "",
    key: KeyName = "purse",
    asset: Asset = "",
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End a channel whose close period is over: the rest goes home, whoever asks."""

    async def act() -> None:
        mine = await till(home, key, chain_url, project_id, submit_url or ())
        view = await _find(mine, session, origin, asset)
        signed = _voucher(view.session_vk, voucher) if voucher else None
        payouts = {view.consts.payout: addresses.from_text(payout)} if payout else {}
        confirm_spend(f"Finish a channel that holds {show_ada(view.amount)}.", yes)
        from marketplace.chain.actions.session import finish_channels

        async with mine.turn():
            settled = await finish_channels(mine.desk(asset), [(view, signed)], payouts)
        _done(settled.sent.tx_id, settled.sent.fee, as_json)

    anyio.run(act)


@app.command("top-up")
def top_up_(
    session: Session,
    amount: Annotated[str, typer.Argument(help="Such as '5 ADA'.")],
    home: Home,
    origin: Origin = "",
    key: KeyName = "purse",
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Put more into your channel."""

    async def act() -> None:
        mine = await till(home, key, chain_url, project_id, submit_url or ())
        view = await _find(mine, session, origin, "")
        more = parse_money(amount)
        confirm_spend(
            f"Put {show_ada(more)} into a channel that holds {show_ada(view.amount)}.", yes
        )
        from marketplace.chain.actions.session import top_up

        async with mine.turn():
            settled = await top_up(mine.desk(), view, more)
        _done(settled.sent.tx_id, settled.sent.fee, as_json)

    anyio.run(act)


def _voucher(session_vk: bytes, text: str) -> Voucher:
    cumulative, _, signature = text.partition(":")
    try:
        voucher = Voucher(session_vk, int(cumulative), bytes.fromhex(signature))
    except ValueError:
        raise Malformed("a voucher is CUMULATIVE:SIGNATURE, a number and 128 hex digits") from None
    voucher.verify()
    return voucher
