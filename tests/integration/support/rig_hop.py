"""A market on paper that is a router, too: it pays an adapter of the rig over one hop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.money.receipt import Receipt, check_next, check_time
from marketplace.domain.money.route.hop import Paying
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from tests.integration.support.adapter import host_offer
from tests.integration.support.rig import RATE, UNITS, PaperMarket, Rig
from tests.unit.support.adapter import ADAPTER
from tests.unit.support.hop_out import HOP, Over, key_of, said


@dataclass
class HopMarket(PaperMarket):
    """It signs for what it has a receipt of, and says everything again after a welcome."""

    paying: Paying = field(default_factory=lambda: Paying(HOP.verify_key))
    hashes: dict[str, bytes] = field(default_factory=dict[str, bytes])
    paid: dict[str, int] = field(default_factory=dict[str, int])

    def answers(self, message: wire.Message) -> list[wire.Message]:
        if isinstance(message, wire.LeaseAccepted):
            half, lease = message.terms, message.lease
            both = replace(half, session_signature=key_of(lease).sign(half.body))
            self.signed[lease] = wire.LeaseSigned(lease, both, "", {})
            return [self.signed[lease], *self.pay(lease, 0)]
        if isinstance(message, wire.ReceiptSent) and self.pays:
            return self.pay(message.lease, message.receipt.receipt.lease_owed)
        if isinstance(message, wire.PaidSent):
            assert message.amount <= self.paying.amount(self.hashes[message.lease])
            self.paid[message.lease] = max(self.paid.get(message.lease, 0), message.amount)
        return []

    def pay(self, lease: str, amount: int) -> list[wire.Message]:
        """The payment that has it, with all of its leaves."""
        self.paying = self.paying.pay({self.hashes[lease]: amount}, HOP)
        assert self.paying.last is not None
        return [frame_of(self.paying.last, None)]

    def again(self, held: Collection[str]) -> list[wire.Message]:
        asked = [m for k, m in self.proposals.items() if k not in self.signed and k not in held]
        last = self.paying.last
        paid = [frame_of(last, None)] if last else []
        return [said(), *asked, *self.signed.values(), *paid, *self.ends.values()]

    def verify(self) -> dict[str, Receipt]:
        """Every lease's own chain; its last receipt."""
        chains: dict[str, dict[int, bytes]] = {}
        for m in self.heard:
            if isinstance(m, wire.ReceiptSent):
                body = m.receipt.body
                m.receipt.verify(ADAPTER.verify_key)
                seq = m.receipt.receipt.seq
                assert chains.setdefault(m.lease, {}).setdefault(seq, body) == body, "it forked"
        found: dict[str, Receipt] = {}
        for lease, chain in chains.items():
            assert sorted(chain) == list(range(1, len(chain) + 1)), "a receipt is missing"
            before = None
            for seq in sorted(chain):
                receipt = Receipt.decode(chain[seq])
                check_next(receipt, before, before, RATE)
                check_time(receipt, before, UNITS)
                before = found[lease] = receipt
        return found


class HopRig(Rig):
    """The same host, whose market pays over a hop."""

    @property
    def router(self) -> HopMarket:
        """Its market."""
        assert isinstance(self.market, HopMarket)
        return self.market

    def ask(self, lease: str) -> wire.RouteProposed:
        """What its router proposes; said until it is answered."""
        wall = self.clock.wall_ms() + 600_000
        bench = Over()
        bench.own = replace(bench.own, offer=host_offer())
        asked = bench.asked(lease, route={"expires_at_ms": wall}, expires_at_ms=wall)
        self.router.proposals[lease] = asked
        self.router.hashes[lease] = blake2b_256(asked.terms)
        return asked

    def end(self) -> None:
        """The router ends its hop."""
        total = self.router.paying.total
        self.router.ends[HOP.verify_key] = wire.EndSent(End.sign(HOP, total))
