"""The twin's channels, stages and steps as Plutus Data, and back (``contracts/README.md``)."""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.chain.encoding import plutus
from marketplace.chain.encoding.plutus import Constr, Data
from marketplace.chain.encoding.utxo import Utxo
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Address
from marketplace.domain.money.channel import (
    Channel,
    Claim,
    Close,
    Closing,
    Consts,
    Finish,
    Held,
    Open,
    Stage,
    Step,
    TopUp,
)


def stage_bytes(stage: Stage) -> bytes:
    """The inline datum, in its shortest encoding."""
    c = stage.consts
    consts = (c.session_vk, c.adapter_vkh, c.payout, c.consumer_vkh, c.close_period_ms, c.fee_bps)
    match stage:
        case Open(_, claimed):
            return plutus.encode(Constr(0, (consts, claimed)))
        case Closing(_, claimed, expire_at_ms):
            return plutus.encode(Constr(1, (consts, claimed, expire_at_ms)))


def read_stage(datum: bytes) -> Stage:
    """The reverse; :class:`Malformed` for another shape or a key or hash of another length."""
    match plutus.decode(datum):
        case Constr(0, (tuple() as consts, int() as claimed)):
            return Open(_consts(consts), claimed)
        case Constr(1, (tuple() as consts, int() as claimed, int() as expire_at_ms)):
            return Closing(_consts(consts), claimed, expire_at_ms)
        case _:
            raise Malformed("the datum is no channel's")


def _consts(fields: tuple[Data, ...]) -> Consts:
    match fields:
        case (
            bytes() as session_vk,
            bytes() as adapter_vkh,
            bytes() as payout,
            bytes() as consumer_vkh,
            int() as close_period_ms,
            int() as fee_bps,
        ) if tuple(map(len, (session_vk, adapter_vkh, payout, consumer_vkh))) == (32, 28, 28, 28):
            return Consts(session_vk, adapter_vkh, payout, consumer_vkh, close_period_ms, fee_bps)
        case _:
            raise Malformed("the datum's constants are no channel's")


def steps_bytes(steps: Sequence[Step]) -> bytes:
    """Settle's redeemer: one step for each script-locked input, in ledger order."""
    return plutus.encode(tuple(_step(step) for step in steps))


def _step(step: Step) -> Constr:
    match step:
        case Claim(cum, take_to, signature):
            return Constr(0, (cum, take_to, signature))
        case Finish(Claim(cum, take_to, signature)):
            return Constr(1, (cum, take_to, signature))
        case Finish():
            return Constr(2)
        case TopUp(amount):
            return Constr(3, (amount,))
        case Close():
            return Constr(4)


def read_steps(data: Data) -> tuple[Step, ...]:
    """The reverse; :class:`Malformed` for anything that is no list of steps."""
    if not isinstance(data, tuple):
        raise Malformed("settle's redeemer is a list")
    return tuple(_read_step(item) for item in data)


def _read_step(data: Data) -> Step:
    match data:
        case Constr(0, (int() as cum, int() as take_to, bytes() as signature)):
            return Claim(cum, take_to, signature)
        case Constr(1, (int() as cum, int() as take_to, bytes() as signature)):
            return Finish(Claim(cum, take_to, signature))
        case Constr(2, ()):
            return Finish()
        case Constr(3, (int() as amount,)):
            return TopUp(amount)
        case Constr(4, ()):
            return Close()
        case _:
            raise Malformed("not a step of the channel")


def read_channel(utxo: Utxo, unit: bytes = b"") -> Channel:
    """*utxo* as the twin sees it; *unit* is the asset (empty: lovelace). :class:`Malformed`."""
    if utxo.datum is None:
        raise Malformed("the output has no inline datum")
    held = Held(utxo.lovelace, utxo.quantity(unit) if unit else None)
    return Channel(Address.parse(utxo.address), read_stage(utxo.datum), held)
