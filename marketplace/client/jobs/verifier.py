"""The invoice verifier: receipts, terms and a chain URL, nothing else. It imports no store.

``facts(chain, channel)`` reads one channel's life from the ledger; ``verify`` puts it beside what
was signed and lets :mod:`marketplace.domain.money.invoice.verify` judge. Anyone with the evidence
file can run it.
"""

from __future__ import annotations

from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder
from marketplace.chain.encoding import datum, txbytes
from marketplace.chain.encoding.address import join
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.client.wallet.one_open import consts_of
from marketplace.domain.money.evidence import ChannelEvidence, Evidence, LedgerFacts
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.invoice.refusals import ChannelDiffers, MoneyMissing
from marketplace.domain.money.invoice.verify import decode_terms, read_signed
from marketplace.domain.money.route.evidence import HopEvidence


async def verify(evidence: Evidence, chain: ChainReader) -> Invoice:
    """The invoice, compared with the ledger of *chain*; :class:`InvoiceRefused` or ChainFault.

    What was signed is judged first: the chain is asked only for channels that signed terms
    describe.
    """
    signed = read_signed(evidence)
    found = [None if ask is None else await facts(chain, *ask) for ask in signed.asked]
    return signed.bill(found)


async def network_fees(evidence: Evidence, chain: ChainReader) -> int | None:
    """Lovelace that the ledger took for opening the channels whose first receipt is this job's, as
    the transactions' own bytes say; None while one is in no block. A kept channel was opened, and
    its fee was paid, by the job before; the provider pays for its end.
    """
    agreed = [decode_terms(lease.signed.body)[0] for lease in evidence.leases]
    mine = {terms.lease for terms in agreed if terms.job == evidence.job}
    total = 0
    for channel in evidence.channels:
        first = channel.receipts[0].receipt.lease if channel.receipts else None
        if not channel.open_tx or (first is not None and first not in mine):
            continue
        raw = await chain.transaction_bytes(bytes.fromhex(channel.open_tx))
        if raw is None:
            return None
        if txbytes.split(raw).tx_id.hex() != channel.open_tx:
            raise ChainFault("the chain's door answered another transaction than it was asked for")
        total += _share(raw, channel.session_vk)
    return total


def _share(raw: bytes, session_vk: bytes) -> int:
    """Of the fee of a transaction that opens the channels of many, what one of them is to bear: the
    first ones a lovelace more, so that together it is the fee.
    """
    fee = int(txbytes.body_of(raw)[2])
    read = [consts_of(one) for one in txbytes.outputs_of(raw)]
    keys = [consts.session_vk for consts in read if consts is not None]
    if session_vk not in keys:
        return fee
    each, more = divmod(fee, len(keys))
    return each + (keys.index(session_vk) < more)


async def facts(
    chain: ChainReader, channel: ChannelEvidence | HopEvidence, asset: str = ""
) -> LedgerFacts | None:
    """What the ledger says of *channel*; :class:`ChannelDiffers` if its open is not there.

    None for a channel that was agreed upon and never opened: nothing was delivered on it. A hop
    that nothing was signed for may be unopened as well.
    """
    unit = bytes.fromhex(asset)
    named = f"channel {channel.session_vk.hex()[:16]}"
    receipts = isinstance(channel, ChannelEvidence) and channel.receipts
    if not channel.open_tx and not receipts and channel.voucher is None:
        return None
    if not channel.open_tx:
        raise ChannelDiffers(
            f"{named}: it was paid over, and the evidence names no transaction that opened it",
            way="open", channel=channel.session_vk.hex(),
        )  # fmt: skip
    origin = await _origin(chain, channel)
    opened = await chain.output(origin)
    try:
        found = await ChannelFinder(chain, scripts_for(asset), unit).find(
            channel.session_vk, origin
        )
    except ChannelUnknown as error:
        there = "holds another output" if opened is not None else "is in no block of this chain"
        raise ChannelDiffers(
            f"{named}: {origin} did not open it; it {there}",
            way="open", channel=channel.session_vk.hex(), open_tx=channel.open_tx,
        ) from error  # fmt: skip
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


async def _origin(chain: ChainReader, channel: ChannelEvidence | HopEvidence) -> OutRef:
    """The output that is the channel. Of a hop it is told; else the transaction alone is, which may
    open the channels of many: it is the one of the session key. Where that is none, or not one
    alone, it is the first, which is refused unless it is the channel.
    """
    told = OutRef(bytes.fromhex(channel.open_tx), channel.index)
    if isinstance(channel, HopEvidence):
        return told
    moves = await chain.moves(told.tx_id)
    read = [(one.utxo.ref, consts_of(one.utxo)) for one in (moves.outputs if moves else ())]
    ours = [ref for ref, consts in read if consts and consts.session_vk == channel.session_vk]
    return ours[0] if len(ours) == 1 else told


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
