"""Whatever the market, the chain, the host and the payer say, in whatever order: the mind neither
breaks nor serves unpaid, and its state can always be written down and read again.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from adapter.core.decide import recover, wake
from adapter.core.events import (
    ChannelUnfit,
    Collected,
    Drain,
    Exited,
    Failed,
    LinkDown,
    LinkUp,
    Logged,
    Outcome,
    Passed,
    Preparing,
    Removed,
    Settled,
    Started,
)
from adapter.core.state import Lease, Limits, Own, State
from adapter.core.ticks import overdue
from adapter.core.wish import Wish
from adapter.core.workload import Status, Times
from adapter.journal.journal import Journal
from marketplace.domain.metering.reading import Phase
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import Receipt, SignedReceipt, check_next, check_time
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.workload import ExitReason, WorkloadState
from tests.unit.support.adapter import (
    ADAPTER,
    OTHER_SESSION,
    SESSION,
    WALL,
    Bench,
    core_job,
    gpu_job,
    handle,
    offer,
    terms_for,
)

SESSIONS: Final = (SESSION, OTHER_SESSION)
JOBS: Final = {"lease_1": gpu_job(), "lease_2": core_job(), "lease_3": core_job()}
STEPS: Final = 300
RULES: Final = Limits(keep_ms=20_000, linger_ms=60_000, resume_window_ms=60_000)


class Anything:
    """One adapter, and dice that decide what happens to it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.bench = Bench(own=Own(offer(), ADAPTER, RULES), capacity=100_000)
        self.last: dict[bytes, Receipt] = {}
        # A lease's name is free again once its channel is forgotten.
        self.own: dict[tuple[bytes, str], Receipt] = {}
        self.paid: dict[bytes, int] = {}

    def lease(self) -> str:
        return self.dice.choice(sorted(JOBS))

    def held(self) -> Lease | None:
        """A lease that is there, likelier than one that is not."""
        return self.bench.state.leases.get(self.lease())

    def step(self) -> Outcome | None:
        """One thing happens."""
        self.bench.boot_ms += self.dice.choice([0, 0, 200, 1000, 1000, 3000, 30_000])
        acts = (
            self.propose, self.propose, self.sign, self.sign, self.sight, self.sight, self.begin,
            self.begin, self.measure, self.measure, self.measure, self.measure, self.pay, self.pay,
            self.pay, self.end, self.keep, self.stop, self.host, self.host, self.chain, self.link,
            self.restart,
        )  # fmt: skip
        return self.dice.choice(acts)()

    def propose(self) -> Outcome:
        lease, session = self.lease(), self.dice.choice(SESSIONS)
        terms = terms_for(
            self.bench.own.offer, JOBS[lease], lease, session,
            expires_at_ms=WALL + 10**12, ceiling=self.dice.choice([5_000, 40_000]),
        )  # fmt: skip
        body = terms.encode()
        if self.dice.random() < 0.05:
            body = self.dice.randbytes(40)
        return self.bench.hear(wire.LeaseProposed(lease, JOBS[lease], body))

    def sign(self) -> Outcome | None:
        lease = self.held()
        if lease is None:
            return None
        body = lease.signed.body
        signer = next(x for x in SESSIONS if x.verify_key == lease.channel)
        if self.dice.random() < 0.1:
            signer = self.dice.choice(SESSIONS)
        both = SignedTerms(body, lease.signed.adapter_signature, signer.sign(body))
        tx = self.dice.choice(["", "ab" * 32, "ab" * 32, "cd" * 32])
        return self.bench.hear(wire.LeaseSigned(lease.id, both, tx, {}))

    def sight(self) -> Outcome:
        stage = self.dice.choice([ChannelStage.OPEN] * 8 + list(ChannelStage))
        limit = self.dice.choice([None, None, None, 0, 50_000])
        return self.bench.sight(self.dice.choice(SESSIONS), stage, limit)

    def begin(self) -> Outcome | None:
        lease = self.held()
        if lease is None or lease.wish is not Wish.RUN:
            return None
        if lease.handle is None and self.dice.random() < 0.1:
            return self.bench.do(Failed(lease.id, EndReason.START_FAILED, "X", "no"))
        if self.dice.random() < 0.2:
            return self.bench.do(Preparing(lease.id, starting=True))
        return self.bench.do(Started(lease.id, handle(lease.id, 1)))

    def measure(self) -> Outcome | None:
        lease = self.held()
        if lease is None or not lease.runs:
            return None
        outcome = self.bench.measure(lease.id, tick=self.dice.random() < 0.8)
        self._not_unpaid(lease.id)
        return outcome

    def _not_unpaid(self, id_: str) -> None:
        lease = self.bench.state.leases.get(id_)
        if lease is None or lease.wish is not Wish.RUN:
            return
        channel = self.bench.state.channels[lease.channel]
        assert not overdue(self.bench.state, lease, channel), "served unpaid"

    def pay(self) -> Outcome:
        session = self.dice.choice(SESSIONS)
        channel = self.bench.state.channels.get(session.verify_key)
        owed = channel.owed if channel else 0
        amount = self.dice.choice([owed, owed, owed, owed, max(0, owed - 1500), owed + 1, 10**12])
        signer = session if self.dice.random() < 0.95 else self.dice.choice(SESSIONS)
        voucher = Voucher.sign(signer, amount)
        if signer is not session:
            voucher = replace(voucher, session_vk=session.verify_key)
        return self.bench.hear(wire.VoucherSent(self.lease(), voucher))

    def end(self) -> Outcome | None:
        if self.dice.random() < 0.8:
            return None
        return self.bench.hear(wire.EndSent(End.sign(self.dice.choice(SESSIONS), 0)))

    def keep(self) -> Outcome | None:
        if self.dice.random() < 0.8:
            return None
        order = Keep.sign(self.dice.choice(SESSIONS), self.dice.choice([1, 5_000, 90_000]))
        return self.bench.hear(wire.KeepSent(order))

    def stop(self) -> Outcome | None:
        if self.dice.random() < 0.8:
            return None
        reason = self.dice.choice([*EndReason.__members__, "nonsense"])
        kind = self.dice.choice([wire.StopAsked, wire.LeaseCancelled])
        return self.bench.hear(kind(self.lease(), reason))

    def host(self) -> Outcome | None:
        lease = self.held()
        if lease is None:
            return None
        if lease.exited:
            done = [Collected(lease.id), Collected(lease.id, "out", "0" * 64, 5), Removed(lease.id)]
            return self.bench.do(self.dice.choice(done))
        if lease.handle is None:
            return self.bench.do(Logged(lease.id, 7))
        if self.dice.random() < 0.7:
            return None
        times = Times(1, self.bench.now.wall_ms, self.dice.choice([0, 1, 137]))
        over = Status(WorkloadState.EXITED, times, self.dice.choice([*ExitReason, None]))
        readings = (self.bench.reading(lease.id, Phase.EXITED),)
        return self.bench.do(Exited(lease.id, over, readings if self.dice.random() < 0.8 else ()))

    def chain(self) -> Outcome | None:
        if self.dice.random() < 0.7:
            return None
        vk = self.dice.choice(SESSIONS).verify_key
        return self.bench.do(
            self.dice.choice(
                [
                    ChannelUnfit(vk, "X", "not ours"),
                    Settled(vk, "ee" * 32, None, final=False),
                    Settled(vk, "ee" * 32, 7, final=True),
                    Settled(vk, "ff" * 32, 7, final=True),
                ]
            )
        )

    def link(self) -> Outcome:
        on = self.dice.random() < 0.2
        return self.bench.do(
            self.dice.choice([LinkUp(), LinkDown(), Passed(), Passed(), Drain(on)])
        )

    def restart(self) -> Outcome | None:
        if self.dice.random() < 0.5:
            self.bench.state = wake(self.bench.state, self.bench.now)
            recover(self.bench.state)
        return None

    def check(self, outcome: Outcome) -> None:
        """Chains grow by one verified receipt at a time; what is paid never falls."""
        for signed in outcome.ticks:
            receipt = SignedReceipt(signed.body, signed.signature).verify(ADAPTER.verify_key)
            rate = 10_000_000 if receipt.resource == "core" else 2_000_000_000
            before, lease = self.last.get(receipt.session_vk), (receipt.session_vk, receipt.lease)
            if receipt.seq > 1:
                check_next(receipt, before, self.own.get(lease), rate)
            units = outcome.state.leases[receipt.lease].terms.units_milli
            check_time(receipt, self.own.get(lease), units)
            self.last[receipt.session_vk] = self.own[lease] = receipt
        for lease in outcome.state.leases.values():
            assert lease.owed <= lease.terms.ceiling
            assert lease.state is not LeaseState.ENDED
        for vk, channel in outcome.state.channels.items():
            assert channel.paid >= self.paid.get(vk, 0)
            assert channel.paid <= channel.capacity or not channel.paid
        self.paid = {vk: c.paid for vk, c in outcome.state.channels.items()}


