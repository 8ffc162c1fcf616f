"""V9 of routing: what a router relies on in blocks that may be rolled back stays below its caps.

Worlds of consumers who open hops, many with one transaction, of leases over them that are paid and
passed on at once, of blocks, and of rollbacks in which a transaction may be gone for good. The
router's own decisions are asked (``marketplace.router``); what they rest on is counted here anew.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from benchmarks.route_world import Broken, signer
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.route import router
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.hop import Paying, Payment
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.messages import LeaseUnknown, Owes
from marketplace.domain.money.route.offer import RouterOffer, SignedRouterOffer
from marketplace.domain.money.route.router_book import Carried, room_for
from marketplace.domain.money.transaction import FINAL_DEPTH, depth
from marketplace.router import exposure
from marketplace.router.limits import ADA, Limits
from marketplace.router.sights import Sight, need, sighted_in
from marketplace.router.state import HopIn, HopOut, Seen, State

OUT: Final = signer("hop out")
RIPE: Final = 5
LIMITS: Final = Limits()


@dataclass
class Depths:
    """One world. *at*: the height of each transaction that a block holds; *gone*: those that a
    rollback took; *deepest*: the greatest depth of each; *hops*: which transaction paid for one.
    """

    seed: str
    limits: Limits = LIMITS
    dice: Random = field(init=False)
    state: State = field(init=False)
    height: int = 20
    top: int = 20
    at: dict[bytes, int] = field(default_factory=dict[bytes, int])
    gone: set[bytes] = field(default_factory=set[bytes])
    deepest: dict[bytes, int] = field(default_factory=dict[bytes, int])
    hops: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    keys: dict[bytes, Signer] = field(default_factory=dict[bytes, Signer])
    admitted: int = 0
    refused: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)
        book = router.RouterBook(bytes(32), {}, {OUT.verify_key: Paying(OUT.verify_key)}, {})
        book = replace(book, room={OUT.verify_key: 10**15})
        out = HopOut(OUT.verify_key, 42, "p", bytes(28), bytes(28), "", 0, 0, bytes(28))
        self.state = State(book, hops_out={OUT.verify_key: replace(out, seen=Seen.OPEN)})

    def run(self, events: int = 120) -> Depths:
        """So many by chance, each followed by a look at every hop."""
        for _ in range(events):
            turn = self.dice.random()
            if turn < 0.12:
                self._open()
            elif turn < 0.3:
                self.height += 1
            elif turn < 0.34:
                self._roll_back()
            else:
                self._lease()
            self._look()
            self._check_lost()
        return self

    def _open(self) -> None:
        """One transaction that pays for some hops."""
        tx = self.dice.randbytes(32)
        self.height += 1
        self.at[tx] = self.height
        for _ in range(self.dice.choice((1, 1, 2, 8))):
            key = signer(f"{self.seed} {len(self.hops)}")
            vk = key.verify_key
            self.hops[vk], self.keys[vk] = tx, key
            hop = HopIn(vk, "c", bytes(28), tx.hex(), 0, _OFFER, "")
            self.state = self.state.with_hop_in(hop)

    def _roll_back(self) -> None:
        """Some blocks; each transaction of theirs comes again, or never."""
        back = self.dice.randrange(1, FINAL_DEPTH - 1)
        if self.top - (self.height - back) >= FINAL_DEPTH - 1:
            return  # none is expected to go so deep
        self.height -= back
        for tx, height in list(self.at.items()):
            if height > self.height:
                if self.dice.random() < 0.5:
                    self.gone.add(tx)
                    del self.at[tx]
                else:
                    self.at[tx] = self.height

    def depth(self, tx: bytes) -> int:
        return depth(self.height, self.at[tx]) if tx in self.at else 0

    def _look(self) -> None:
        self.top = max(self.top, self.height)
        for vk, tx in self.hops.items():
            self.deepest[tx] = max(self.deepest.get(tx, 0), self.depth(tx))
            sight = self._sight(tx)
            done = sighted_in(self.state, vk, sight, self.limits, 1, self._out)
            self.state = done.state

    def _sight(self, tx: bytes) -> Sight:
        if not self.depth(tx):
            return Sight(Seen.AWAITED)
        fund = exposure.Fund(tx, 90 * ADA, self.depth(tx))
        return Sight(Seen.OPEN, 90 * ADA, funds=(fund,))

    @property
    def _out(self) -> dict[bytes, Signer]:
        return {OUT.verify_key: OUT}

    def _lease(self) -> None:
        """A lease that is served whole, paid whole and passed on."""
        if not self.hops:
            return
        vk = self.dice.choice(list(self.hops))
        name = f"lease {self.admitted + self.refused}"
        reserve = self.dice.choice((100_000, ADA, 2 * ADA, 15 * ADA))
        key = signer(name)
        made = Carried(name, key.verify_key, vk, vk, OUT.verify_key, 50, reserve)
        try:
            self._admit(made)
        except Refusal:
            self.refused += 1
            return
        self.admitted += 1
        self.check(made.hop_in)
        self._pay(made)

    def _admit(self, made: Carried) -> None:
        vk = made.hop_in
        if self.state.hops_in[vk].seen is not Seen.OPEN:
            raise LeaseUnknown("in no block")
        book = self.state.book
        room_for(book, made)
        needs = {
            hop: need(book, hop, self._sight(tx)) for hop, tx in self.hops.items() if self.depth(tx)
        }
        exposure.check(needs, vk, with_fee(made.reserve, made.route_bps), self.limits)
        done = router.admit(book, made.lease_vk, made, self._out)
        self.state = replace(self.state, book=done.state)

    def _pay(self, made: Carried) -> None:
        book = self.state.book
        book = router.decide(book, Owes(made.lease_vk, made.reserve), self._out).state
        key, into = self.keys[made.hop_in], book.hops_in[made.hop_in]
        whole = with_fee(made.reserve, made.route_bps)
        first = {} if into.last else {_FIRST.terms: _FIRST.amount}
        paying = Paying(made.hop_in, into.last).pay({**first, made.lease_vk: whole}, key)
        payment = paying.last
        assert isinstance(payment, Payment)
        book = router.decide(book, payment, self._out).state
        self.state = replace(self.state, book=book)

    # what must hold

    def check(self, hop: bytes) -> None:
        """V9, once a lease was admitted over *hop*: what rests on its transaction, and on all that
        are as young. (What a rollback made young again may be more; then none is admitted.)
        """
        mine = self.hops[hop]
        if self.depth(mine) >= FINAL_DEPTH:
            return
        ripe = self.depth(mine) >= RIPE
        by_tx: dict[bytes, int] = defaultdict(int)
        for vk, tx in self.hops.items():
            if 1 <= self.depth(tx) < FINAL_DEPTH and (self.depth(tx) >= RIPE) == ripe:
                by_tx[tx] += self.state.book.spoken_for(vk)
        of_tx, whole = (60 * ADA, 600 * ADA) if ripe else (3 * ADA, 30 * ADA)
        if by_tx[mine] > of_tx or sum(by_tx.values()) > whole:
            raise Broken(f"V9: {by_tx[mine]} rest on one transaction, {sum(by_tx.values())} in all")

    def _check_lost(self) -> None:
        """What was passed on of money that is gone for good: no more than its depth allowed."""
        self.lost = 0
        for tx in self.gone:
            passed = sum(self._passed(vk) for vk, mine in self.hops.items() if mine == tx)
            most = 60 * ADA if self.deepest[tx] >= RIPE else 3 * ADA
            if passed > most:
                raise Broken(f"V9: {passed} were passed on, {self.deepest[tx]} deep at most")
            self.lost += passed

    def _passed(self, vk: bytes) -> int:
        book = self.state.book
        out = book.hops_out[OUT.verify_key]
        return sum(out.amount(key) for key, one in book.leases.items() if one.hop_in == vk)


def _offer() -> SignedRouterOffer:
    key = signer("router")
    body = RouterOffer(
        42, key.verify_key, bytes(28), bytes(28), 0, 50, LIMITS.hop_fee, 250, 100 * ADA, 20 * ADA
    ).encode()
    return SignedRouterOffer(body, key.sign(body))


_OFFER: Final = _offer()
_FIRST: Final = Leaf(_OFFER.verify().hash, LIMITS.hop_fee)
