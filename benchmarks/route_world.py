"""Two consumers, a router, two providers, three routed leases, and chance: messages are delivered,
anybody crashes before or after writing down, connections are lost, and one of them lies.

The books are those of ``marketplace.domain.money.route``, with real signatures. What must hold in
every durable state is checked after each event (:meth:`World.check`, numbered as in the design).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.route import payee, payer, router
from marketplace.domain.money.route.fee import fee, reach, with_fee
from marketplace.domain.money.route.hop import Earning, Paying, Payment
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.messages import Message, Owes, Send
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.statement import SignedStatement, Statement
from marketplace.domain.money.voucher import Voucher

HOP_FEE: Final = 25_000
CAPACITY: Final = 5_000_000
RESERVE: Final = 60_000
OFFER: Final = blake2b_256(b"offer")
CONSUMERS, PROVIDERS = ("c1", "c2"), ("p1", "p2")
ROUTES: Final = (("c1", "p1"), ("c1", "p2"), ("c2", "p1"))
LIARS: Final = (
    "nobody", "c1 forks", "c1 stops paying", "c1 pays ahead", "c1 pays the wrong lease",
    "c1 takes back", "m withholds", "m hides Paid", "m hides receipts", "m replays", "m mixes up",
    "p1 denies", "p1 replays",
)  # fmt: skip


def signer(name: str) -> Signer:
    """The same key for the same name, in every world."""
    return Signer(blake2b_256(name.encode()))


@dataclass(frozen=True)
class Lease:
    """One routed lease of a world; *terms* stands for the hash of its terms."""

    consumer: str
    provider: str
    bps: int
    tick: int

    @property
    def name(self) -> str:
        return f"lease_{self.consumer}_{self.provider}"

    @property
    def terms(self) -> bytes:
        return blake2b_256(self.name.encode())

    @property
    def vk(self) -> bytes:
        return signer(self.name).verify_key


class Broken(AssertionError):
    """An invariant that does not hold in some durable state."""


@dataclass
class World:
    """One world: books are what each party has written down, queues what is on its way."""

    seed: str
    liar: str
    dice: Random = field(init=False)
    leases: list[Lease] = field(init=False)
    consumers: dict[str, payer.PayerBook] = field(init=False)
    market: router.RouterBook = field(init=False)
    providers: dict[str, payee.PayeeBook] = field(init=False)
    queues: dict[tuple[str, str], deque[Message]] = field(init=False)
    said: dict[tuple[bytes, int], bytes] = field(default_factory=dict[tuple[bytes, int], bytes])
    past: list[tuple[str, str, Message]] = field(default_factory=list[tuple[str, str, Message]])
    refused: dict[str, int] = field(default_factory=dict[str, int])
    calm: bool = False

    def __post_init__(self) -> None:
        self.dice = Random(f"{self.seed} {self.liar}")
        self.leases = [
            Lease(c, p, self.dice.choice((0, 1, 50, 200)), self.dice.choice((1, 7, 1000, 2001)))
            for c, p in ROUTES
        ]
        self.queues = {
            pair: deque() for one in (*CONSUMERS, *PROVIDERS) for pair in ((one, "m"), ("m", one))
        }
        vk = {one: signer(f"hop {one}").verify_key for one in (*CONSUMERS, *PROVIDERS)}
        self.consumers = {c: payer.PayerBook(Paying(vk[c])) for c in CONSUMERS}
        self.providers = {p: payee.PayeeBook(Earning(vk[p], CAPACITY)) for p in PROVIDERS}
        self.market = router.RouterBook(
            OFFER, {vk[c]: Earning(vk[c], CAPACITY) for c in CONSUMERS},
            {vk[p]: Paying(vk[p]) for p in PROVIDERS}, {vk[p]: CAPACITY for p in PROVIDERS},
        )  # fmt: skip
        for one in self.leases:
            self._admit(one)

    @property
    def keys(self) -> dict[bytes, Signer]:
        """The router's, of its hops out."""
        return {signer(f"hop {p}").verify_key: signer(f"hop {p}") for p in PROVIDERS}

    def honest(self, who: str) -> bool:
        """Whether *who* keeps to the protocol in this world."""
        return not self.liar.startswith(who)

    def _admit(self, one: Lease) -> None:
        c, p = one.consumer, one.provider
        vk, adapter = one.vk, signer(f"adapter {p}").verify_key
        hop_in, hop_out = (signer(f"hop {x}").verify_key for x in (c, p))
        self.providers[p] = payee.admit(
            self.providers[p], one.terms, payee.Served(one.name, vk, one.tick, RESERVE)
        )
        carried = router.Carried(one.name, vk, adapter, hop_in, hop_out, one.bps, RESERVE)
        done = router.admit(self.market, one.terms, carried, self.keys)
        self.market = done.state
        self._send("m", done.effects)
        bought = payer.Bought(one.name, vk, adapter, one.bps, one.tick, RESERVE)
        paying = payer.admit(
            self.consumers[c], one.terms, bought, OFFER, HOP_FEE, signer(f"hop {c}")
        )
        self.consumers[c] = paying.state
        self._send(c, paying.effects)

    # what happens

    def run(self, events: int = 150, calm: int = 400) -> None:
        """*events* by chance, then at most *calm* without crashes, for what is on its way."""
        for _ in range(events):
            self.event()
            self.check()
        self.calm = True
        for who in (*CONSUMERS, "m", *PROVIDERS):
            self._reconnect(who)
        for _ in range(calm):
            full = [pair for pair, queue in self.queues.items() if queue]
            if not full:
                break
            self.deliver(self.dice.choice(full))
            self.check()
        self.check_end()

    def event(self) -> None:
        """One thing that chance chose."""
        full = [pair for pair, queue in self.queues.items() if queue]
        turn = self.dice.random()
        if turn < 0.04:
            self._reconnect(self.dice.choice((*CONSUMERS, "m", *PROVIDERS)))
        elif turn < 0.3 or not full:
            one = self.dice.choice(self.leases)
            done = payee.meter(self.providers[one.provider], one.terms)
            self.providers[one.provider] = done.state
            self._send(one.provider, done.effects)
        elif turn < 0.4:
            self._lie()
        else:
            self.deliver(self.dice.choice(full))

    def deliver(self, pair: tuple[str, str]) -> None:
        """The first message of a queue; who gets it may crash before or after writing down."""
        who = pair[1]
        message = self.queues[pair].popleft()
        try:
            outcome, write = self._decide(who, message)
        except Refusal as refusal:
            self.refused[refusal.code] = self.refused.get(refusal.code, 0) + 1
            return
        crash = 1.0 if self.calm else self.dice.random()
        if crash < 0.03:  # before: as if it had never come
            self._reconnect(who)
            return
        write()
        if crash < 0.06:  # after: written down, and not sent
            self._reconnect(who)
        else:
            self._send(who, outcome)

    def _decide(self, who: str, message: Message) -> tuple[tuple[Send, ...], Callable[[], None]]:
        if who == "m":
            done = router.decide(self.market, message, self.keys)
            return done.effects, lambda: setattr(self, "market", done.state)
        if who in self.consumers:
            bought = payer.decide(self.consumers[who], message, signer(f"hop {who}"))
            return bought.effects, lambda: self.consumers.update({who: bought.state})
        served = payee.decide(self.providers[who], message, signer(f"adapter {who}"))
        return served.effects, lambda: self.providers.update({who: served.state})

    def _reconnect(self, who: str) -> None:
        """What was on its way to and from *who* is lost; both ends say again what they said."""
        others = [a for a, b in self.queues if b == who]
        for other in others:
            self.queues[other, who].clear()
            self.queues[who, other].clear()
        for one in (who, *others):
            self._send(one, self._resumed(one), only=who)

    def _resumed(self, who: str) -> tuple[Send, ...]:
        if who == "m":
            return router.resume(self.market)
        if who in self.consumers:
            return payer.resume(self.consumers[who])
        return payee.resume(self.providers[who], signer(f"adapter {who}"))

    def _send(self, who: str, effects: tuple[Send, ...], only: str = "") -> None:
        """*only*: what goes to or comes from that one, whose connection is new."""
        owner = {signer(f"hop {x}").verify_key: x for x in (*CONSUMERS, *PROVIDERS)}
        for one in effects:
            to = owner[one.hop] if who == "m" else "m"
            if only and only not in (who, to):
                continue
            if isinstance(one.message, Payment):
                self._once(who, one.message)
            if not self._kept_back(who, to, one.message):
                self.queues[who, to].append(one.message)
                self.past.append((who, to, one.message))

    def _once(self, who: str, payment: Payment) -> None:
        """V4, V8: whoever is honest signs one statement of each number, and has written it down."""
        statement = payment.signed.statement
        body = self.said.setdefault((statement.session_vk, statement.n), payment.signed.body)
        if self.honest(who) and body != payment.signed.body:
            raise Broken(f"V4: {who} signed two statements of number {statement.n}")
        paying = (
            self.market.hops_out[statement.session_vk] if who == "m" else self.consumers[who].paying
        )
        if paying.last != payment:
            raise Broken(f"V8: {who} sends a payment that it has not written down")

    # who lies

    def _kept_back(self, who: str, to: str, message: Message) -> bool:
        """What the liar does not send, after a third of what it could have sent."""
        hidden: dict[str, tuple[str, tuple[str, ...], type[object]]] = {
            "c1 stops paying": ("c1", ("m",), Payment), "m withholds": ("m", PROVIDERS, Payment),
            "m hides Paid": ("m", CONSUMERS, Paid), "m hides receipts": ("m", CONSUMERS, Owes),
            "p1 denies": ("p1", ("m",), Paid),
        }  # fmt: skip
        if self.liar not in hidden or len(self.past) < 40:
            return False
        one, others, kind = hidden[self.liar]
        return who == one and to in others and isinstance(message, kind)

    def _lie(self) -> None:
        """One lie beside the protocol, where the liar is of that kind."""
        liar = self.liar.split(" ", 1)[0]
        if self.liar.endswith("replays"):
            mine = [row for row in self.past if row[0] == liar]
            if mine:
                who, to, message = self.dice.choice(mine)
                self.queues[who, to].append(message)
        elif self.liar == "m mixes up" and self.past:
            _, _, message = self.dice.choice(self.past)
            self.queues["m", self.dice.choice((*CONSUMERS, *PROVIDERS))].append(message)
        elif self.liar.startswith("c1 "):
            last = self.consumers["c1"].paying.last
            if last is not None and not self.liar.endswith("stops paying"):
                self.queues["c1", "m"].append(self._bent(last))

    def _bent(self, last: Payment) -> Payment:
        """c1's last payment, properly signed, as no honest book would have made it."""
        leaves, before = list(last.leaves), last.signed.statement
        n, previous = before.n + 1, before.hash
        at = self.dice.randrange(1, len(leaves))
        if self.liar == "c1 forks":
            n, previous = before.n, before.previous
        more = -1 if self.liar == "c1 takes back" else self.dice.choice((1, 1000, 30_000))
        leaves[at] = Leaf(leaves[at].terms, max(0, leaves[at].amount + more))
        if self.liar == "c1 pays the wrong lease":
            other = 3 - at if len(leaves) == 3 else at
            leaves[other] = Leaf(leaves[other].terms, max(0, leaves[other].amount - more))
        key = signer("hop c1")
        made = Statement.of(before.session_vk, n, leaves, previous)
        return Payment(
            SignedStatement.sign(made, key), Voucher.sign(key, made.total), tuple(leaves)
        )

    # what must hold

    def check(self) -> None:
        """V1 to V5, V7 and V10 over what is written down, of whoever is honest."""
        for one in self.leases:
            hop_in, hop_out = (signer(f"hop {x}").verify_key for x in (one.consumer, one.provider))
            came = self.market.hops_in[hop_in].amount(one.terms)
            out = self.market.hops_out[hop_out].amount(one.terms)
            if with_fee(out, one.bps) > came or out > self.market.leases[one.terms].owed:
                raise Broken(f"V1: {one.name} has {out} out, {came} in")
            if self.honest(one.provider) and self.unpaid(one) > payee.TICKS_UNPAID * one.tick:
                raise Broken(f"V2: {one.name} has {self.unpaid(one)} unpaid")
            if self.honest(one.consumer) and self.unconfirmed(one) > one.tick:
                raise Broken(f"V3: {one.name} has {self.unconfirmed(one)} unconfirmed")
            signed = self.consumers[one.consumer].paying.amount(one.terms)
            if self.honest(one.consumer) and signed > with_fee(self.served(one).owed, one.bps):
                raise Broken(f"V5: {one.name} pays {signed} for what was not delivered")
        for _, hop in self._hops():
            if hop.last is not None:
                self._whole(hop.last)
        if self.lost() > 0:
            raise Broken(f"V10: the router is {self.lost()} short")

    def _whole(self, last: Payment) -> None:
        total = sum(leaf.amount for leaf in last.leaves)
        if (last.voucher.cumulative, last.signed.statement.total) != (total, total):
            raise Broken("V4: voucher, total and leaves differ")
        if len({leaf.terms for leaf in last.leaves}) != len(last.leaves):
            raise Broken("V7: a lease has two leaves on a hop")

    def _hops(self) -> list[tuple[str, Paying | Earning]]:
        found: list[tuple[str, Paying | Earning]] = []
        found += [(c, book.paying) for c, book in self.consumers.items()]
        found += [(p, book.earning) for p, book in self.providers.items()]
        found += [("m", one) for one in self.market.hops_in.values()]
        return [*found, *(("m", one) for one in self.market.hops_out.values())]

    def check_end(self) -> None:
        """V6: with nobody lying, everything delivered is paid, and the router keeps its fee."""
        if self.liar != "nobody":
            return
        for one in self.leases:
            owed = self.served(one).owed
            signed = self.consumers[one.consumer].paying.amount(one.terms)
            if self.unpaid(one) or signed != owed + fee(owed, one.bps):
                raise Broken(f"V6: {one.name} owes {owed}, {signed} in, {self.unpaid(one)} unpaid")

    # figures

    def served(self, one: Lease) -> payee.Served:
        """The provider's book of a lease."""
        return self.providers[one.provider].leases[one.terms]

    def unpaid(self, one: Lease) -> int:
        """Lovelace that the provider delivered and cannot claim."""
        earned = self.providers[one.provider].earning.amount(one.terms)
        return max(self.served(one).owed - earned, 0)

    def unconfirmed(self, one: Lease) -> int:
        """Lovelace that the consumer signed for and the provider has not confirmed to it."""
        book = self.consumers[one.consumer]
        return max(reach(book.paying.amount(one.terms), one.bps) - book.leases[one.terms].paid, 0)

    def lost(self) -> int:
        """Lovelace that providers can claim of the router beyond what it can claim of consumers."""
        out = sum(book.earning.total for book in self.providers.values())
        return out - sum(one.total for one in self.market.hops_in.values())


def outcome_of(seed: str, liar: str) -> World:
    """A world that ran; :class:`Broken` if something did not hold in it."""
    world = World(seed, liar)
    world.run()
    return world
