"""The daemon: one loop of decisions, and the tasks that feed it and act for it.

``handle`` is the only door to the state: it decides, puts a durable outcome on disk, and only then
performs the effects.  A journal that cannot be written ends the process: an adapter that forgets
is worse than one that stands still.  Tasks: the link, the ticker, the clock, the inventory, the
chain's eye, one driver for each lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import structlog

from adapter.core.admission import workload
from adapter.core.decide import decide, recover, wake
from adapter.core.events import (
    Alarm,
    Collected,
    Drain,
    Drive,
    Effect,
    Event,
    Examine,
    Heard,
    LinkDown,
    LinkUp,
    Meet,
    Outcome,
    Passed,
    Send,
    Settle,
    Watch,
)
from adapter.core.state import Channel, Lease, Now, Own, State
from adapter.core.workload import Handle, Runtime, Status, WorkloadGone
from adapter.daemon.direct_ports import DirectPorts
from adapter.daemon.link import Listener
from adapter.daemon.logs import Logs
from adapter.daemon.meshes import Meshes
from adapter.daemon.on_chain import ask
from adapter.daemon.ports import Chain, Market, Parts
from adapter.daemon.reconciler import Reconciler
from adapter.daemon.rounds import PERIOD_MS, Rounds
from adapter.daemon.stores import Stores
from adapter.daemon.transfers import Transfers
from adapter.daemon.workloads import Workloads
from adapter.host.keys import Keys
from adapter.metering.telemetry import Gauges
from marketplace.domain.errors import Fault
from marketplace.domain.protocol import codec, wire
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.volume import DESTROYED
from marketplace.domain.work.workload import WorkloadSpec

INVENTORY_S: Final = 15.0
OUTPUT_MIB: Final = 4096
ALARM_AGAIN_MS: Final = 60_000

_log = structlog.get_logger("adapter")


class Daemon:
    """One adapter.  *make_link* gives the way to the market, *make_offer* the offer as of now."""

    def __init__(
        self,
        parts: Parts,
        own: Own,
        keys: Keys,
        make_link: Callable[[Listener], Market],
        outputs: tuple[Path, ...],
        make_offer: Callable[[], Offer],
    ) -> None:
        self._parts, self._own, self._keys = parts, own, keys
        self._make_offer = make_offer
        self._offer_stir = anyio.Event()
        self._lock = anyio.Lock()
        self._state = State()
        self.link = make_link(self)
        self._meshes = Meshes(self, parts.mesh)
        reach = self._meshes.reach
        self.shipping = Transfers(self.link, outputs, self.runtime, self.lease, self.leases, reach)
        self.gauges = Gauges()
        self._rounds = Rounds(self, parts.meters)
        self._direct = DirectPorts(self)
        grace_ms = own.limits.stop_grace_ms
        self._stores = Stores(self, parts.stores, self.link.send, keys.open_secrets, grace_ms)
        self.alarms: deque[tuple[int, str, str]] = deque(maxlen=50)
        self._drivers: dict[str, Reconciler] = {}
        self._workloads = Workloads(parts.runtimes, self.lease, self.raise_alarm)
        self._logs = Logs(self.link, self.shipping, self.leases, self.lease, self.handle)
        self._group: anyio.abc.TaskGroup | None = None
        self._chain: Chain | None = None

    # ---- what others read -----------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state as it stands."""
        return self._state

    @property
    def own(self) -> Own:
        """The offer and the rules as they stand."""
        return self._own

    def now(self) -> Now:
        """One look at the clocks."""
        clock = self._parts.clock
        return Now(clock.wall_ms(), clock.boot_ns() // 1_000_000, clock.boot_id())

    def lease(self, id_: str) -> Lease | None:
        """The lease as it stands."""
        return self._state.leases.get(id_)

    def leases(self) -> Collection[Lease]:
        """All of them, as they stand."""
        return self._state.leases.values()

    def channel(self, session_vk: bytes) -> Channel | None:
        """The channel as it stands."""
        return self._state.channels.get(session_vk)

    def runtime(self, lease: Lease) -> Runtime:
        """See :meth:`Workloads.runtime`."""
        return self._workloads.runtime(lease, self._own.offer.isolation)

    def adopted(self, id_: str) -> Handle | None:
        """A workload of that lease that was found on the host."""
        return self._workloads.found(id_)

    # ---- the one door ---------------------------------------------------------------------------

    async def handle(self, event: Event) -> None:
        """Decide, persist, act.  Durable when it returns."""
        async with self._lock:
            outcome = decide(self._state, event, self.now(), self._own)
            numbers: list[int] = []
            with anyio.CancelScope(shield=True):
                if outcome.durable:
                    numbers = await anyio.to_thread.run_sync(self._parts.journal.write, outcome)
                self._state = outcome.state
                self._perform_all(outcome, numbers)

    def _perform_all(self, outcome: Outcome, numbers: list[int]) -> None:
        pending = deque(numbers)
        for effect in outcome.effects:
            durable = isinstance(effect, Send) and effect.durable
            self._perform(effect, pending.popleft() if durable else None)

    def _perform(self, effect: Effect, number: int | None = None) -> None:
        match effect:
            case Send(message):
                self.link.send(message, number)
            case Drive(lease):
                self._drive(lease)
            case Watch() | Examine() | Settle():
                ask(self._chain, effect)
            case Meet():
                self._meshes.meet(effect)
            case Alarm(code, message):
                self.raise_alarm(code, message)

    def raise_alarm(self, code: str, message: str) -> None:
        """Tell the owner, in the log and in ``tally adapter status``; the same thing once a minute,
        so that a hostile payer cannot fill either."""
        now = self._parts.clock.wall_ms()
        for at, known, text in reversed(self.alarms):
            if (known, text) == (code, message) and now - at < ALARM_AGAIN_MS:
                return
        _log.warning("alarm", code=code, cause=message)
        self.alarms.append((now, code, message))

    def withdraw_alarms(self, *codes: str) -> None:
        """What they said is over."""
        kept = [one for one in self.alarms if one[1] not in codes]
        self.alarms.clear()
        self.alarms.extend(kept)

    def _drive(self, id_: str) -> None:
        if (driver := self._drivers.get(id_)) is not None:
            driver.wake()
        elif self._group is not None and self.lease(id_) is not None:
            driver = self._drivers[id_] = Reconciler(id_, self, self._own.limits.stop_grace_ms)
            self._group.start_soon(self._run_driver, id_, driver)

    async def _run_driver(self, id_: str, driver: Reconciler) -> None:
        try:
            await driver.run()
        finally:
            self._drivers.pop(id_, None)
            self._workloads.forget(id_)
            self._rounds.forget(id_)

    # ---- life -----------------------------------------------------------------------------------

    async def run(self, chain: Chain, *, started: Callable[[], None] = lambda: None) -> None:
        """Come back to what the journal holds, then serve until cancelled."""
        async with anyio.create_task_group() as group:
            await self.resume(chain, group)
            group.start_soon(chain.run)
            group.start_soon(self.link.run)
            group.start_soon(self._tick)
            group.start_soon(self._logs.run)
            group.start_soon(self._refresh)
            started()

    async def resume(self, chain: Chain, group: anyio.abc.TaskGroup) -> None:
        """Be again what the journal says; drivers run in *group*."""
        self._chain, self._group = chain, group
        journal = self._parts.journal
        state = await anyio.to_thread.run_sync(journal.load)
        self._state = wake(state, self.now())
        for number, payload in await anyio.to_thread.run_sync(journal.outbox):
            self.link.send(codec.from_bytes(payload), number)
        await self.adopt()
        for effect in recover(self._state):
            self._perform(effect)

    def close(self) -> None:
        """Release the journal."""
        self._parts.journal.close()

    async def adopt(self) -> None:
        """Take up every workload that still runs: see :meth:`Workloads.look`."""
        for handle in await self._workloads.look():
            lease = self.lease(handle.lease)
            if lease is not None and lease.runs:
                self._state = self._state.with_lease(replace(lease, handle=handle))
        _log.info("adopted", leases=len(self._state.leases), workloads=len(self._workloads))

    async def drain(self, on: bool) -> None:
        """Take no new leases, or take them again; running ones go on."""
        await self.handle(Drain(on))

    # ---- the link's listener ---------------------------------------------------------------------

    async def connected(self) -> None:
        """The market hears us: say what we offer and what we hold."""
        await self.handle(LinkUp(self.link.can(codec.CLUSTER)))

    async def disconnected(self) -> None:
        """The market does not."""
        await self.handle(LinkDown())

    async def acknowledged(self, numbers: list[int]) -> None:
        """Forget what the market has."""
        await anyio.to_thread.run_sync(self._parts.journal.acknowledged, numbers)

    async def heard(self, message: wire.Message) -> None:
        """Money and lives of leases are decided; bytes are shipped."""
        assert self._group is not None
        match message:
            case wire.BlobPart():
                self.shipping.part(message)
            case wire.BlobWanted():
                self._group.start_soon(self.shipping.give, message)
            case wire.ExecAsked():
                self._group.start_soon(self.shipping.execute, message)
            case wire.StreamOpened() | wire.ShellOpened():
                if (incoming := self.shipping.open(message)) is not None:
                    self._group.start_soon(self.shipping.carry, message, incoming)
            case wire.StreamData():
                self.shipping.stream_data(message)
            case wire.StreamTaken():
                self.shipping.stream_taken(message)
            case wire.ShellSized():
                self._group.start_soon(self.shipping.sized, message)
            case wire.StreamClosed():
                self.shipping.stream_closed(message)
            case wire.RelayLooked(lease) if self.lease(lease) is not None:
                self.gauges.looked[lease] = message
            case wire.MeshRelay() | wire.StoreGiven():
                self._given(message)
            case wire.EndsProposed() | wire.EndDeclined():
                if self._chain is not None:
                    self._chain.heard(message)
            case wire.Rejected(code, text, _):
                self.raise_alarm(code, f"the market refused a message: {text}")
            case _:
                await self.handle(Heard(message))

    def _given(self, leave: wire.MeshRelay | wire.StoreGiven) -> None:
        if isinstance(leave, wire.MeshRelay):
            self._meshes.given(leave.lease, leave.given)
        else:
            self._stores.given(leave.lease, leave.given)

    # ---- the ticker -----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True when no decision is being made and every driver waits."""
        return not self._lock.locked() and all(d.idle for d in self._drivers.values())

    async def step(self) -> None:
        """One second's work: readings, receipts, limits.  Nothing else: a workload that could hold
        this up would be served unpaid."""
        await self.measure_all()
        await self._direct.keep(self._started())
        await self._meshes.keep(self._started())
        await self._stores.keep(self._started())
        await self.handle(Passed())

    async def _tick(self) -> None:
        """Once a second by absolute deadlines."""
        deadline = anyio.current_time()
        while True:
            await self.step()
            deadline = max(deadline + PERIOD_MS / 1000, anyio.current_time())
            await anyio.sleep_until(deadline)

    async def measure_all(self) -> None:
        """Look at every running workload, read its meters, and decide."""
        await self._rounds.measure_all(self._started())

    async def measure(self, lease: str) -> None:
        """Read one lease's meters now, next to a change of phase."""
        await self._rounds.measure(lease)

    async def exited(self, lease: Lease, status: Status) -> None:
        """The workload's end, with its meters' last readings."""
        await self._rounds.exited(lease, status)

    def _started(self) -> anyio.abc.TaskGroup:
        assert self._group is not None, "asked before it resumed"
        return self._group

    # ---- what drivers ask ------------------------------------------------------------------------

    async def spec(self, lease: Lease) -> WorkloadSpec:
        """What to run: files fetched, secrets opened; they live in this value alone."""
        await self._meshes.up(lease)
        await self._stores.up(lease)
        files = await self.shipping.fetch(lease)
        return workload(
            self._own, lease.terms, lease.job, lease.grant,
            secrets=lambda: self._keys.open_secrets(lease.secrets), files=files,
        )  # fmt: skip

    async def archive(self, lease: Lease) -> Collected:
        """Collect outputs; send what is left of the log."""
        if lease.handle is None:
            return Collected(lease.id)
        await self._logs.ship(lease.id)
        wanted = (DESTROYED,) if lease.job.is_volume else lease.job.outputs
        if not wanted:
            return Collected(lease.id)
        try:
            made = await self.runtime(lease).outputs(lease.handle, wanted, OUTPUT_MIB)
        except WorkloadGone as gone:
            return Collected(lease.id, note=gone.message)
        for skipped in made.skipped:
            _log.info("output skipped", lease=lease.id, why=skipped)
        digest = made.digest.removeprefix("sha256:")
        return Collected(lease.id, ",".join(wanted), digest, made.size)

    async def cleanse(self, lease: Lease) -> None:
        """Make its devices fit for the next tenant; what another lease still uses is left alone."""
        others = [x for x in self._state.leases.values() if x.id != lease.id and x.occupies]
        used = {uuid for other in others for uuid in other.devices}
        free = tuple(uuid for uuid in lease.devices if uuid not in used)
        if free:
            await anyio.to_thread.run_sync(self._parts.cleaner.cleanse, free)

    # ---- inventory -------------------------------------------------------------------------------

    def offer_changed(self) -> None:
        """Look at the offer now: something that it is made of is another."""
        self._offer_stir.set()

    async def _refresh(self) -> None:
        """Health, prices and windows change: say so."""
        while True:
            with anyio.move_on_after(INVENTORY_S):
                await self._offer_stir.wait()
            self._offer_stir = anyio.Event()
            if self._workloads.unasked:
                await self.adopt()
            try:
                offer = await anyio.to_thread.run_sync(self._make_offer)
            except Fault as fault:
                self.raise_alarm(fault.code, fault.message)
                continue
            if offer != self._own.offer:
                self._own = replace(self._own, offer=offer)
                if self.link.up:
                    self.link.send(wire.OfferPosted(offer, self._state.draining))
