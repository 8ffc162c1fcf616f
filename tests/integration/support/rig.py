"""A whole adapter in virtual time, that can be killed before or after any write of its journal.

The host (workloads, clocks) and the market outlive every adapter.  A kill is an exception from the
journal, before or after the commit, in whichever task writes; nothing of the adapter runs after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel

from adapter.core.decide import recover
from adapter.core.events import Heard, LinkUp, Outcome
from adapter.core.lifecycle import CORES
from adapter.core.state import Limits, Own
from adapter.daemon.daemon import Daemon
from adapter.daemon.ports import Meters, Parts
from adapter.journal.journal import Journal, StoredTx
from adapter.metering.meter import Metering
from adapter.simulate.host import SimClock
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Receipt, check_next, check_time
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.workload import ExitReason, WorkloadState
from tests.integration.support.adapter import (
    HostGroups,
    HostInventory,
    HostRuntime,
    Ledger,
    LedgerEye,
    NoCleaner,
    World,
    host_offer,
    keys,
)
from tests.unit.support.adapter import ADAPTER, SESSION, core_job, terms_for

__all__ = ["CORES", "Killed", "Rig", "recover"]
RATE, UNITS = 10_000_000, 2000  # micro-lovelace a core-second; two cores


class Killed(BaseException):
    """kill -9, as far as a process can play it to itself."""


class MortalJournal(Journal):
    """Dies before or after its *at*-th write."""

    def __init__(self, path: Path, at: int | None = None, after: bool = False) -> None:
        super().__init__(path)
        self.at = at
        self.after = after
        self.writes = 0
        self.dead = False

    def _begin(self) -> int:
        """The number of this write; dies if it is the one to die before."""
        if self.dead:
            raise Killed
        self.writes += 1
        number = self.writes
        if number == self.at and not self.after:
            self.dead = True
            raise Killed
        return number

    def _end(self, number: int) -> None:
        """Dies if this write is the one to die after."""
        if number == self.at and self.after:
            self.dead = True
            raise Killed

    def write(self, outcome: Outcome) -> list[int]:
        number = self._begin()
        numbers = super().write(outcome)
        self._end(number)
        return numbers

    def acknowledged(self, numbers: Iterable[int]) -> None:
        number = self._begin()
        super().acknowledged(numbers)
        self._end(number)

    def put_transaction(self, tx: StoredTx) -> None:
        number = self._begin()
        super().put_transaction(tx)
        self._end(number)


@dataclass
class PaperMarket:
    """A market without a socket: it keeps everything, and says again what a new adapter may have
    missed, as the real one does after LeasesHeld."""

    pays: bool = True
    heard: list[wire.Message] = field(default_factory=list[wire.Message])
    owed: dict[bytes, int] = field(default_factory=dict[bytes, int])
    proposals: dict[str, wire.Message] = field(default_factory=dict[str, wire.Message])
    signed: dict[str, wire.LeaseSigned] = field(default_factory=dict[str, wire.LeaseSigned])
    ends: dict[bytes, wire.EndSent] = field(default_factory=dict[bytes, wire.EndSent])
    orders: dict[str, wire.OrderSent] = field(default_factory=dict[str, wire.OrderSent])
    session: Signer = SESSION

    def stages(self, lease: str) -> list[str]:
        """Progress of a lease without repetitions (the outbox may say a thing twice)."""
        found: list[str] = []
        for m in self.heard:
            if isinstance(m, wire.LeaseProgress) and m.lease == lease and m.stage not in found:
                found.append(m.stage)
        return found

    def receipts(self) -> list[Receipt]:
        """The channel's chain; two different receipts of one number fail."""
        chain: dict[int, bytes] = {}
        for m in self.heard:
            if isinstance(m, wire.ReceiptSent):
                body = m.receipt.body
                m.receipt.verify(ADAPTER.verify_key)
                assert chain.setdefault(m.receipt.receipt.seq, body) == body, "the chain forked"
        assert sorted(chain) == list(range(1, len(chain) + 1)), "a receipt is missing"
        return [Receipt.decode(chain[seq]) for seq in sorted(chain)]

    def verify(self) -> dict[str, Receipt]:
        """Every receipt follows; the last of each lease."""
        before: Receipt | None = None
        own: dict[str, Receipt] = {}
        for receipt in self.receipts():
            check_next(receipt, before, own.get(receipt.lease), RATE)
            check_time(receipt, own.get(receipt.lease), UNITS)
            before = own[receipt.lease] = receipt
        return own

    def answers(self, message: wire.Message) -> list[wire.Message]:
        """What it says to a message of the adapter's."""
        if isinstance(message, wire.ReceiptSent):
            receipt = message.receipt.receipt
            self.owed[receipt.session_vk] = receipt.channel_owed
            return [self.voucher(message.lease, receipt.channel_owed)] if self.pays else []
        if isinstance(message, wire.LeaseAccepted):
            half = message.terms
            both = SignedTerms(half.body, half.adapter_signature, self.session.sign(half.body))
            self.signed[message.lease] = wire.LeaseSigned(message.lease, both, "ab" * 32, {})
            return [self.signed[message.lease]]
        return []

    def again(self, held: Collection[str]) -> list[wire.Message]:
        """What it says after a welcome to an adapter that holds these leases."""
        said: list[wire.Message] = []
        for lease, proposal in self.proposals.items():
            if lease not in self.signed and lease not in held:
                said.append(proposal)
        said += self.signed.values()
        said += self.orders.values()
        for vk, total in self.owed.items():
            assert vk == self.session.verify_key
            if self.pays:
                said.append(self.voucher("lease_1", total))
        return [*said, *self.ends.values()]

    def voucher(self, lease: str, cumulative: int) -> wire.VoucherSent:
        return wire.VoucherSent(lease, Voucher.sign(self.session, cumulative))


