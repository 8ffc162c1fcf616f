"""What Tally does on chain, as plans: open, top up, claim, close, finish, in any mix; deploying.

Pure. Each takes a snapshot, the money of whoever pays, and what to do; each gives a
:class:`~marketplace.chain.build.balancing.Draft`. Outputs of a settlement are those that the twin
demands (:func:`marketplace.domain.money.channel.expect`), in its order, from position 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from marketplace.chain.build.balancing import Draft, Plan, assemble
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.address import channel_address, join
from marketplace.chain.encoding.utxo import OutRef, Utxo, assets_of
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.blockfrost import deployment_address
from marketplace.chain.transaction.outputs import Out, least
from marketplace.chain.transaction.snapshot import Snapshot, Units
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import (
    Channel,
    Claim,
    Close,
    Consts,
    Continuing,
    Expected,
    Finish,
    Open,
    Payout,
    Refund,
    Step,
    Will,
    Witness,
    expect,
    will,
)
from marketplace.domain.money.voucher import Voucher

NO_UNITS: Final = Units(0, 0)
TTL_MS: Final = 15 * 60_000
"""How long a transaction may wait for a block before it can be planned anew."""


# --- opening ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Opening:
    """A channel to open. *amount* is of the asset; *lovelace* rides along with a token (None: the
    reserve). *consts* is asked once the inputs are known, for a session key may follow from them:
    it gets the least input in ledger order and the output's index.
    """

    amount: int
    consts: Callable[[OutRef, int], Consts]
    stake: Credential | None = None
    lovelace: int | None = None


def open_channels(
    snapshot: Snapshot,
    funds: Funds,
    openings: Sequence[Opening],
    unit: bytes = b"",
    until_ms: int | None = None,
) -> Draft:
    """Plain payments to the stub's address: no script runs, any wallet can do it."""
    blank = Consts(bytes(32), bytes(28), bytes(28), bytes(28), 2**40, 100)
    shape = [_opening_out(snapshot, o, blank, unit) for o in openings]
    until = _until(snapshot, until_ms)
    first = assemble(snapshot, Plan(tuple(shape), until=until), funds)
    # Selecting inputs depends on amounts alone, so the second assembly chooses the same ones.
    least_input = min(u.ref for u in first.inputs)
    outs = [
        replace(out, datum=datum.stage_bytes(Open(o.consts(least_input, index), 0)))
        for index, (o, out) in enumerate(zip(openings, shape, strict=True))
    ]
    draft = assemble(snapshot, Plan(tuple(outs), until=until), funds)
    if min(u.ref for u in draft.inputs) != least_input:
        raise TxRefused("the inputs changed while the session keys were derived")
    return draft


def _opening_out(snapshot: Snapshot, opening: Opening, consts: Consts, unit: bytes) -> Out:
    address = channel_address(snapshot.scripts.stub_hash, opening.stake, snapshot.mainnet)
    body = datum.stage_bytes(Open(consts, 0))
    if not unit:
        return Out(address, opening.amount, datum=body)
    out = Out(address, opening.lovelace or 0, assets_of({unit: opening.amount}), body)
    return (
        out if opening.lovelace is not None else replace(out, lovelace=reserve(snapshot, out, unit))
    )


def reserve(snapshot: Snapshot, out: Out, unit: bytes = b"") -> int:
    """Lovelace that stays in a channel so that Close and the refund always hold the least that an
    output may: counted with the Closing datum and the widest integers (Close adds bytes at
    unchanged value, and a claim's counters grow).
    """
    wide = 2**63 - 1
    stage = datum.read_stage(out.datum or b"")
    closing = datum.stage_bytes(_closing(stage.consts, wide))
    assets = ((unit, wide),) if unit else ()
    return least(snapshot, Out(out.address, 2**40, assets, closing))


def _closing(consts: Consts, wide: int) -> datum.Closing:
    return datum.Closing(consts, wide, wide)


# --- settling ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Move:
    """One channel and the step it takes."""

    utxo: Utxo
    step: Step


