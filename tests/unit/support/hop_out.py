"""A router on the adapter's bench: its hop, what it proposes, and payments that it may bend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from adapter.core.events import Alarm, Outcome, Settle
from adapter.core.hop import Hop
from adapter.core.state import Channel
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.route.hop import Paying, Payment
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import Route, SignedRoute, commit
from marketplace.domain.money.route.statement import SignedStatement, Statement
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from marketplace.domain.work.job import JobSpec
from tests.unit.support.adapter import ADAPTER, SESSION, WALL, Bench, core_job, terms_for

ROUTER: Final = Signer(b"\x31" * 32)
HOP: Final = Signer(b"\x32" * 32)
SALT: Final = b"\x33" * 32
ORIGIN: Final = "ab" * 32
TICK: Final = 21
"""Lovelace of a tick of two cores, as ``Terms.tick_owed`` has it."""


def key_of(lease: str) -> Signer:
    """The key that a lease has for itself."""
    return Signer(blake2b_256(lease.encode()))


def said(owner: bytes = ROUTER.key_hash, tx: str = ORIGIN, index: int = 0) -> wire.HopOpened:
    return wire.HopOpened(HOP.verify_key, owner, tx, index)


def payment(
    leaves: Sequence[Leaf], n: int, previous: bytes, key: Signer = HOP, hop: bytes = HOP.verify_key
) -> Payment:
    """Any payment, signed by *key*."""
    made = Statement.of(hop, n, leaves, previous)
    voucher = replace(Voucher.sign(key, made.total), session_vk=hop)
    return Payment(SignedStatement.sign(made, key), voucher, tuple(leaves))


@dataclass
class Over(Bench):
    """The adapter's mind, and a router that pays it over one hop."""

    paying: Paying = field(default_factory=lambda: Paying(HOP.verify_key))
    told: Payment | None = None

    # ---- what the router says --------------------------------------------------------------------

    def opened(self, limit: int | None = None) -> Over:
        """The router says its hop, and the chain shows it."""
        self.hear(said())
        self.sight(HOP, limit=limit)
        return self

    def asked(
        self, lease: str = "lease_1", job: JobSpec | None = None, route: Mapping[str, object] = {},
        signer: Signer = ROUTER, **changes: object,
    ) -> wire.RouteProposed:  # fmt: skip
        """What it proposes, with *changes* to the terms and to the *route*."""
        job, key = job or core_job(), key_of(lease)
        facts = {"consumer_vkh": key.key_hash, **changes}
        terms = terms_for(self.own.offer, job, lease, key, **facts)
        base = Route(
            terms.magic, signer.verify_key, lease, key.verify_key, b"\x0e" * 32,
            commit(HOP.verify_key, SALT), 50, 250, terms.ceiling, WALL + 60_000,
        )  # fmt: skip
        body = replace(base, **route).encode()  # pyright: ignore[reportArgumentType]
        agreed = RoutedTerms(terms, blake2b_256(body)).encode()
        signed = SignedRoute(body, signer.sign(body))
        return wire.RouteProposed(
            lease, job, agreed, signed.body, signed.signature, HOP.verify_key, SALT
        )

    def agreed(self, lease: str = "lease_1", key: Signer | None = None) -> Outcome:
        """The consumer signed, and its router booked it."""
        held = self.lease(lease).signed
        both = replace(held, session_signature=(key or key_of(lease)).sign(held.body))
        return self.hear(wire.LeaseSigned(lease, both, "", {}))

    def begun(self, lease: str = "lease_1", **changes: object) -> Over:
        """A lease up to its running workload."""
        self.hear(self.asked(lease, **changes))  # pyright: ignore[reportArgumentType]
        self.agreed(lease)
        self.leaf(lease, 0)
        self.start(lease)
        return self

    def leaf(self, lease: str, amount: int) -> Outcome:
        """The router signs *amount* for a lease."""
        return self.pays({self.hash_of(lease): amount})

    def pays(self, amounts: Mapping[bytes, int]) -> Outcome:
        """It signs these amounts, and says what changed."""
        self.paying = self.paying.pay(amounts, HOP)
        assert self.paying.last is not None
        outcome = self.hear(frame_of(self.paying.last, self.told))
        self.told = self.paying.last
        return outcome

    def pay(self, cumulative: int | None = None, session: Signer = SESSION) -> Outcome:
        """It signs all that is owed, of every lease."""
        hop = self.hop
        return self.pays({t: one.owed for t, one in hop.leases.items() if hop.leaf(t) is not None})

    # ---- what is seen ----------------------------------------------------------------------------

    @property
    def channel(self) -> Channel:
        """The hop's channel."""
        return self.state.channels[HOP.verify_key]

    @property
    def hop(self) -> Hop:
        """What the adapter has of the hop."""
        found = self.channel.hop
        assert found is not None
        return found

    def hash_of(self, lease: str) -> bytes:
        """Of its terms: what its leaf is under."""
        routed = self.lease(lease).routed
        assert routed is not None
        return routed.terms

    def answer(self) -> wire.Message:
        """What was sent last."""
        return self.sent()[-1]

    def declined(self, asked: wire.RouteProposed) -> str:
        """The code with which it is declined; empty if it is not."""
        self.hear(asked)
        answer = self.answer()
        return answer.code if isinstance(answer, wire.LeaseDeclined) else ""

    def not_taken(self) -> list[tuple[int, str]]:
        """Number and code of the payments that were not taken."""
        return [(m.n, m.code) for m in self.sent() if isinstance(m, wire.HopRefused)]

    def paids(self, lease: str = "lease_1") -> list[int]:
        """What the adapter said that it was paid, each verified."""
        found = [m for m in self.sent() if isinstance(m, wire.PaidSent) and m.lease == lease]
        vk = key_of(lease).verify_key
        for m in found:
            Paid(vk, m.lease, m.amount, m.signature).verify(ADAPTER.verify_key)
        return [m.amount for m in found]

    def receipts_of(self, lease: str) -> list[Receipt]:
        return [r for r in self.receipts() if r.lease == lease]

    def alarmed(self) -> list[str]:
        return [e.code for o in self.outcomes for e in o.effects if isinstance(e, Alarm)]

    def settles(self) -> bool:
        """Whether the hop's end was ordered."""
        vk = HOP.verify_key
        return any(e == Settle(vk) for o in self.outcomes for e in o.effects)

    def signed_terms(self, lease: str = "lease_1") -> SignedTerms:
        """What the adapter signed."""
        return next(
            m.terms for m in self.sent() if isinstance(m, wire.LeaseAccepted) and m.lease == lease
        )