class PaperLink:
    """The adapter's side of it; what is sent arrives, what arrived is acknowledged at once."""

    url = "paper"
    up = True
    backlog = 0
    crowded = False

    def __init__(self, market: PaperMarket, daemon: Callable[[], Daemon]) -> None:
        self.market = market
        self.daemon = daemon
        self.inbox: list[wire.Message] = []
        self.done: list[int] = []

    def send(self, message: wire.Message, number: int | None = None) -> None:
        self.market.heard.append(message)
        if number is not None:
            self.done.append(number)
        self.inbox += self.market.answers(message)

    def voucher(self, lease: str, cumulative: int) -> wire.VoucherSent:
        return self.market.voucher(lease, cumulative)

    async def deliver(self) -> bool:
        """Hand over what waits; False when nothing did."""
        some = bool(self.inbox or self.done)
        while self.inbox:
            await self.daemon().heard(self.inbox.pop(0))
        if self.done:
            numbers, self.done = self.done, []
            await self.daemon().acknowledged(numbers)
        return some

    def can(self, capability: str) -> bool:
        return False

    async def room(self) -> None:
        return

    async def run(self) -> None:
        return


@dataclass
class Rig:
    """One host, one market, any number of adapters one after the other."""

    folder: Path
    clock: SimClock = field(default_factory=SimClock)
    market: PaperMarket = field(default_factory=PaperMarket)
    ledger: Ledger = field(default_factory=Ledger)
    limits: Limits = field(default_factory=Limits)
    kills: int = 0
    through: Callable[[Meters], Meters] = lambda meters: meters
    """What stands between the daemon and its meters."""

    def __post_init__(self) -> None:
        self.world = World(self.clock)
        self.ran_ms: dict[str, int] = {}

    async def live(
        self, body: Callable[[Adapter], Awaitable[None]], at: int | None = None, after: bool = False
    ) -> int:
        """An adapter's life through *body*; a kill ends it quietly, any other failure is the
        test's. How often the journal wrote."""
        journal = MortalJournal(self.folder / "journal.db", at, after)
        try:
            async with anyio.create_task_group() as group:
                made = Adapter(self, journal, group)
                await made.resume()
                await body(made)
                journal.dead = True
                group.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            others = failures.split(Killed)[1]
            if others is not None:
                raise others from None
            self.kills += 1
        finally:
            journal.close()
        return journal.writes

    def pass_ms(self, ms: int) -> None:
        """Time goes by on the host, whether or not an adapter watches."""
        self.clock.advance(ms)
        for lease, work in self.world.workloads.items():
            if work.state is WorkloadState.RUNNING:
                self.ran_ms[lease] = self.ran_ms.get(lease, 0) + ms

    def propose(self, lease: str, job: JobSpec | None = None, **changes: object) -> None:
        """The market wants a lease; it says so until it is answered."""
        job = job or core_job()
        ceiling = owed(unit_ms(job.policy.max_duration_ms, 2000), RATE)
        facts = {"ceiling": ceiling, "expires_at_ms": self.clock.wall_ms() + 600_000, **changes}
        terms = terms_for(host_offer(), job, lease, self.market.session, **facts)
        self.market.proposals[lease] = wire.LeaseProposed(lease, job, terms.encode())

    def end(self) -> None:
        """The consumer ends the channel."""
        vk = self.market.session.verify_key
        total = self.market.owed.get(vk, 0)
        self.market.ends[vk] = wire.EndSent(End.sign(self.market.session, total))

    def finish(self, lease: str) -> None:
        """The workload exits by itself."""
        if lease in self.world.workloads:
            self.world.end(lease, 0, ExitReason.COMPLETED)


