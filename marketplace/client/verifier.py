"""The invoice verifier: receipts, terms and a chain URL, nothing else. It imports no store.

``facts(chain, channel)`` reads one channel's life from the ledger; ``verify`` puts it beside what was
signed and lets :mod:`marketplace.domain.invoice` judge. Anyone with the evidence file can run it.
"""

from __future__ import annotations

from dataclasses import replace

from marketplace.chain import datum
from marketplace.chain.address import join
from marketplace.chain.channels import ChannelEnded, ChannelFinder
from marketplace.chain.connect import ChainReader
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.chain.instance import scripts_for
from marketplace.chain.utxo import OutRef
from marketplace.domain.invoice import (
    ChannelDiffers,
    ChannelEvidence,
    Evidence,
    Invoice,
    LedgerFacts,
    MoneyMissing,
    reconcile,
)


async def verify(evidence: Evidence, chain: ChainReader) -> Invoice:
    """The invoice, compared with the ledger of *chain*; :class:`InvoiceRefused` or ChainFault."""
    channels = [
        replace(channel, ledger=await facts(chain, channel)) for channel in evidence.channels
    ]
    return reconcile(replace(evidence, channels=tuple(channels)))


async def facts(chain: ChainReader, channel: ChannelEvidence) -> LedgerFacts:
    """What the ledger says of *channel*; :class:`ChannelDiffers` if its open is not there."""
    asset = channel.terms[0].terms.asset if channel.terms else ""
    unit = bytes.fromhex(asset)
    try:
        origin = OutRef(bytes.fromhex(channel.open_tx), channel.index)
        opened = await chain.output(origin)
        found = await ChannelFinder(chain, scripts_for(asset), unit).find(
            channel.session_vk, origin
        )
    except (ChannelUnknown, ValueError) as error:
        raise ChannelDiffers(f"no open transaction {channel.open_tx!r} on this chain") from error
    if opened is None:
        raise ChainFault("the chain knows the channel and not its open transaction")
    channel_then = datum.read_channel(opened.utxo, unit)
    consts = channel_then.stage.consts
    if isinstance(found, ChannelEnded):
        await _refund_arrived(chain, found, join(channel_then.refund, chain.mainnet), unit)
        return LedgerFacts(
            channel.session_vk, consts, found.funded, found.claimed, found.refunded, 0, ended=True
        )
    return LedgerFacts(
        session_vk=channel.session_vk,
        consts=consts,
        funded=sum(funding.amount for funding in found.fundings),
        claimed=found.claimed,
        refunded=0,
        held=found.amount,
        ended=False,
    )


async def _refund_arrived(
    chain: ChainReader, ended: ChannelEnded, home: bytes, unit: bytes
) -> None:
    """The transaction that finished the channel really paid the rest to the consumer's address."""
    moves = await chain.moves(ended.finished_by)
    if moves is None:
        raise ChainFault("the transaction that finished the channel is in no block now")
    paid = [o.utxo.quantity(unit) for o in moves.outputs if o.utxo.address == home]
    if ended.refunded and ended.refunded not in paid:
        raise MoneyMissing(
            f"{ended.refunded} should have gone home and no output of it is there",
            tx=ended.finished_by.hex(),
        )
