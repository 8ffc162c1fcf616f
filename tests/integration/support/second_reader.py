"""A second reader of channels, from the history of unspent outputs alone.

Written from the words of ``contracts/README.md``, and from nothing of ``marketplace.chain``, to be
compared with it: each transaction's inputs and outputs as the ledger's index holds them, in order.
It plays settle forward over every kind of step that each script-locked input could have taken, and
keeps the plays that consume the outputs whole, by position.

Two careless readers stand beside it, which a comparison must catch: one believes the first redeemer
row, one takes the richest output that carries the channel's constants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import cbor2

from contracts.devnet import cbor
from contracts.devnet.index.views import View
from contracts.devnet.transaction import Output, OutRef, Tx

CLAIM, FINISH_CLAIMING, FINISH, TOP_UP, CLOSE = range(5)
OPEN, CLOSING = range(2)


class Disagreement(AssertionError):
    """A reader has no reading, or several."""


# --- Plutus Data ----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Constr:
    """A constructor and its fields, however they were written."""

    number: int
    fields: tuple[Any, ...]


@lru_cache(maxsize=1 << 16)
def data(raw: bytes) -> Any:
    """The value of *raw*, equal for equal Data."""
    return _value(cbor2.loads(raw))


def _value(read: Any) -> Any:
    if isinstance(read, cbor2.CBORTag):
        if read.tag == 102:
            number, fields = read.value
            return Constr(number, tuple(_value(one) for one in fields))
        number = read.tag - 121 if read.tag < 128 else read.tag - 1280 + 7
        return Constr(number, tuple(_value(one) for one in read.value))
    if isinstance(read, list):
        return tuple(_value(one) for one in cast("list[Any]", read))
    if isinstance(read, Mapping):
        pairs = cast("Mapping[Any, Any]", read).items()
        return ("map", tuple((_value(k), _value(v)) for k, v in pairs))
    return read


def payout_of(address: bytes) -> bytes:
    """blake2b_224(serialiseData(address)), lists of fields indefinite unless empty."""
    kind, payment, stake = address[0] >> 4, address[1:29], address[29:]
    paid = (b"\xd8\x7a\x9f" if kind & 1 else b"\xd8\x79\x9f") + b"\x58\x1c" + payment + b"\xff"
    if kind in (6, 7):
        staked = b"\xd8\x7a\x80"
    elif kind in (4, 5):
        inner = b"".join(cbor2.dumps(n) for n in _pointer(stake))
        staked = b"\xd8\x79\x9f\xd8\x7a\x9f" + inner + b"\xff\xff"
    else:
        who = b"\xd8\x7a\x9f" if kind & 2 else b"\xd8\x79\x9f"
        staked = b"\xd8\x79\x9f\xd8\x79\x9f" + who + b"\x58\x1c" + stake + b"\xff\xff\xff"
    return hashlib.blake2b(b"\xd8\x79\x9f" + paid + staked + b"\xff", digest_size=28).digest()


def place(address: bytes) -> tuple[Any, ...]:
    """What an address is, equal for equal ones: a pointer's numbers can be written in many
    lengths.
    """
    stake = tuple(_pointer(address[29:])) if address[0] >> 4 in (4, 5) else address[29:]
    return address[:29], stake


def _pointer(raw: bytes) -> Iterator[int]:
    number = 0
    for byte in raw:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            yield number
            number = 0


# --- what the ledger tells ------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Held:
    """One output with its place."""

    ref: OutRef
    output: Output

    @property
    def locked(self) -> bool:
        """Whether a script locks it."""
        return self.output.address[0] >> 4 in (1, 3, 5, 7)

    @property
    def datum(self) -> Any:
        """Its inline datum's value; None without one."""
        raw = self.output.inline_datum
        return None if raw is None else data(raw)


