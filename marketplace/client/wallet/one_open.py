"""One open: a session key has one channel, whatever crashes, times out or is forgotten.

A voucher names no output, so one that is good for one channel of a session key is good for every
other: two channels would pay a provider twice. Before an open transaction is built, the purse's own
log is asked for earlier ones of that key, and the chain for outputs; an earlier one that may still
be included is *taken up*, never built anew (:func:`decide`). An output that this purse did not pay
for is no second channel of ours: anybody can lay one with the same datum, and it pays with its
owner's money.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from marketplace.chain.channels.finder import ChannelFinder
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import TxRecord
from marketplace.chain.transaction.snapshot import Tip
from marketplace.domain.errors import Fault, Malformed, Refusal
from marketplace.domain.money.address import Address
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.transaction import FINAL_DEPTH, depth

_AFTER_SLOTS: Final = (
    600  # beyond its last slot: twice what FINAL_DEPTH blocks take on a public network
)
_MOST_STEPS: Final = 200


class ChannelTwice(Refusal):
    """This purse paid for two outputs of one session key: a voucher for one is good for both."""

    code = "CHANNEL_TWICE"
    remedy = (
        "nothing more is signed on this channel and its end is asked for; the second output is"
        " closed by itself: leave `tally payer run` up until its close period is over, and the"
        " money comes home"
    )


class KeyUsed(Refusal):
    """The session key has a channel with other rules."""

    code = "SESSION_KEY_USED"
    remedy = "decline the quote and post the job again: every channel has a key of its own"


class OpenUnsure(Fault):
    """An earlier open transaction may still come back, so none is built and none is relied on."""

    code = "OPEN_UNSURE"
    remedy = "wait a few minutes for the chain to be sure about the earlier one; nothing was opened"


@dataclass(frozen=True)
class Attempt:
    """An earlier open transaction of the own log for the session key.

    *same*: its output's constants are those wanted. *hurt*: its inputs are spent elsewhere or its
    time is over, but a rollback could still include it. *over*: no rollback that is expected can.
    """

    ref: OutRef
    same: bool
    hurt: bool = False
    over: bool = False


def decide(attempts: Sequence[Attempt], ours: Sequence[tuple[OutRef, bool]]) -> OutRef | None:
    """The output to take up, or None: then a first one may be built.

    *ours* are the origins, each once, of the unspent outputs of the session key that this purse
    paid for, with whether the constants are those wanted. :class:`ChannelTwice`, :class:`KeyUsed`,
    :class:`OpenUnsure`.
    """
    living = [one for one in attempts if not one.over and one.ref not in {ref for ref, _ in ours}]
    sure = [one for one in living if not one.hurt]
    if len(ours) + len(sure) > 1:
        raise ChannelTwice(two([*(ref for ref, _ in ours), *(one.ref for one in sure)]))
    if any(not same for _, same in ours) or any(not one.same for one in living):
        raise KeyUsed("its session key has a channel of other rules, or one that was used already")
    if ours:
        return ours[0][0]
    if sure:
        return sure[0].ref
    if living:
        raise OpenUnsure(f"{living[0].ref} lost its place, and a rollback may give it back")
    return None


def two(refs: Sequence[OutRef]) -> str:
    return f"two outputs of one session key: {', '.join(str(ref) for ref in refs)}"


def opens(record: TxRecord, session_vk: bytes) -> tuple[Utxo, Consts] | None:
    """The output by which *record* opens a channel of the key, if it does."""
    for made in record.made:
        consts = consts_of(made)
        if consts is not None and consts.session_vk == session_vk:
            return made, consts
    return None


def consts_of(utxo: Utxo) -> Consts | None:
    """Of a script's output that reads as a channel of ours."""
    try:
        if utxo.datum is None or not Address.parse(utxo.address).payment.is_script:
            return None
        return datum.read_stage(utxo.datum).consts
    except Malformed:
        return None


async def attempt(
    chain: ChainReader, record: TxRecord, session_vk: bytes, wanted: Consts, tip: Tip
) -> Attempt | None:
    """What the chain says of *record*; None if it opens no channel of the key."""
    found = opens(record, session_vk)
    if found is None:
        return None
    made, consts = found
    same = consts == wanted
    if await chain.transaction(record.tx_id) is not None:
        return Attempt(made.ref, same)
    late = record.until is not None and tip.slot >= record.until
    gone = record.until is not None and tip.slot >= record.until + _AFTER_SLOTS
    for ref in record.inputs:
        output = await chain.output(ref)
        if output is None or output.spent_by in (None, record.tx_id):
            continue
        late = True
        by = await chain.transaction(output.spent_by)
        gone = gone or (by is not None and depth(tip.height, by.height) >= FINAL_DEPTH)
    return Attempt(made.ref, same, hurt=late, over=gone)


@dataclass(frozen=True)
class Whose:
    """Tells this purse's channels from copies: *key_hash* is its payment key's."""

    chain: ChainReader
    finder: ChannelFinder
    key_hash: bytes

    async def at(self, address: bytes) -> dict[bytes, list[Utxo]]:
        """Every output at *address* that reads as a channel, by session key."""
        found: dict[bytes, list[Utxo]] = {}
        for utxo in await self.finder.at_address(address):
            consts = consts_of(utxo)
            if consts is not None:
                found.setdefault(consts.session_vk, []).append(utxo)
        return found

    async def ours(self, utxos: Sequence[Utxo], session_vk: bytes) -> dict[OutRef, Utxo]:
        """Where channels of the key began that this purse paid for and *utxos* may be the rest of,
        each with its first output. Each once, however many outputs a settlement left that go back
        to it.
        """
        begun: dict[OutRef, Utxo] = {}
        for utxo in utxos:
            for origin in await self._origins(utxo, session_vk):
                if origin.ref not in begun and await self._paid(origin.ref.tx_id):
                    begun[origin.ref] = origin
        return begun

    async def _origins(self, utxo: Utxo, session_vk: bytes) -> list[Utxo]:
        """Backwards over every input that was a channel of the key: a settlement may move two."""
        begun: list[Utxo] = []
        seen, todo = {utxo.ref}, [utxo]
        while todo and len(seen) <= _MOST_STEPS:
            at = todo.pop()
            moves = await self.chain.moves(at.ref.tx_id)
            if moves is None:
                raise ChainFault(f"{at.ref} is unspent, and its transaction is in no block")
            before = [u for u in moves.inputs if _is_of(u, session_vk)]
            if not before:
                begun.append(at)
            todo += [one for one in before if one.ref not in seen]
            seen.update(one.ref for one in before)
        return begun

    async def _paid(self, tx_id: bytes) -> bool:
        moves = await self.chain.moves(tx_id)
        return moves is not None and any(self._key(u) == self.key_hash for u in moves.inputs)

    def _key(self, utxo: Utxo) -> bytes | None:
        try:
            payment = Address.parse(utxo.address).payment
        except Malformed:
            return None
        return None if payment.is_script else payment.hash


def _is_of(utxo: Utxo, session_vk: bytes) -> bool:
    consts = consts_of(utxo)
    return consts is not None and consts.session_vk == session_vk
