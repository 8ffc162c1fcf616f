"""For wallets whose keys are elsewhere (CIP-30): what to sign, and their signatures put in place.

The wallet gives its outputs and a change address, gets the bytes of an unsigned transaction, and
returns a witness set; that is inserted into those very bytes. Nothing is encoded twice, so the id
that the wallet signed is the id that is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marketplace.chain.actions.session import CLOSE_WITHIN_MS
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.build.wallet import Funds
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.transaction.scripts import scripts_for, unit_of
from marketplace.chain.transaction.signing import Signed, Unsigned
from marketplace.domain.canonical import blake2b_224
from marketplace.domain.money.channel import TopUp


@dataclass(frozen=True)
class ForeignWallet:
    """What CIP-30 tells: ``getUtxos`` (read by
    :func:`~marketplace.chain.encoding.txbytes.read_utxo`) and ``getChangeAddress``. *collateral* is
    ``getCollateral``'s first, where the wallet keeps one.
    """

    change: bytes
    utxos: tuple[Utxo, ...]
    collateral: Utxo | None = None

    def funds(self) -> Funds:
        """As builders want it; a pledged output of more than 5 ADA gets a collateral return."""
        funds = Funds.of(self.change, self.utxos)
        if self.collateral is None or not self.collateral.plain:
            return funds
        rest = tuple(u for u in funds.spendable if u.ref != self.collateral.ref)
        if funds.collateral is not None and funds.kept_apart:
            rest = (
                (*rest, funds.collateral) if funds.collateral.ref != self.collateral.ref else rest
            )
        return Funds(self.change, rest, self.collateral, True)


async def unsigned_open(
    chain: ChainReader, wallet: ForeignWallet, openings: Sequence[Opening], asset: str = ""
) -> Unsigned:
    """A plain payment: no script runs, no collateral, any wallet can sign it."""
    snapshot = await chain.snapshot(scripts_for(asset))
    return plans.open_channels(snapshot, wallet.funds(), openings, unit_of(asset)).finish()


async def unsigned_top_up(
    chain: ChainReader, wallet: ForeignWallet, view: ChannelView, amount: int
) -> Unsigned:
    """Add *amount* of the channel's asset."""
    batch = Batch(
        (Move(view.utxo, TopUp(amount)),), signers=(view.consts.consumer_vkh,), unit=view.unit
    )
    return await _unsigned(chain, wallet, batch)


async def unsigned_close(chain: ChainReader, wallet: ForeignWallet, view: ChannelView) -> Unsigned:
    """Start the close period."""
    until_ms = (await chain.tip()).time_ms + CLOSE_WITHIN_MS
    batch = plans.closing_batch(view.utxo, view.consts.consumer_vkh, until_ms)
    return await _unsigned(
        chain, wallet, Batch(batch.moves, signers=batch.signers, until_ms=until_ms, unit=view.unit)
    )


async def _unsigned(chain: ChainReader, wallet: ForeignWallet, batch: Batch) -> Unsigned:
    snapshot = await chain.snapshot(scripts_for(batch.unit.hex()))
    draft = plans.settle(snapshot, wallet.funds(), batch).draft
    return draft.finish(await chain.evaluate(draft.bytes))


def signed_by_wallet(unsigned: Unsigned, witness_set: bytes) -> Signed:
    """*unsigned* with the wallet's signatures.

    :class:`~marketplace.domain.errors.Malformed` if they are over anything else,
    :class:`TxRefused` if one that the ledger wants is missing.
    """
    raw = txbytes.insert_witnesses(unsigned.bytes, witness_set)
    there = {blake2b_224(key) for key, _ in txbytes.key_witnesses(txbytes.split(raw).witnesses)}
    lacking = unsigned.signers - there
    if lacking:
        raise TxRefused(f"the wallet did not sign for key {next(iter(lacking)).hex()}")
    return Signed(
        unsigned.tx_id, raw, unsigned.fee, unsigned.units,
        unsigned.inputs, unsigned.made, unsigned.until,
    )  # fmt: skip


def restore(tx: bytes, fee: int = 0) -> Unsigned:
    """An unsigned transaction from its stored bytes: what a market kept between two requests.

    Signers that the ledger wants beyond ``required_signers`` are checked by the ledger alone.
    """
    body = txbytes.body_of(tx)
    parts = txbytes.split(tx)
    redeemers = dict(txbytes.map_items(parts.witnesses)).get(5)
    required = txbytes.required_signers_of(tx)
    return Unsigned(
        parts.body, redeemers, frozenset(required), int(body.get(2, fee)),
        plans.NO_UNITS, txbytes.inputs_of(tx), txbytes.outputs_of(tx), txbytes.until_of(tx),
    )  # fmt: skip
