"""``tally channel check``: what somebody else built for a wallet whose keys are elsewhere, before
it signs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from marketplace.cli.shared.options import ChainUrl, Json, ProjectId
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.session import chain
from marketplace.domain.errors import Malformed
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import parse_money

if TYPE_CHECKING:
    from marketplace.chain.actions.judge import StepName, Wanted
    from marketplace.chain.encoding.utxo import OutRef, Utxo
    from marketplace.chain.node.blockfrost import ChainReader
    from marketplace.domain.money.channel import Consts

STEPS = ("open", "topup", "close")


def check(
    step: Annotated[str, typer.Argument(help="open, topup or close: what you asked for.")],
    tx: Annotated[str, typer.Argument(help="The unsigned transaction: hex, or a file of it.")],
    own: Annotated[list[str], typer.Option(help="An address of your wallet; all that it has.")],
    session: Annotated[str, typer.Option(help="The channel's session key, 64 hex digits.")] = "",
    origin: Annotated[str, typer.Option(help="The output that opened it: TRANSACTION#INDEX.")] = "",
    terms: Annotated[
        str, typer.Option(help="The terms that you signed: hex, or a file of it.")
    ] = "",
    amount: Annotated[str, typer.Option(help="Such as '5 ADA': what goes in.")] = "",
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """Judge a transaction that a market or anybody built, before your wallet signs it.

    Exit 0 only if it does exactly this one step, with your own money, and nothing else.
    """
    if step not in STEPS:
        raise UsageError(f"a step is one of {', '.join(STEPS)}")
    raw = _hex(tx, "the transaction")
    agreed = Terms.decode(_hex(terms, "the terms")) if terms else None
    name: StepName = step

    async def known() -> Wanted:
        reader = await chain(chain_url, project_id)
        return await _wanted(reader, raw, name, own, session, origin, agreed, amount)

    from marketplace.chain.actions.judge import judge, require

    wanted = anyio.run(known)
    found = judge(raw, wanted)
    if as_json:
        print_json(
            {
                "ok": not any(f.wrong for f in found),
                "rules": [{"code": f.code, "wrong": f.wrong} for f in found],
            }
        )
    require(raw, wanted)
    if not as_json:
        out.print(f"it is {step} and nothing else: {len(found)} rules hold", markup=False)


async def _wanted(
    reader: ChainReader,
    raw: bytes,
    step: StepName,
    own: list[str],
    session: str,
    origin: str,
    agreed: Terms | None,
    amount: str,
) -> Wanted:
    from marketplace.chain.actions.judge import Wanted
    from marketplace.chain.encoding import address as addresses

    mine = tuple(addresses.from_text(one) for one in own)
    utxos = {u.ref: u for one in mine for u in await reader.utxos(one)}
    tip = await reader.tip()
    channel: Utxo | None = None
    if step == "open":
        if agreed is None:
            raise UsageError("an open is compared with the terms: --terms")
        consts, least, most = await _opening(reader, agreed, mine[0], amount)
    else:
        channel, consts = await _standing(reader, session, origin, agreed)
        least = most = parse_money(amount) if step == "topup" else 0
    hashes = {ref: await _script_at(reader, ref) for ref in _references(raw)}
    return Wanted(
        step, reader.mainnet, mine, utxos, consts, least, most, channel, tip.slot, tip.time_ms,
        hashes,
    )  # fmt: skip


async def _opening(
    reader: ChainReader, agreed: Terms, address: bytes, amount: str
) -> tuple[Consts, int, int]:
    """(constants, the least and the most that go in): the ceiling or *amount*, and the reserve."""
    from marketplace.chain.build import plans
    from marketplace.chain.encoding import datum
    from marketplace.chain.encoding.address import channel_address
    from marketplace.chain.transaction.outputs import Out
    from marketplace.chain.transaction.scripts import scripts_for
    from marketplace.domain.money.address import Address
    from marketplace.domain.money.channel import Open

    snapshot = await reader.snapshot(scripts_for())
    least = parse_money(amount) if amount else agreed.ceiling
    stake = Address.parse(address).stake
    at = channel_address(snapshot.scripts.stub_hash, stake, snapshot.mainnet)
    body = datum.stage_bytes(Open(agreed.consts(), 0))
    return agreed.consts(), least, least + plans.reserve(snapshot, Out(at, least, datum=body))


async def _standing(
    reader: ChainReader, session: str, origin: str, agreed: Terms | None
) -> tuple[Utxo, Consts]:
    """The channel as the chain shows it, and the constants that it must keep."""
    from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder
    from marketplace.chain.encoding.utxo import OutRef
    from marketplace.chain.transaction.scripts import scripts_for

    if not session or not origin:
        raise UsageError("a step is of one channel: --session and --origin name it")
    try:
        session_vk = bytes.fromhex(session)
    except ValueError:
        raise Malformed("a session key is 64 hex digits") from None
    view = await ChannelFinder(reader, scripts_for(), b"").find(session_vk, OutRef.parse(origin))
    if isinstance(view, ChannelEnded):
        raise UsageError("the channel has ended: there is nothing to sign")
    return view.utxo, agreed.consts() if agreed else view.consts


def _references(raw: bytes) -> tuple[OutRef, ...]:
    from marketplace.chain.actions.judge import references_of

    return references_of(raw)


async def _script_at(reader: ChainReader, ref: OutRef) -> bytes | None:
    found = await reader.output(ref)
    return found.utxo.script_hash if found is not None else None


def _hex(given: str, what: str) -> bytes:
    """Bytes of hex, or of a file that holds hex (a text envelope's ``cborHex`` among them)."""
    import json

    text = given.strip()
    if not all(c in "0123456789abcdefABCDEF" for c in text):
        path = Path(given)
        if not path.is_file():
            raise Malformed(f"{what}: neither hex nor a file")
        text = path.read_text(encoding="utf-8").strip()
        if text.startswith("{"):
            text = str(json.loads(text).get("cborHex", ""))
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Malformed(f"{what} is not hex") from None