def _same(read: State, state: State) -> None:
    """What the journal holds is what was decided; marks of this boot's seconds aside."""
    assert set(read.leases) == set(state.leases)
    for id_, lease in state.leases.items():
        known = read.leases[id_]
        assert (known.state, known.wish, known.owed) == (lease.state, lease.wish, lease.owed)
    assert read.channels == state.channels
    assert read.past == state.past


def play(seed: int, folder: Path | None = None) -> dict[LeaseState, int]:
    """One story; how often leases were seen in each state."""
    story, seen = Anything(seed), dict.fromkeys(LeaseState, 0)
    journal = Journal(folder / f"{seed}.db") if folder else None
    for _ in range(STEPS):
        outcome = story.step()
        if outcome is None:
            continue
        story.check(outcome)
        for lease in outcome.state.leases.values():
            seen[lease.state] += 1
        if journal is not None and outcome.durable:
            journal.write(outcome)
            _same(journal.load(), outcome.state)
    if journal is not None:
        journal.close()
    return seen


def test_any_order_of_anything(tmp_path: Path) -> None:
    seen = dict.fromkeys(LeaseState, 0)
    for seed in range(60):
        for state, count in play(seed).items():
            seen[state] += count
    alive = (LeaseState.OFFERED, LeaseState.FUNDED, LeaseState.ACTIVE, LeaseState.PAUSED)
    assert all(seen[state] for state in alive), "the dice never got there"
    for seed in range(100, 103):
        play(seed, tmp_path)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1000, 2000), marks=pytest.mark.prove),
        pytest.param(range(2000, 12_000), marks=pytest.mark.nightly),
    ],
    ids=len,
)
def test_any_order_of_anything_at_length(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        play(seed, tmp_path if seed % 50 == 0 else None)
