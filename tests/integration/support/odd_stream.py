"""A stream of odd but valid settlements over many channels, with blocks, time and rollbacks.

The ledger judges: a transaction that it refuses is a fault of this generator. What each transaction
does is kept (``ran``: the kinds of the steps that settle was told), so that a reading can be
checked.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import Any

from contracts import blueprint
from contracts.devnet.index.views import Page
from contracts.devnet.ledger.refusal import LedgerRefusal
from contracts.devnet.transaction import OutRef
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import plutus
from marketplace.domain.keys import Signer
from marketplace.domain.money.voucher import voucher_message
from tests.integration.support.chain import ADA, key
from tests.integration.support.odd_forms import NATIVE, Out, Pen, ref_bytes
from tests.integration.support.second_reader import (
    CLAIM,
    CLOSE,
    CLOSING,
    FINISH,
    FINISH_CLAIMING,
    OPEN,
    TOP_UP,
    Constr,
    payout_of,
)

PERIOD_MS = 3_600_000
FEE, PLEDGE = 1_200_000, 5 * ADA
_LEAST, _KEPT = 1_300_000, 3 * ADA  # a payout's or refund's lovelace; what a channel keeps
_RICH = 10_000 * ADA
_STUB = blueprint.ada().stub_hash
_ACCOUNT = b"\xf0" + blueprint.ada().settle_hash
POINTERS = (
    b"\x01\x02\x03",
    b"\x80\x01\x02\x03",
    b"\x01\x80\x80\x02\x80\x03",
)  # one, in three lengths
HAND = key("hand")
HOME = addresses.key_address(HAND.key_hash, None, False)


@dataclass(frozen=True, slots=True)
class Chan:
    """A script-locked output: a channel that is served (*real*), a copy of one, or a stranger."""

    ref: OutRef
    address: bytes
    stage: int
    consts: tuple[Any, ...]
    claimed: int
    expire: int
    amount: int
    origin: OutRef | None  # of a channel that is served
    owner: Owner
    tokens: int = 0

    @property
    def datum(self) -> Constr:
        """Its value."""
        tail = (self.expire,) if self.stage == CLOSING else ()
        return Constr(self.stage, (self.consts, self.claimed, *tail))

    @property
    def home(self) -> bytes:
        """Where its refund goes."""
        return bytes([self.address[0] & 0xEF]) + self.consts[3] + self.address[29:]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who can move a channel: None for a key that nobody has."""

    session: Signer | None
    adapter: Signer | None
    consumer: Signer
    payout_address: bytes


@dataclass
class Book:
    """What is unspent: plain coins, script-locked outputs, and what settle's account holds."""

    coins: dict[OutRef, int] = field(default_factory=dict[OutRef, int])
    chans: dict[OutRef, Chan] = field(default_factory=dict[OutRef, Chan])
    balance: int = 0

    def copy(self) -> Book:
        """For a block's height."""
        return Book(dict(self.coins), dict(self.chans), self.balance)


@dataclass(frozen=True)
class Made:
    """A transaction that the ledger took, and how the book changes."""

    raw: bytes
    spent: tuple[OutRef, ...]
    coins: Mapping[OutRef, int]
    chans: Mapping[OutRef, Chan]
    drained: bool

    def onto(self, book: Book) -> None:
        """The book after it."""
        for ref in self.spent:
            book.coins.pop(ref, None)
            book.chans.pop(ref, None)
        book.coins |= self.coins
        book.chans |= self.chans
        book.balance = 0 if self.drained else book.balance


@dataclass
class Step:
    """A step that was chosen: what it makes of the channel, and what it owes to a run."""

    kind: int
    told: Constr
    after: Chan | None
    out: Out
    pay: int = 0
    signer: Signer | None = None


