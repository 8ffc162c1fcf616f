"""Whatever a router, the market, the chain and the host say, in whatever order: no lease is served
unpaid or beyond its reserve, nothing is called paid that is not signed and owed, and the journal
holds all of it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from adapter.core.decide import recover, wake
from adapter.core.events import LinkDown, LinkUp, Outcome, Passed, Send, Settled, Started
from adapter.core.state import Limits
from adapter.core.ticks import overdue
from adapter.core.wish import Wish
from adapter.journal.journal import Journal
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from tests.unit.support.adapter import WALL, handle
from tests.unit.support.hop_out import HOP, Over, payment, said

NAMES: Final = ("lease_1", "lease_2", "lease_3")
STEPS: Final = 200
RULES: Final = Limits(keep_ms=20_000, linger_ms=60_000, resume_window_ms=60_000)
FAR: Final = WALL + 10**12


class Anything:
    """One adapter over one hop, and dice that decide what happens to it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        bench = Over(capacity=60_000)
        bench.own = replace(bench.own, limits=RULES)
        self.bench = bench
        self.frames: list[wire.HopPaid] = []
        self.paid = 0
        self.seen: set[str] = set()

    def step(self) -> Outcome | None:
        self.bench.boot_ms += self.dice.choice([0, 0, 200, 1000, 1000, 3000, 30_000])
        acts = (
            self.open, self.sight, self.sight, self.ask, self.ask, self.agree, self.agree,
            self.pay, self.pay, self.pay, self.pay, self.bend, self.begin, self.begin, self.measure,
            self.measure, self.measure, self.measure, self.end, self.host, self.link, self.restart,
        )  # fmt: skip
        return self.dice.choice(acts)()

    def open(self) -> Outcome:
        return self.bench.hear(said(tx=self.dice.choice(["ab" * 32] * 9 + ["cd" * 32])))

    def sight(self) -> Outcome:
        stage = self.dice.choice([ChannelStage.OPEN] * 30 + list(ChannelStage))
        return self.bench.sight(HOP, stage, self.dice.choice([None, None, None, 0, 30_000]))

    def ask(self) -> Outcome:
        name, ceiling = self.dice.choice(NAMES), self.dice.choice([5_000, 40_000])
        asked = self.bench.asked(
            name, route={"expires_at_ms": FAR}, expires_at_ms=FAR, ceiling=ceiling
        )
        return self.bench.hear(asked)

    def agree(self) -> Outcome | None:
        name = self.dice.choice(NAMES)
        return self.bench.agreed(name) if name in self.bench.state.leases else None

    def pay(self) -> Outcome | None:
        """What an honest router says, with what it owes or a little more or less."""
        channel = self.bench.state.channels.get(HOP.verify_key)
        if channel is None or channel.hop is None or not channel.hop.leases:
            return None
        more = self.dice.choice([0, 0, 0, -7, 15])
        amounts = {t: max(0, one.owed + more) for t, one in channel.hop.leases.items()}
        some = {t: n for t, n in amounts.items() if self.dice.random() < 0.8}
        before = self.bench.told
        outcome = self.bench.pays(some) if some else None
        if self.bench.paying.last is not None:
            self.frames.append(frame_of(self.bench.paying.last, before))
            if self.dice.random() < 0.5:  # what was missed is said whole
                return self.bench.hear(frame_of(self.bench.paying.last, None))
        return outcome

    def bend(self) -> Outcome | None:
        """A replay, a leaf of nobody, one that shrinks, or now and then a fork."""
        last = self.bench.paying.last
        if self.frames and self.dice.random() < 0.5:
            return self.bench.hear(self.dice.choice(self.frames))
        if last is None:
            return None
        now = last.signed.statement
        leaves = [Leaf(leaf.terms, max(0, leaf.amount - 5)) for leaf in last.leaves]
        foreign = [*last.leaves, Leaf(b"\x0b" * 32, 9)]
        bad = self.dice.choice([leaves, foreign])
        n = now.n + (0 if self.dice.random() < 0.02 else 1)
        return self.bench.hear(frame_of(payment(bad, n, now.hash), None))

    def begin(self) -> Outcome | None:
        lease = self.bench.state.leases.get(self.dice.choice(NAMES))
        if lease is None or lease.wish is not Wish.RUN or lease.handle is not None:
            return None
        return self.bench.do(Started(lease.id, handle(lease.id, 1)))

    def measure(self) -> Outcome | None:
        name = self.dice.choice(NAMES)
        lease = self.bench.state.leases.get(name)
        if lease is None or not lease.runs:
            return None
        outcome = self.bench.measure(name, tick=self.dice.random() < 0.8)
        after = outcome.state.leases.get(name)
        if after is not None and after.wish is Wish.RUN:
            channel = outcome.state.channels[HOP.verify_key]
            assert not overdue(outcome.state, after, channel), "served unpaid"
            self.seen.add("served")
        return outcome

    def end(self) -> Outcome | None:
        turn = self.dice.random()
        if turn < 0.05:
            return self.bench.hear(wire.EndSent(End.sign(HOP, 0)))
        if turn < 0.1:
            return self.bench.do(Settled(HOP.verify_key, "ee" * 32, None, final=turn < 0.07))
        if turn < 0.3:
            return self.bench.hear(wire.StopAsked(self.dice.choice(NAMES), "enough"))
        return None

    def host(self) -> Outcome | None:
        name = self.dice.choice(NAMES)
        lease = self.bench.state.leases.get(name)
        if lease is None or lease.handle is None:
            return None
        if lease.exited:
            self.bench.clear(name)
            return self.bench.outcomes[-1]
        return self.bench.exit(name) if self.dice.random() < 0.2 else None

    def link(self) -> Outcome:
        return self.bench.do(self.dice.choice([LinkUp(), LinkDown(), Passed(), Passed()]))

    def restart(self) -> Outcome | None:
        if self.dice.random() < 0.5:
            self.bench.state = wake(self.bench.state, self.bench.now)
            recover(self.bench.state)
        return None

    def check(self, outcome: Outcome) -> None:
        """After every decision."""
        channel = outcome.state.channels.get(HOP.verify_key)
        if channel is None or channel.hop is None:
            self.paid = 0
            return
        assert self.paid <= channel.paid <= max(channel.capacity, channel.paid and 60_000)
        self.paid = channel.paid
        assert channel.due <= channel.paid
        by_name = {one.lease: (t, one) for t, one in channel.hop.leases.items()}
        for lease in outcome.state.leases.values():
            assert lease.routed is not None and lease.owed <= lease.routed.reserve
            assert channel.hop.leases[lease.routed.terms].owed == lease.owed
        for one in outcome.effects:
            if isinstance(one, Send) and isinstance(one.message, wire.PaidSent):
                terms, served = by_name[one.message.lease]
                assert one.message.amount == served.paid <= served.owed
                assert one.message.amount <= (channel.hop.leaf(terms) or 0)
                self.seen.add("paid")


def play(seed: int, folder: Path | None = None) -> set[str]:
    story = Anything(seed)
    journal = Journal(folder / f"{seed}.db") if folder else None
    for _ in range(STEPS):
        outcome = story.step()
        if outcome is None:
            continue
        story.check(outcome)
        if journal is not None:
            fresh = [one for one in story.bench.outcomes if one.durable]
            story.bench.outcomes.clear()
            for one in fresh:
                journal.write(one)
            if fresh:
                read = journal.load()
                assert read.channels == fresh[-1].state.channels
                assert read.past == fresh[-1].state.past
    if journal is not None:
        journal.close()
    return story.seen


def test_any_order_of_anything_over_a_hop(tmp_path: Path) -> None:
    seen: set[str] = set()
    for seed in range(40):
        seen |= play(seed)
    assert seen == {"served", "paid"}, "the dice never got there"
    for seed in range(100, 103):
        play(seed, tmp_path)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1000, 1500), marks=pytest.mark.prove),
        pytest.param(range(2000, 8000), marks=pytest.mark.nightly),
    ],
    ids=len,
)
def test_any_order_of_anything_over_a_hop_at_length(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        play(seed, tmp_path if seed % 50 == 0 else None)