@dataclass
class History:
    """Every transaction of the chain's blocks, in order, kept up to date over rollbacks."""

    blocks: list[tuple[str, list[Tx]]] = field(default_factory=list[tuple[str, list[Tx]]])
    outputs: dict[OutRef, Output] = field(default_factory=dict[OutRef, Output])
    spender: dict[OutRef, Tx] = field(default_factory=dict[OutRef, Tx])
    known: dict[tuple[str, OutRef], set[tuple[int, int]]] = field(
        default_factory=dict[tuple[str, OutRef], set[tuple[int, int]]]
    )

    def follow(self, view: View) -> None:
        """As the index shows the chain now."""
        hashes = [
            row["hash"]
            for row in view.rows("SELECT hash FROM block WHERE height <= :h ORDER BY height")
        ]
        while len(self.blocks) > len(hashes) or (
            self.blocks and self.blocks[-1][0] != hashes[len(self.blocks) - 1]
        ):
            for tx in reversed(self.blocks.pop()[1]):
                for index, _ in tx.made:
                    del self.outputs[OutRef(tx.id, index)]
                for ref in tx.spent:
                    self.spender.pop(ref, None)
        for height in range(len(self.blocks), len(hashes)):
            ids = view.rows(
                "SELECT id FROM tx WHERE height = :height ORDER BY position", height=height
            )
            txs = [one.tx for row in ids if (one := view.tx(row["id"])) is not None]
            for tx in txs:
                self.spender |= dict.fromkeys(tx.spent, tx)
                self.outputs |= {OutRef(tx.id, index): one for index, one in tx.made}
            self.blocks.append((hashes[height], txs))

    def readings(self, tx: Tx, mine: OutRef) -> set[tuple[int, int]]:
        """:func:`plays`, remembered: what a transaction does never changes."""
        if (tx.id, mine) not in self.known:
            self.known[tx.id, mine] = plays(self.locked(tx), tx, mine)
        return self.known[tx.id, mine]

    def locked(self, tx: Tx) -> list[Held]:
        """The script-locked inputs of *tx* in ledger order: transaction id, then index."""
        held = [Held(ref, self.outputs[ref]) for ref in sorted(tx.inputs) if ref in self.outputs]
        return [one for one in held if one.locked]


# --- settle, played forward -----------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Play:
    """How far settle has come: the next output, the open run, and where mine lies by now."""

    next: int = 0
    payee: bytes = b""
    owed: int = 0
    mine: int = -1
    kind: int = -1


@dataclass(frozen=True, slots=True)
class _Channel:
    held: Held
    stage: int
    state: tuple[Any, ...]

    @property
    def consts(self) -> tuple[Any, ...]:
        return self.state[0]

    @property
    def amount(self) -> int:
        return self.held.output.lovelace


def plays(
    locked: Sequence[Held], tx: Tx, mine: OutRef, ran: Sequence[int] | None = None
) -> set[tuple[int, int]]:
    """(output, kind of step) of the channel at *mine* in every way in which settle can have run.

    *ran*: the kinds of the steps where they are known, for a transaction that can be read in two
    ways.
    """
    frontier = {Play()}
    for number, held in enumerate(locked):
        at = held.datum
        channel = _Channel(held, at.number, at.fields)
        kinds = range(5) if ran is None else (ran[number],)
        frontier = {
            replace(after, mine=after.next - 1, kind=kind) if held.ref == mine else after
            for play in frontier
            for kind in kinds
            for after in _stepped(play, channel, kind, tx)
        }
    return {(p.mine, p.kind) for play in frontier for p in _flushed(play, tx)}


def _stepped(play: Play, channel: _Channel, kind: int, tx: Tx) -> Iterator[Play]:
    """The play after *channel*'s step of this *kind*, if the output that it consumes is right."""
    if kind in (TOP_UP, CLOSE):
        for flushed in _flushed(play, tx):
            if _continues(channel, kind, tx, flushed.next) is not None:
                yield replace(flushed, next=flushed.next + 1)
        return
    payout = channel.consts[2]
    in_run = [play] if payout == play.payee else _flushed(play, tx)
    for run in in_run:
        ends = kind != CLAIM
        taken = (_refunds if ends else _continues)(channel, kind, tx, run.next)
        if taken is None:
            continue
        fee = channel.consts[5] if len(channel.consts) > 5 else None
        if not isinstance(fee, int):
            if taken:
                continue  # settle fails on such: nothing can be claimed from it
            fee = 0
        pay = taken - taken * fee // 10_000
        if pay >= 0:
            yield replace(run, next=run.next + 1, payee=payout, owed=run.owed + pay)


def _flushed(play: Play, tx: Tx) -> list[Play]:
    """Once the open run has its payout: owing nothing it consumes nothing."""
    if play.owed == 0:
        return [replace(play, payee=b"")]
    if play.next >= len(tx.outputs):
        return []
    out = tx.outputs[play.next]
    right = payout_of(out.address) == play.payee and out.lovelace >= play.owed
    plain = out.datum_hash is None and out.script is None and not out.assets
    return [replace(play, next=play.next + 1, payee=b"", owed=0)] if right and plain else []


def _continues(channel: _Channel, kind: int, tx: Tx, position: int) -> int | None:
    """What a Claim takes (0 for TopUp and Close), if this output is the one rebuilt."""
    if position >= len(tx.outputs):
        return None
    out = tx.outputs[position]
    if (
        out.script
        or out.assets
        or out.inline_datum is None
        or place(out.address) != place(channel.held.output.address)
    ):
        return None
    found, more = data(out.inline_datum), out.lovelace - channel.amount
    was = Constr(channel.stage, channel.state)
    if kind == TOP_UP:
        return 0 if channel.stage == OPEN and more > 0 and found == was else None
    if kind == CLOSE:
        expire = found.fields[2] if isinstance(found, Constr) and len(found.fields) == 3 else None
        closing = Constr(CLOSING, (*channel.state[:2], expire))
        right = channel.stage == OPEN and more == 0 and isinstance(expire, int) and found == closing
        return 0 if right else None
    claimed = Constr(channel.stage, (channel.state[0], channel.state[1] - more, *channel.state[2:]))
    return -more if more < 0 and found == claimed else None