@dataclass(frozen=True)
class Batch:
    """Moves of one transaction. *payouts* gives the address for each payout hash that is owed;
    *signers* are key hashes the scripts must see; *since_ms*/*until_ms* its bounds; *unit* the
    asset.
    """

    moves: tuple[Move, ...]
    payouts: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    signers: tuple[bytes, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    unit: bytes = b""
    reserve_collateral: bool = False

    def without(self, refs: Sequence[OutRef]) -> Batch:
        """Without the channels at *refs*: one that conflicts takes no other along."""
        return replace(self, moves=tuple(m for m in self.moves if m.utxo.ref not in refs))


@dataclass(frozen=True)
class Settlement:
    """A batch as it would be: its draft, each channel's consequence, and what payouts (by hash)
    were topped up by: lovelace beyond what is owed, because an output must hold a least amount.
    """

    draft: Draft
    moves: tuple[Move, ...]
    wills: tuple[Will, ...]
    topped_up: tuple[tuple[bytes, int], ...]

    @property
    def subsidy(self) -> int:
        """All that payouts were topped up by."""
        return sum(n for _, n in self.topped_up)


def settle(snapshot: Snapshot, funds: Funds, batch: Batch) -> Settlement:
    """One transaction for every move. A step that the script would refuse is refused here, by the
    twin and by name (:class:`~marketplace.domain.money.channel_refusals.ChannelRefused`).
    """
    moves = tuple(sorted(batch.moves, key=lambda m: m.utxo.ref))
    since = None if batch.since_ms is None else snapshot.slot_at(batch.since_ms)
    until = _until(snapshot, batch.until_ms)
    witness = Witness(
        frozenset(batch.signers),
        None if since is None else snapshot.ms_at(since),
        snapshot.ms_at(until),
    )
    wills = tuple(will(datum.read_channel(m.utxo, batch.unit), m.step, witness) for m in moves)
    for move, each in zip(moves, wills, strict=True):
        if each.taken > move.utxo.quantity(batch.unit):
            raise TxRefused("a claim takes more than its channel holds")
    outs, topped_up = _outputs(snapshot, batch, moves, expect(wills))
    plan = Plan(
        outputs=tuple(outs),
        channels=tuple(m.utxo for m in moves),
        steps=datum.steps_bytes([m.step for m in moves]),
        signers=batch.signers,
        since=since,
        until=until,
        reserve_collateral=batch.reserve_collateral,
    )
    return Settlement(assemble(snapshot, plan, funds), moves, wills, tuple(topped_up))


def _outputs(
    snapshot: Snapshot, batch: Batch, moves: Sequence[Move], expected: Sequence[Expected]
) -> tuple[list[Out], list[tuple[bytes, int]]]:
    outs: list[Out] = []
    topped_up: list[tuple[bytes, int]] = []
    for each in expected:
        match each:
            case Continuing(channel):
                outs.append(_continuing(snapshot, channel, batch.unit))
            case Refund(address, held):
                tokens = assets_of({batch.unit: held.tokens}) if held.tokens else ()
                outs.append(Out(join(address, snapshot.mainnet), held.lovelace, tokens))
            case Payout(payout, owed):
                out = _payout(snapshot, batch, payout, owed)
                added = out.lovelace - (0 if batch.unit else owed)
                if added:
                    topped_up.append((payout, added))
                outs.append(out)
    return outs, topped_up


def _continuing(snapshot: Snapshot, channel: Channel, unit: bytes) -> Out:
    tokens = assets_of({unit: channel.held.tokens}) if channel.held.tokens else ()
    address = join(channel.address, snapshot.mainnet)
    return Out(address, channel.held.lovelace, tokens, datum.stage_bytes(channel.stage))


def _payout(snapshot: Snapshot, batch: Batch, payout: bytes, owed: int) -> Out:
    """At least what is owed; topped up to the least an output may hold."""
    try:
        address = batch.payouts[payout]
    except KeyError:
        raise TxRefused(f"no address is known for payout {payout.hex()}") from None
    if batch.unit:
        out = Out(address, 0, ((batch.unit, owed),))
        return replace(out, lovelace=least(snapshot, out))
    out = Out(address, owed)
    return replace(out, lovelace=max(owed, least(snapshot, out)))


def claim_step(voucher: Voucher, take_to: int | None = None) -> Claim:
    """All of *voucher*, or up to *take_to*."""
    return Claim(
        voucher.cumulative, voucher.cumulative if take_to is None else take_to, voucher.signature
    )


def finish_step(voucher: Voucher | None, claimed: int, most: int | None = None) -> Finish:
    """Finish, taking *voucher*, up to *most*, if it is worth anything beyond *claimed*."""
    if voucher is None:
        return Finish(None)
    take_to = voucher.cumulative if most is None else min(voucher.cumulative, most)
    return Finish(claim_step(voucher, take_to) if take_to > claimed else None)


def closing_batch(utxo: Utxo, consumer_vkh: bytes, until_ms: int) -> Batch:
    """The consumer's Close; expire_at counts from *until_ms*, the transaction's upper bound."""
    return Batch((Move(utxo, Close()),), signers=(consumer_vkh,), until_ms=until_ms)


# --- deploying --------------------------------------------------------------------------------
def deploy(snapshot: Snapshot, funds: Funds) -> Draft:
    """Both scripts as reference scripts at settle's own address, where nothing can be spent, and
    settle's stake registration, for which settle runs out of the witness set: what this transaction
    makes is no reference input yet.
    """
    at = deployment_address(snapshot.scripts, snapshot.mainnet)
    outs: list[Out] = []
    if snapshot.deployment is None:
        for script in (snapshot.scripts.settle_cbor, snapshot.scripts.stub_cbor):
            out = Out(at, 0, script=script)
            outs.append(replace(out, lovelace=least(snapshot, out)))
    registers = snapshot.scripts.settle_cbor if snapshot.rewards is None else None
    if not outs and registers is None:
        raise TxRefused("the contract is deployed already")
    plan = Plan(
        tuple(outs), registers=registers, until=_until(snapshot, None), reserve_collateral=True
    )
    return assemble(snapshot, plan, funds)


def pay(snapshot: Snapshot, funds: Funds, outputs: Sequence[Out]) -> Draft:
    """A plain payment."""
    return assemble(snapshot, Plan(tuple(outputs), until=_until(snapshot, None)), funds)


def sweep(snapshot: Snapshot, utxos: Sequence[Utxo], to: bytes) -> Draft:
    """All of *utxos*, plain ones of one key, in one output at *to*; the fee comes out of them."""
    inputs = tuple(sorted(utxos, key=lambda u: u.ref))
    plan = Plan((), until=_until(snapshot, None))
    return Draft(snapshot, plan, Funds(to, inputs, None), inputs, inputs, None, {})


def _until(snapshot: Snapshot, until_ms: int | None) -> int:
    return snapshot.slot_at(snapshot.tip.time_ms + TTL_MS if until_ms is None else until_ms)
