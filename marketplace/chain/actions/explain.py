"""What a transaction would do, decoded from its own bytes: what to read before signing it.

One signature authorises every step in a transaction. So whoever did not build one himself looks at
all of it: each script-locked input and its step, each output, and what his own money loses. Nothing
that the sender says about it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum, lenient, plutus, txbytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Address
from marketplace.domain.money.channel import Claim, Close, Finish, Step, TopUp

# Body fields that a transaction of ours may have (Conway CDDL). Anything else (certificates, mint,
# votes, donations) would be authorised by the same signature, so it is refused unread.
_KNOWN = frozenset((0, 1, 2, 3, 5, 8, 11, 13, 14, 16, 17, 18))
_SCRIPT_ACCOUNT = 0xF  # CIP-19: the header's upper half of a script's reward account


@dataclass(frozen=True)
class StepShown:
    """One channel and what happens to it."""

    session_vk: bytes
    step: Step
    held: int

    @property
    def line(self) -> str:
        """For a person."""
        name = self.session_vk.hex()[:16]
        match self.step:
            case TopUp(amount):
                return f"top up channel {name} by {amount}"
            case Claim(_, take_to, _):
                return f"pay the provider of channel {name} up to {take_to}"
            case Close():
                return f"close channel {name}"
            case Finish(claim):
                last = f", the provider up to {claim.take_to}" if claim else ""
                return f"end channel {name}: the rest goes home{last}"


@dataclass(frozen=True)
class Explained:
    """*steps* in ledger order, *outputs* that are not change, *loses* what the signer's own
    addresses hold less of afterwards (lovelace), *fee*, and the first slot in which it is void.
    """

    tx_id: bytes
    steps: tuple[StepShown, ...]
    outputs: tuple[Utxo, ...]
    loses: int
    fee: int
    until: int | None

    @property
    def lines(self) -> list[str]:
        """For a person: every step, every output, and the sum."""
        steps = [s.line for s in self.steps]
        outs = [f"{o.lovelace} lovelace to {addresses.to_text(o.address)}" for o in self.outputs]
        return [
            *steps,
            *outs,
            f"your own money: {-self.loses} lovelace, of which {self.fee} are the fee",
        ]


async def explain(chain: ChainReader, tx: bytes, own: Sequence[bytes]) -> Explained:
    """*tx* as it is, for the owner of the addresses *own*; inputs are looked up on *chain*.

    :class:`~marketplace.chain.errors.TxRefused` for what cannot be shown: another kind of content,
    an input that the chain does not know, a step that is none.
    """
    resolved: dict[OutRef, Utxo] = {}
    for ref in txbytes.inputs_of(tx):
        output = await chain.output(ref)
        if output is None:
            raise TxRefused(f"the chain does not know input {ref}")
        resolved[ref] = output.utxo
    return explain_resolved(tx, resolved, own)


def explain_resolved(tx: bytes, resolved: Mapping[OutRef, Utxo], own: Sequence[bytes]) -> Explained:
    """The same, purely, with every input given."""
    body: dict[int, Any] = txbytes.body_of(tx)
    strange = sorted(body.keys() - _KNOWN)
    if strange:
        raise TxRefused(f"the transaction holds what no step of a channel needs: fields {strange}")
    withdrawals = cast("Mapping[bytes, int]", body.get(5) or {})
    if any(account[0] >> 4 != _SCRIPT_ACCOUNT for account in withdrawals):
        raise TxRefused("the transaction withdraws the rewards of a key")
    inputs = [resolved[ref] for ref in sorted(txbytes.inputs_of(tx))]
    locked = [u for u in inputs if lenient.is_locked(u.address)]
    outputs = txbytes.outputs_of(tx)
    mine = set(own)
    before = sum(u.lovelace for u in inputs if u.address in mine)
    after = sum(u.lovelace for u in outputs if u.address in mine)
    return Explained(
        txbytes.split(tx).tx_id,
        _steps(tx, locked),
        tuple(u for u in outputs if u.address not in mine),
        before - after,
        int(body[2]),
        body.get(3),
    )


def _steps(tx: bytes, locked: Sequence[Utxo]) -> tuple[StepShown, ...]:
    told = txbytes.settle_redeemers(tx)
    if len(told) > 1:
        raise TxRefused("the transaction tells its steps several times over: one is a decoy")
    try:
        for utxo in locked:
            Address.parse(utxo.address)  # at no pointer: there is no channel of ours
        steps = datum.read_steps(plutus.decode(told[0])) if told else ()
        stages = [datum.read_stage(u.datum or b"") for u in locked]
    except Malformed as error:
        raise TxRefused(f"a step or a channel cannot be read: {error}") from error
    if len(steps) != len(locked):
        raise TxRefused(f"{len(steps)} steps for {len(locked)} script-locked inputs")
    return tuple(
        StepShown(stage.consts.session_vk, step, u.lovelace)
        for stage, step, u in zip(stages, steps, locked, strict=True)
    )