def _refunds(channel: _Channel, kind: int, tx: Tx, position: int) -> int | None:
    """What the end takes, if this output is consumer_vkh's with the channel's own stake part."""
    if position >= len(tx.outputs):
        return None
    out, at = tx.outputs[position], channel.held.output.address
    home = bytes([at[0] & 0xEF]) + channel.consts[3] + at[29:]
    plain = out.datum_hash is None and out.script is None and not out.assets
    taken = channel.amount - out.lovelace
    fits = taken > 0 if kind == FINISH_CLAIMING else taken == 0
    return taken if plain and place(out.address) == place(home) and fits else None


# --- a channel's life -----------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Life:
    """What a channel is now. *funded*: what open and top-ups put in; *ref*: its output, or its
    refund.
    """

    ref: OutRef
    stage: int
    claimed: int
    amount: int
    funded: int
    ended: bool = False


def life(history: History, origin: OutRef, ran: Mapping[str, Sequence[int]]) -> tuple[Life, int]:
    """The channel that *origin* opened, and how many of its transactions could be read in two
    ways.
    """
    now = _opened(history, origin)
    twice = 0
    while not now.ended and (tx := history.spender.get(now.ref)) is not None:
        found = history.readings(tx, now.ref)
        if len(found) > 1:
            twice += 1
            found = plays(history.locked(tx), tx, now.ref, ran[tx.id])
        if len(found) != 1:
            raise Disagreement(f"{len(found)} readings of {tx.id}: {tx.raw.hex()}")
        [(position, kind)] = found
        now = _after(now, tx, position, kind)
    return now, twice


def _opened(history: History, origin: OutRef) -> Life:
    out = history.outputs[origin]
    assert out.inline_datum is not None
    return Life(origin, OPEN, data(out.inline_datum).fields[1], out.lovelace, out.lovelace)


def _after(before: Life, tx: Tx, position: int, kind: int) -> Life:
    ref, out = OutRef(tx.id, position), tx.outputs[position]
    if kind in (FINISH, FINISH_CLAIMING):
        claimed = before.claimed + before.amount - out.lovelace
        return Life(ref, before.stage, claimed, out.lovelace, before.funded, True)
    assert out.inline_datum is not None
    at = data(out.inline_datum)
    more = out.lovelace - before.amount if kind == TOP_UP else 0
    return Life(ref, at.number, at.fields[1], out.lovelace, before.funded + more)


# --- careless readers -----------------------------------------------------------------------
def by_first_row(history: History, origin: OutRef) -> Life | None:
    """As one who believes the first redeemer row of the withdrawal; None where that cannot be
    read.
    """
    now = _opened(history, origin)
    while not now.ended and (tx := history.spender.get(now.ref)) is not None:
        locked = history.locked(tx)
        try:
            steps = data(_rows(tx)[0])
            found = plays(locked, tx, now.ref, [step.number for step in steps])
            [(position, kind)] = found
        except (ValueError, IndexError, AttributeError, TypeError):
            return None
        now = _after(now, tx, position, kind)
    return now


def _rows(tx: Tx) -> list[bytes]:
    """The data of every redeemer row for the first withdrawal, in their order."""
    witnesses = {cbor.uint(k): v for k, v in cbor.pairs(cbor.elements(tx.raw)[1])}
    if cbor.is_map(witnesses[5]):
        rows = [(*cbor.elements(k), *cbor.elements(v)) for k, v in cbor.pairs(witnesses[5])]
    else:
        rows = [tuple(cbor.elements(one)) for one in cbor.elements(witnesses[5])]
    return [row[2] for row in rows if (cbor2.loads(row[0]), cbor2.loads(row[1])) == (3, 0)]


def by_looks(history: History, origin: OutRef) -> Life | None:
    """As one who takes the richest unspent output at the address that carries the constants."""
    first = history.outputs[origin]
    assert first.inline_datum is not None
    consts = data(first.inline_datum).fields[0]
    best: Life | None = None
    for ref, out in history.outputs.items():
        if ref in history.spender or out.address != first.address or out.inline_datum is None:
            continue
        at = data(out.inline_datum)
        if at.fields[0] == consts and (best is None or out.lovelace > best.amount):
            best = Life(ref, at.number, at.fields[1], out.lovelace, 0)
    return best