class Stream:
    """Makes and submits. *served* tells what was signed for a channel; it is the provider's, who
    signs no more than a reader shows it, and is asked whenever a step needs a voucher.
    """

    def __init__(
        self, devnet: Any, rng: Random, params: Any, reference: tuple[OutRef, OutRef]
    ) -> None:
        self.devnet, self.rng, self.pen = devnet, rng, Pen(rng)
        self._costs = params
        self._reference = reference
        self.book = Book()
        self.heights: dict[int, Book] = {}
        self.made: dict[str, Made] = {}
        self.ran: dict[str, list[int]] = {}
        self.served: dict[OutRef, int] = {}
        self.kinds: Counter[str] = Counter()
        self.sent = 0
        self._number = 0

    # --- blocks ---

    def fund(self, coins: int) -> None:
        """Plain money, and a pledge that is never spent."""
        text = addresses.to_text(HOME)
        self.pledge = self.devnet.faucet(text, PLEDGE)
        for _ in range(coins):
            self.book.coins[self.devnet.faucet(text, 1_000_000 * ADA)] = 1_000_000 * ADA
        self.mint()

    def mint(self) -> None:
        """A block of what waits, some seconds later."""
        self.advance(1000 * self.rng.randint(1, 20))

    def advance(self, ms: int) -> None:
        """Time, and a block: what expired meanwhile is in none, nor what built on it."""
        height = self.devnet.advance(ms).height
        before = self.heights.get(height - 1)
        if before is not None:
            self.book = before.copy()
            with self.devnet.reading() as view:
                for tx_id in view.block_txs(height, Page()):
                    if tx_id in self.made:
                        self.made[tx_id].onto(self.book)
        self.heights[height] = self.book.copy()

    def reward(self, lovelace: int) -> None:
        """Settle's account is credited: whoever settles next must take all of it."""
        account = addresses.to_text(_ACCOUNT)
        height = self.devnet.reward(account, lovelace).height
        was = self.heights[height - 1].copy()
        was.balance += lovelace
        self.heights[height] = was
        self._replay(was)

    def rollback(self, blocks: int, drop: bool) -> None:
        """Takes blocks back; their transactions wait again, or are gone for good."""
        self.devnet.rollback(blocks, drop)
        height = self.devnet.status()["height"]
        self.kinds[f"rollback{' and drop' if drop else ''}"] += 1
        for above in [one for one in self.heights if one > height]:
            del self.heights[above]
        self._replay(self.heights[height])

    def _pending(self) -> set[str]:
        return {tx.id for tx in self.devnet.waiting()}

    def _replay(self, book: Book) -> None:
        self.book = book.copy()
        for tx in self.devnet.waiting():
            self.made[tx.id].onto(self.book)

    # --- transactions ---

    def open(self, count: int) -> list[tuple[OutRef, Chan]]:
        """Channels that will be served, a stranger among them at times."""
        chans = [self._fresh() for _ in range(count)]
        if self.rng.random() < 0.5:
            chans.insert(self.rng.randint(0, count), self._stranger())
        return [(c.ref, c) for c in self._pay(chans).chans.values() if c.origin is not None]

    def settle(self, most: int = 4) -> Made | None:
        """Steps of some channels, copies and strangers, in one transaction; None if nobody can
        move.
        """
        rng = self.rng
        chosen = [c for c in self.book.chans.values() if rng.random() < (0.7 if c.origin else 0.25)]
        rng.shuffle(chosen)
        upper = self.devnet.slot() + rng.randint(120, 600)
        moved: list[tuple[Chan, Step]] = []
        for chan in chosen:
            if len(moved) < rng.randint(1, most) and (step := self._step(chan, upper)):
                moved.append((chan, step))
        self.kinds["chained in a block"] += any(c.ref.tx in self._pending() for c, _ in moved)
        return self.send(moved, upper) if moved else None

    def read_in_two_ways(self) -> list[tuple[OutRef, Chan]]:
        """A channel's top-up whose outputs are as well those of its end: a neighbour's payout looks
        like its refund, and its output like that of a copy from which was claimed. The redeemer
        decides.
        """
        whole = replace(self._fresh(), stage=OPEN, amount=8 * ADA)
        owner = replace(whole.owner, payout_address=whole.home)
        consts = (*whole.consts[:2], payout_of(whole.home), *whole.consts[3:5], 0)
        mine = replace(whole, consts=consts, owner=owner, origin=OutRef("", 0))
        copy = replace(mine, claimed=-11 * ADA, amount=20 * ADA, origin=None)
        beside = replace(self._fresh(), address=mine.address, amount=6 * ADA, origin=None)
        theirs = (*beside.consts[:2], consts[2], *consts[3:])
        beside = replace(beside, consts=theirs, owner=replace(owner, session=beside.owner.session, adapter=beside.owner.adapter))  # fmt: skip
        made = self._pay([beside, mine, copy])
        beside, mine, copy = made.chans.values()
        end = Step(FINISH, self._written(FINISH), None, Out(copy.home, copy.amount))
        end.signer = copy.owner.adapter
        top_up = self._top_up(mine, ADA)
        claims = self._taking(beside, FINISH_CLAIMING, 2 * ADA, 2 * ADA)
        self.kinds["made to be read in two ways"] += 1
        self.send([(beside, claims), (mine, top_up), (copy, end)], self.devnet.slot() + 600)
        return [(mine.ref, mine)]

    def claim(self, chan: Chan, end: bool = False) -> Made | None:
        """The provider takes all that was signed for a channel, oddly written as everything
        here.
        """
        assert chan.origin is not None
        cum = self.served.get(chan.origin, 0)
        if cum <= chan.claimed or chan.amount - (cum - chan.claimed) < _LEAST:
            return None
        upper = self.devnet.slot() + 600
        kind = FINISH_CLAIMING if end else CLAIM
        return self.send([(chan, self._taking(chan, kind, cum, cum))], upper)

    def send(self, moved: list[tuple[Chan, Step]], upper: int) -> Made:
        """One settlement of these steps, in odd forms, with decoys behind and before."""
        rng = self.rng
        moved = sorted(moved, key=lambda one: one[0].ref)
        outs, chans = self._consumed(moved)
        ran = [step.kind for _, step in moved]
        consumed = len(outs)
        for _ in range(rng.choice((0, 0, 1, 2))):
            self._decoy(rng.choice(moved), outs, chans)
        if tokens := sum(c.tokens for c, _ in moved):  # they leave the channel, as free outputs
            self.kinds["foreign tokens"] += 1
            at = moved[0][0].address if rng.random() < 0.5 else HOME
            outs.append(Out(at, _KEPT, moved[0][0].datum, tokens=tokens))
        self.kinds.update(("claim", "finish claiming", "finish", "top up", "close")[k] for k in ran)
        if len(moved) > 1:
            self.kinds["batch"] += 1
        if len({repr(c.consts) for c, _ in moved}) < len(moved):
            self.kinds["two of one key"] += 1
        coins = [self._rich_coin()]
        few = len(self.book.coins) < 8
        if not few:
            others = sorted(self.book.coins.keys() - coins)
            coins += rng.sample(others, rng.choice((0, 1, 2)))
        lovelace = sum(self.book.coins[c] for c in coins) + self.book.balance
        lovelace += sum(c.amount for c, _ in moved) - sum(o.lovelace for o in outs) - FEE
        at = rng.randint(consumed, len(outs))
        split = few and lovelace > 3 * _RICH
        change = [lovelace // 2, lovelace - lovelace // 2] if split else [lovelace]
        outs[at:at] = [Out(HOME, one) for one in change]
        chans = {i + len(change) * (i >= at): c for i, c in chans.items()}
        inputs = sorted([*coins, *(c.ref for c, _ in moved)])
        redeemers, hashed = self._told(moved, inputs), [o for o in outs if o.hashed]
        body: dict[int, bytes] = {
            0: self.pen.set([ref_bytes(one) for one in inputs]),
            1: self.pen.array([self.pen.out(o) for o in outs]),
            2: plutus.head(0, FEE),
            3: plutus.head(0, upper),
            5: self.pen.map([(b"\x58\x1d" + _ACCOUNT, plutus.head(0, self.book.balance))]),
            13: self.pen.set([ref_bytes(self.pledge)]),
            18: self.pen.set([ref_bytes(one) for one in self._references(inputs)]),
        }
        if rng.random() < 0.7 or any(k in (FINISH, FINISH_CLAIMING) for k in ran):
            body[8] = plutus.head(0, self.devnet.slot())
        signers = [HAND, *(s.signer for _, s in moved if s.signer)]
        required = {s.key_hash for s in signers}
        body[14] = self.pen.set([b"\x58\x1c" + one for one in sorted(required)])
        witnesses = {5: redeemers}
        datums = b""
        if hashed:
            self.kinds["datum by hash beside"] += 1
            datums = b"\x81" + b"\x18\x2a"
            witnesses[4] = datums
        costs = self._costs.script_data_hash(redeemers + datums)
        body[11] = b"\x58\x20" + costs
        tx_id, raw = self.pen.transaction(body, signers, witnesses)
        self.ran[tx_id] = ran
        return self._submit(tx_id, raw, inputs, outs, chans, drained=True)

    def _rich_coin(self) -> OutRef:
        """One that pays for any transaction of this stream: what was split many times does not."""
        return self.rng.choice(sorted(r for r, held in self.book.coins.items() if held >= _RICH))

    # --- inside: what is consumed by position ---

    def _consumed(self, moved: list[tuple[Chan, Step]]) -> tuple[list[Out], dict[int, Chan]]:
        """As contracts/README.md, "Outputs": a run's payout, then one output for each channel."""
        outs: list[Out] = []
        chans: dict[int, Chan] = {}
        payee, owed, to = b"", 0, b""
        for chan, step in moved:
            in_run = step.kind in (CLAIM, FINISH, FINISH_CLAIMING)
            payout = chan.consts[2] if in_run else b""
            if not in_run or payout != payee:
                outs += self._payout(to, owed)
                payee, owed = payout, 0
            owed, to = owed + step.pay, chan.owner.payout_address
            out = replace(step.out, address=self._anew(step.out.address))
            if step.after is not None:
                chans[len(outs)] = replace(step.after, address=out.address)
            outs.append(out)
        outs += self._payout(to, owed)
        return outs, chans

    def _anew(self, address: bytes) -> bytes:
        """The same address; a pointer's numbers in another length."""
        if address[0] >> 4 not in (4, 5):
            return address
        self.kinds["pointer"] += 1
        return address[:29] + self.rng.choice(POINTERS)

    def _payout(self, to: bytes, owed: int) -> list[Out]:
        more = self.rng.choice((0, 0, 1, ADA))
        return [Out(to, max(owed, _LEAST) + more)] if owed else []

    def _decoy(self, one: tuple[Chan, Step], outs: list[Out], chans: dict[int, Chan]) -> None:
        """Something behind the settlement that looks like what is asked for."""
        chan, step = one
        like = step.after or chan
        amount = max(like.amount, _KEPT) + self.rng.choice((0, 1, ADA))
        what = self.rng.randrange(8)
        names = ("copy", "closing copy", "copy that claimed less", "refund's look", "hash of a datum", "with a script", "payout's look", "pointer address")  # fmt: skip
        self.kinds[f"decoy: {names[what]}"] += 1
        if what in (0, 1, 2):
            stage = CLOSING if what == 1 else like.stage
            less = self.rng.randint(0, 3) * ADA if what == 2 else 0
            expire = like.expire if like.stage == CLOSING else 1
            copy = replace(
                like, stage=stage, claimed=like.claimed - less, expire=expire, origin=None
            )
            copy = replace(copy, amount=amount, tokens=0)  # the copy's look is free, a token is not
            if sum(c.origin is None for c in self.book.chans.values()) < 40:
                chans[len(outs)] = copy
                outs.append(Out(copy.address, amount, copy.datum))
        elif what == 3 and len(chan.consts[3]) == 28:
            outs.append(Out(chan.home, amount))
        elif what == 4:
            digest = blake2b(b"\x18\x2a", digest_size=32).digest()
            outs.append(Out(like.address, amount, hashed=digest))
        elif what == 5:
            outs.append(Out(like.address, amount, like.datum, script=True))
        elif what == 6:
            outs.append(Out(chan.owner.payout_address, _LEAST))
        elif what == 7:
            at = self.rng.choice((b"\x40" + chan.owner.consumer.key_hash, b"\x50" + _STUB))
            outs.append(Out(at + b"\x01\x02\x03", amount))

    # --- inside: steps ---

    def _step(self, chan: Chan, upper: int) -> Step | None:
        rng = self.rng
        makers: list[Callable[[], Step | None]] = []
        if chan.stage == OPEN:
            makers += [lambda: self._top_up(chan)] * 3
            makers += [lambda: self._close(chan, upper)] * (1 if chan.origin else 2)
        if chan.owner.session is not None:
            makers += [lambda: self._some(chan)] * 4
        if self._may_end(chan):
            makers += [lambda: self._end(chan)] * (1 if chan.origin and chan.stage == OPEN else 3)
        return rng.choice(makers)() if makers else None

    def _may_end(self, chan: Chan) -> bool:
        now_ms = (self.devnet.system_start + self.devnet.slot()) * 1000
        expired = chan.stage == CLOSING and now_ms >= chan.expire
        ours = chan.owner.adapter is not None
        named = isinstance(chan.consts[1], bytes) and len(chan.consts[3]) == 28
        return (expired or ours) and named

    def _end(self, chan: Chan) -> Step | None:
        now_ms = (self.devnet.system_start + self.devnet.slot()) * 1000
        expired = chan.stage == CLOSING and now_ms >= chan.expire
        signed = self.served.get(chan.origin, 0) if chan.origin else chan.claimed
        if expired and self.rng.random() < 0.5:  # the consumer, who shows no voucher
            self.kinds["finish after expiry"] += 1
            return Step(FINISH, self._written(FINISH), None, Out(chan.home, chan.amount))
        if chan.owner.adapter is None:
            return None
        if signed > chan.claimed:  # the adapter, which takes all
            if chan.amount - (signed - chan.claimed) < _LEAST:
                return None
            step = self._taking(chan, FINISH_CLAIMING, signed, signed)
        else:
            step = Step(FINISH, self._written(FINISH), None, Out(chan.home, chan.amount))
        step.signer = chan.owner.adapter
        return step

    def _some(self, chan: Chan) -> Step | None:
        """Anybody who holds the voucher claims a part of it, or all; a copy's consumer what it
        likes.
        """
        cum = self.served.get(chan.origin, 0) if chan.origin else chan.claimed + ADA
        cum = min(cum, chan.claimed + chan.amount - _KEPT)
        if cum <= max(chan.claimed, 0):
            return None
        take_to = (
            cum if self.rng.random() < 0.5 else self.rng.randint(max(0, chan.claimed) + 1, cum)
        )
        return self._taking(chan, CLAIM, cum, take_to)

    def _taking(self, chan: Chan, kind: int, cum: int, take_to: int) -> Step:
        assert chan.owner.session is not None
        taken = take_to - chan.claimed
        signature = chan.owner.session.sign(voucher_message(cum))
        told = self._written(kind, cum, take_to, signature)
        pay = taken - taken * chan.consts[5] // 10_000
        if kind == FINISH_CLAIMING:
            out = Out(chan.home, chan.amount - taken)
            return Step(kind, told, None, out, pay, chan.owner.adapter)
        after = replace(chan, claimed=take_to, amount=chan.amount - taken, tokens=0)
        return Step(kind, told, after, Out(after.address, after.amount, after.datum), pay)

    def _top_up(self, chan: Chan, more: int = 0) -> Step:
        more = more or self.rng.choice((1, 1000, ADA, 4 * ADA))
        after = replace(chan, amount=chan.amount + more, tokens=0)
        out = Out(after.address, after.amount, after.datum)
        return Step(TOP_UP, self._written(TOP_UP, more), after, out, signer=chan.owner.consumer)

    def _close(self, chan: Chan, upper: int) -> Step:
        expire = (self.devnet.system_start + upper) * 1000 + chan.consts[4]
        after = replace(chan, stage=CLOSING, expire=expire, tokens=0)
        out = Out(after.address, after.amount, after.datum)
        return Step(CLOSE, self._written(CLOSE), after, out, signer=chan.owner.consumer)

    def _written(self, kind: int, *args: Any) -> Constr:
        """A step, at times with arguments that settle does not look at."""
        junk: list[Any] = [7, b"\x00" * 70, {1: (2, {3: b""})}, Constr(4, ())]
        more = self.rng.sample(junk, self.rng.randint(1, 3)) if self.rng.random() < 0.2 else []
        return Constr(kind, (*args, *more))

    # --- inside: redeemers ---

    def _told(self, moved: list[tuple[Chan, Step]], inputs: list[OutRef]) -> bytes:
        """Settle's row and a stub's for each channel; decoys before, in any order that keeps them
        last.
        """
        rng, pen = self.rng, self.pen
        rows: list[tuple[int, int, bytes, int, int]] = []
        for chan, _ in moved:
            index = inputs.index(chan.ref)
            if rng.random() < 0.1:
                rows.append((0, index, pen.data((1, {2: 3})), 0, 0))
                self.kinds["duplicate of a stub's row"] += 1
            rows.append(
                (0, index, pen.data(rng.choice((0, 0, b"", (), {1: 2}))), 12_000, 6_000_000)
            )
        n = len(moved)
        told = [step.told for _, step in moved]
        settle = (3, 0, pen.data(tuple(told)), 300_000 + 150_000 * n, (200 + 200 * n) * 1_000_000)
        decoys = [pen.data(self._lie(told)) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
        if decoys:
            self.kinds["duplicate redeemers"] += 1
        if rng.random() < 0.5 and not any(a[:2] == b[:2] for a, b in itertools.pairwise(rows)):
            rng.shuffle(rows)
            self.kinds["reordered redeemers"] += 1
        last = rng.randint(0, len(rows))
        rows.insert(last, settle)
        for lie in decoys:
            rows.insert(rng.randint(0, rows.index(settle)), (3, 0, lie, 0, 0))
        return pen.redeemers(rows)

    def _lie(self, told: list[Constr]) -> Any:
        """Steps that settle is not told."""
        rng, n = self.rng, len(told)
        finish, top_up = Constr(FINISH, ()), Constr(TOP_UP, (10**12,))
        claim = Constr(CLAIM, (10**9, 10**9, bytes(64)))
        one = rng.choice((finish, top_up, claim, Constr(CLOSE, ())))
        return rng.choice(
            ((one,) * n, (finish,) * n, (), (one,) * (n + 1), 5, {1: {2: (3,)}}, tuple(told))
        )

    def _references(self, inputs: list[OutRef]) -> list[OutRef]:
        """Both scripts and, at times, a channel that does not move."""
        others = [c for c in self.book.chans if c not in inputs]
        more = [self.rng.choice(others)] if others and self.rng.random() < 0.3 else []
        return [*self._reference, *more]

    # --- inside: channels ---

    def _fresh(self) -> Chan:
        rng = self.rng
        self._number += 1
        session, adapter = (
            key(f"odd session {self._number}"),
            key(f"odd adapter {rng.randrange(3)}"),
        )
        consumer = key(f"odd consumer {rng.randrange(5)}")
        stake = rng.choice((b"", b"\x0a" * 28))
        at = (
            (b"\x30" if rng.random() < 0.2 and stake else b"\x10" if stake else b"\x70")
            + _STUB
            + stake
        )
        home = bytes([at[0] & 0xEF]) + consumer.key_hash + stake
        to = rng.choice((
            addresses.key_address(key(f"odd payout {rng.randrange(3)}").key_hash, None, False),
            addresses.key_address(key("odd payout").key_hash, b"\x0b" * 28, False),
            home,
        ))  # fmt: skip
        owner = Owner(session, adapter, consumer, to)
        fee_bps = rng.choice((0, 0, 0, 50, 100, 100, 10_000))
        consts = (
            session.verify_key,
            adapter.key_hash,
            payout_of(to),
            consumer.key_hash,
            PERIOD_MS,
            fee_bps,
        )
        amount = rng.choice((8, 20, 40)) * ADA
        origin = OutRef("", 0) if fee_bps <= 100 else None  # no terms of ours grant more
        return Chan(OutRef("", 0), at, OPEN, consts, 0, 0, amount, origin, owner)

    def _stranger(self) -> Chan:
        """Something at the stub that no reader of ours takes for a channel, and settle moves all
        the same.
        """
        rng, one = self.rng, self._fresh()
        session, adapter, payout, consumer, period, bps = one.consts
        self.kinds["stranger"] += 1
        odd = rng.choice((
            (session[:31], adapter, payout, consumer, period, bps),
            (session, adapter[:27], payout, consumer, period, bps),
            (session, adapter, b"\x01" * 30, consumer, period, bps),
            (session, adapter, payout, consumer, -period, bps, 7),
            (7, {1: 2}, payout, consumer, period, b"x"),
            (session, adapter, payout, consumer, period),
        ))  # fmt: skip
        adapters = one.owner.adapter if odd[1] == adapter else None
        if rng.random() < 0.5:  # at a pointer, which nobody serves
            one = replace(one, address=b"\x50" + _STUB + rng.choice(POINTERS))
        owner = replace(one.owner, session=None, adapter=adapters)
        return replace(one, consts=odd, origin=None, owner=owner, tokens=rng.choice((0, 1, 5)))

    def _pay(self, chans: list[Chan]) -> Made:
        """A plain payment that makes these."""
        coin = self._rich_coin()
        change = self.book.coins[coin] - sum(c.amount for c in chans) - FEE
        outs: list[Out] = [
            *(Out(c.address, c.amount, c.datum, tokens=c.tokens) for c in chans),
            Out(HOME, change),
        ]
        body = {
            0: self.pen.set([ref_bytes(coin)]),
            1: self.pen.array([self.pen.out(o) for o in outs]),
            2: plutus.head(0, FEE),
        }
        witnesses: dict[int, bytes] = {}
        if tokens := sum(c.tokens for c in chans):
            body[9], witnesses[1] = self.pen.bundle(tokens), self.pen.set([NATIVE])
        tx_id, raw = self.pen.transaction(body, [HAND], witnesses)
        refs = [OutRef(tx_id, i) for i in range(len(chans))]
        made = {
            i: replace(c, ref=ref, origin=ref if c.origin is not None else None)
            for i, (c, ref) in enumerate(zip(chans, refs, strict=True))
        }
        return self._submit(tx_id, raw, [coin], outs, made, drained=False)

    def _submit(
        self, tx_id: str, raw: bytes, inputs: list[OutRef], outs: list[Out],
        chans: dict[int, Chan], *, drained: bool,
    ) -> Made:  # fmt: skip
        try:
            assert self.devnet.submit(raw) == tx_id
        except LedgerRefusal as refusal:
            raise AssertionError(f"the ledger refused {refusal}: {raw.hex()}") from refusal
        self.sent += 1
        coins = {
            OutRef(tx_id, i): o.lovelace
            for i, o in enumerate(outs)
            if o.address == HOME and o.lovelace > 100 * ADA and o.hashed is None
        }
        placed = {OutRef(tx_id, i): replace(c, ref=OutRef(tx_id, i)) for i, c in chans.items()}
        made = Made(raw, tuple(inputs), coins, placed, drained)
        self.made[tx_id] = made
        made.onto(self.book)
        return made
