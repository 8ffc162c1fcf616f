"""An open transaction that its payer handed over before a block holds it: may it be relied on?

Whoever serves on it has its bytes, and believes in nothing else: they are judged against what its
own door to the chain shows. A plain payment that passes can fail in one way only, by another
transaction that spends one of its inputs first: its inputs are old, its owner's signatures are
there, its fee is enough (Cardano has no replace-by-fee), and it has time.

Pure; the rules are those of the design of routing, section 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from marketplace.chain.actions.unsigned_tx import UnsignedTx, read_unsigned
from marketplace.chain.channels.capacity import Funding
from marketplace.chain.channels.finder import ChannelView, check_channel
from marketplace.chain.encoding import cursor, datum, txbytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.transaction.snapshot import SLOT_MS, Snapshot, Units
from marketplace.domain.canonical import blake2b_224
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import verifies
from marketplace.domain.money.address import Address
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.terms import Terms

MOST_BYTES: Final = 4096
"""An open of one input is some 400 bytes."""
MOST_INPUTS: Final = 16
"""Each is asked of our own door."""
INPUT_DEPTH: Final = 5
"""Blocks that hold each input: a fork that takes one of them back takes the open with it."""
LEAST_SLOTS: Final = 600_000 // SLOT_MS
MOST_SLOTS: Final = 7_200_000 // SLOT_MS
_NEEDED: Final = frozenset((0, 1, 2, 3))
_ALLOWED: Final = _NEEDED | {15}
"""Fields of the body (Conway CDDL): inputs, outputs, fee, last slot, network."""
_ODD: Final = (
    Malformed, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError,
)  # fmt: skip


class OpenRefused(Refusal):
    """The handed transaction is not one to rely on; ``rule`` names what it breaks."""

    code = "OPEN_REFUSED"
    remedy = "nothing is lost: the lease begins once a block holds the channel"


@dataclass(frozen=True)
class Known:
    """What is known without whoever handed it over. *origin*: the id that the payer named (hex);
    *resolved*: the inputs that the own door shows unspent; *depths*: the blocks that hold each.
    """

    terms: Terms
    origin: str
    snapshot: Snapshot
    resolved: Mapping[OutRef, Utxo]
    depths: Mapping[OutRef, int]


@dataclass(frozen=True)
class HandedOpen:
    """One that passed. *capacity*: the most that the channel will be able to pay; *marks*: whose
    money it is and by which transactions it came, so that nobody is trusted twice at a time.
    """

    tx_id: bytes
    capacity: int
    marks: frozenset[bytes]


@dataclass(frozen=True)
class _Read:
    """The bytes, taken apart."""

    raw: bytes
    tx: UnsignedTx
    witnesses: Sequence[tuple[bytes, bytes]]
    outputs: Sequence[bytes]  # each as its bytes

    @property
    def tx_id(self) -> bytes:
        return txbytes.split(self.raw).tx_id

    @property
    def fee(self) -> int:
        return cast(int, self.tx.body[2])


def to_resolve(raw: bytes) -> frozenset[OutRef]:
    """Its inputs, to be asked of the own door; :class:`OpenRefused` for bytes that are no plain
    transaction.
    """
    return frozenset(_read(raw).tx.inputs)


def check(raw: bytes, known: Known) -> HandedOpen:
    """*raw* if every rule holds, else :class:`OpenRefused` with the first that it breaks."""
    read = _read(raw)
    for code, rule in _RULES:
        try:
            wrong = rule(read, known)
        except _ODD as error:
            raise OpenRefused("it is not readable there", rule=code) from error
        if wrong:
            raise OpenRefused(wrong, rule=code)
    try:
        capacity = check_channel(known.terms, _view(read, known), known.snapshot).most
    except ChannelUnfit as unfit:
        raise OpenRefused(unfit.message, rule="OPEN_CHANNEL") from unfit
    owners = {_owner(known.resolved[ref]) for ref in read.tx.inputs}
    parents = {ref.tx_id for ref in read.tx.inputs}
    return HandedOpen(
        read.tx_id, capacity, frozenset({known.terms.consumer_vkh, read.tx_id} | owners | parents)
    )


def _read(raw: bytes) -> _Read:
    if len(raw) > MOST_BYTES:
        raise OpenRefused(f"more than {MOST_BYTES} bytes", rule="OPEN_BYTES")
    try:
        tx = read_unsigned(raw)
        parts = txbytes.split(raw)
        outputs = cursor.items(dict(txbytes.map_items(parts.body))[1])
        read = _Read(raw, tx, txbytes.key_witnesses(parts.witnesses), outputs)
    except _ODD as error:
        raise OpenRefused("not the bytes of a plain transaction", rule="OPEN_BYTES") from error
    if not 0 < len(tx.inputs) <= MOST_INPUTS:
        raise OpenRefused(f"it spends none, or more than {MOST_INPUTS}", rule="OPEN_BYTES")
    return read


# ---- the rules: each "" or what is wrong -------------------------------------------------------


def _named(read: _Read, known: Known) -> str:
    same = read.tx_id.hex() == known.origin
    return "" if same else "these are not the bytes of the transaction that the consumer named"


def _fields(read: _Read, _: Known) -> str:
    body = read.tx.body.keys()
    if not _NEEDED <= body <= _ALLOWED:
        return "its body has other fields than inputs, outputs, fee, last slot and network"
    if read.tx.witnesses.keys() != {0}:
        return "it brings more or less than signatures"
    return "it has an odd output" if read.tx.odd else ""


def _network(read: _Read, known: Known) -> str:
    want = int(known.snapshot.mainnet)
    wrong = read.tx.body.get(15, want) != want
    wrong = wrong or any(o.address[0] & 15 != want for o in read.tx.outputs)
    return "it is for another network" if wrong else ""


def _size(read: _Read, known: Known) -> str:
    most = known.snapshot.params.max_tx_size
    return f"{len(read.raw)} bytes, the chain takes {most}" if len(read.raw) > most else ""


def _inputs(read: _Read, known: Known) -> str:
    for ref in read.tx.inputs:
        utxo = known.resolved.get(ref)
        if utxo is None:
            return f"our door does not show {ref} unspent"
        if Address.parse(utxo.address).payment.is_script:
            return f"{ref} is locked by a script"
    return ""


def _age(read: _Read, known: Known) -> str:
    least = min(known.depths.get(ref, 0) for ref in read.tx.inputs)
    young = f"an input is {least} blocks deep, not {INPUT_DEPTH}: a fork could take it back"
    return young if least < INPUT_DEPTH else ""


def _witnesses(read: _Read, known: Known) -> str:
    keys = [vk for vk, _ in read.witnesses]
    owners = {_owner(known.resolved[ref]) for ref in read.tx.inputs}
    if len(set(keys)) != len(keys) or {blake2b_224(vk) for vk in keys} != owners:
        return "its signatures are not one of each owner of what it spends"
    good = all(verifies(vk, read.tx_id, signature) for vk, signature in read.witnesses)
    return "" if good else "a signature is not over this transaction"


def _channel(read: _Read, known: Known) -> str:
    found = len(_ours(read, known.terms.session_vk))
    return "" if found == 1 else f"{found} of its outputs are the channel of this session key"


def _balance(read: _Read, known: Known) -> str:
    spent, made = Counter[bytes](), Counter[bytes]({b"": read.fee})
    for total, utxos in (
        (spent, [known.resolved[ref] for ref in read.tx.inputs]),
        (made, read.tx.outputs),
    ):
        for utxo in utxos:
            total[b""] += utxo.lovelace
            for unit, amount in utxo.assets:
                total[unit] += amount
    return "" if spent == made else "what it spends is not what it makes and pays"


def _least(read: _Read, known: Known) -> str:
    params = known.snapshot.params
    for utxo, raw in zip(read.tx.outputs, read.outputs, strict=True):
        if utxo.lovelace < params.min_lovelace(len(raw)):
            return f"output {utxo.ref.index} holds less than an output must"
    return ""


def _fee(read: _Read, known: Known) -> str:
    least = known.snapshot.params.fee(len(read.raw), Units(0, 0), 0)
    return f"its fee is {read.fee}, the least is {least}" if read.fee < least else ""


def _expiry(read: _Read, known: Known) -> str:
    until, now = read.tx.body[3], known.snapshot.tip.slot
    if not isinstance(until, int) or isinstance(until, bool):
        return "its last slot is no number"
    fits = now + LEAST_SLOTS <= until <= now + MOST_SLOTS
    return "" if fits else f"it lives for {until - now} s, not {LEAST_SLOTS} to {MOST_SLOTS}"


_RULES: Final[Sequence[tuple[str, Callable[[_Read, Known], str]]]] = (
    ("OPEN_OTHER", _named),
    ("OPEN_FIELDS", _fields),
    ("OPEN_NETWORK", _network),
    ("OPEN_SIZE", _size),
    ("OPEN_INPUTS", _inputs),
    ("OPEN_YOUNG", _age),
    ("OPEN_WITNESSES", _witnesses),
    ("OPEN_CHANNEL", _channel),
    ("OPEN_BALANCE", _balance),
    ("OPEN_LEAST", _least),
    ("OPEN_FEE", _fee),
    ("OPEN_EXPIRY", _expiry),
)


# ---- parts -------------------------------------------------------------------------------------


def _owner(utxo: Utxo) -> bytes:
    return Address.parse(utxo.address).payment.hash


def _ours(read: _Read, session_vk: bytes) -> list[Utxo]:
    """The outputs that read as a channel of the key, at a script of any kind."""
    found: list[Utxo] = []
    for utxo in read.tx.outputs:
        try:
            if utxo.datum and datum.read_stage(utxo.datum).consts.session_vk == session_vk:
                found.append(utxo)
        except Malformed:
            continue
    return found


def _view(read: _Read, known: Known) -> ChannelView:
    """The channel as the transaction will leave it, in no block."""
    (utxo,) = _ours(read, known.terms.session_vk)
    unit = bytes.fromhex(known.terms.asset)
    fundings = (Funding(utxo.quantity(unit), 0),)
    stage = datum.read_stage(utxo.datum or b"")
    height = known.snapshot.tip.height
    return ChannelView(known.terms.session_vk, utxo, stage, utxo, fundings, height, unit)