class Adapter:
    """One adapter in the rig."""

    def __init__(self, rig: Rig, journal: MortalJournal, group: anyio.abc.TaskGroup) -> None:
        self.rig = rig
        self.journal = journal
        self.group = group
        runtime = HostRuntime(rig.world)
        parts = Parts(
            journal=journal,
            clock=rig.clock,
            meters=rig.through(Metering(rig.clock, None, HostGroups(rig.world))),  # pyright: ignore[reportArgumentType]
            inventory=HostInventory(),
            cleaner=NoCleaner(),
            runtimes={"process": runtime, "docker": runtime},
        )
        self.link = PaperLink(rig.market, lambda: self.daemon)
        self.daemon = Daemon(
            parts, Own(host_offer(), ADAPTER, rig.limits), keys(), lambda _l: self.link, (),
            host_offer,
        )  # fmt: skip
        self.eye = LedgerEye(rig.ledger, self.daemon.handle)

    async def resume(self) -> None:
        """Come up, say hello, hear what was missed."""
        await self.daemon.resume(self.eye, self.group)
        await self.daemon.handle(LinkUp(orders=True))
        self.link.inbox += self.rig.market.again(self.daemon.state.leases)
        await self.settle()

    async def settle(self) -> None:
        """Let every task and every message come to rest."""
        quiet = 0
        with anyio.fail_after(30):
            while quiet < 3:
                busy = await self.link.deliver()
                if self.eye.wanted or self.eye.finishing:
                    await self.eye.look()
                await anyio.lowlevel.checkpoint()
                busy = busy or not self.daemon.idle or bool(self.link.inbox)
                quiet = 0 if busy else quiet + 1

    async def second(self, ms: int = 1000) -> None:
        """A second passes, and the adapter does a second's work."""
        self.rig.pass_ms(ms)
        await self.daemon.step()
        await self.settle()

    async def hear(self, message: wire.Message) -> None:
        """The market says something."""
        await self.daemon.handle(Heard(message))
        await self.settle()

    async def ask(self, lease: str) -> None:
        """Deliver a proposal that was not answered yet."""
        await self.hear(self.rig.market.proposals[lease])
