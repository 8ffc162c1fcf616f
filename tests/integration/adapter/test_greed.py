"""What a greedy tenant asks for never delays the tick: nobody is served unpaid because of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from adapter.core.workload import ExecResult, Handle, LogChunk, RuntimeFault, RuntimeTimeout, Status
from adapter.daemon.ports import Meters
from adapter.daemon.transfers import MOST_COMMANDS, MOST_STREAMS, Transfers
from adapter.metering.meter import Subject
from adapter.runtime.calls import in_thread
from adapter.runtime.workspace import DiskWatch, Usage
from marketplace.domain.metering.reading import Reading
from marketplace.domain.protocol import wire
from marketplace.domain.work.workload import WorkloadSpec
from tests.integration.support.adapter import (
    FakeMarket,
    HostRuntime,
    Ledger,
    LedgerEye,
    World,
    host_offer,
    make_daemon,
    market_socket,
    running,
)
from tests.integration.support.rig import Adapter, Rig

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def workload_of(lease: str) -> WorkloadSpec:
    """A plain process."""
    return WorkloadSpec(
        lease=lease, image="", command=("sleep", "60"), cpu_milli=100, memory_mib=64, disk_mib=64
    )  # fmt: skip


class Chatty(HostRuntime):
    """A host whose log is never read to its end, and whose commands never end."""

    commands = 0

    async def logs(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        await anyio.sleep(0.01)
        return LogChunk(offset, b"y" * limit, offset + limit)

    async def exec(
        self, handle: Handle, command: tuple[str, ...], timeout_ms: int, limit: int
    ) -> ExecResult:
        self.commands += 1
        await anyio.sleep_forever()
        raise AssertionError


async def test_a_flood_of_log_does_not_hold_up_the_tick(tmp_path: Path) -> None:
    world, market = World(), FakeMarket(pays=False)
    async with market_socket(market) as url:
        daemon = make_daemon(world, tmp_path, url, runtime=Chatty(world))
        async with running(daemon, Ledger()):
            await market.wait(lambda: market.of(wire.LeasesHeld), "the first LeasesHeld")
            await market.lease(host_offer())
            await market.wait(lambda: len(market.of(wire.LogChunk)) > 20, "a flood")
            await market.wait(lambda: "PAUSED" in market.stages("lease_1"), "the pause")
            assert 1 <= len(market.receipts()) <= 2  # a late one holds more than a second


class Hung(HostRuntime):
    """A host that does not answer for one workload, once *for_lease* is set."""

    for_lease = ""
    asked = 0

    async def status(self, handle: Handle) -> Status:
        if handle.lease == self.for_lease:
            self.asked += 1
            await anyio.sleep_forever()
        return await super().status(handle)


async def test_a_workload_that_hangs_in_its_runtime_holds_up_no_other(tmp_path: Path) -> None:
    world, market = World(), FakeMarket()
    runtime = Hung(world)

    def receipts(lease: str) -> int:
        return sum(one.lease == lease for one in market.receipts())

    async with market_socket(market) as url:
        daemon = make_daemon(world, tmp_path, url, runtime=runtime)
        async with running(daemon, Ledger()):
            await market.wait(lambda: market.of(wire.LeasesHeld), "the first LeasesHeld")
            await market.lease(host_offer())
            await market.lease(host_offer(), lease="lease_2")
            await market.wait(lambda: receipts("lease_1") and receipts("lease_2"), "receipts")
            runtime.for_lease = "lease_1"
            before = receipts("lease_2")
            await market.wait(lambda: receipts("lease_2") >= before + 8, "eight more receipts")
            assert runtime.asked == 1
            assert "lease_1" in daemon.state.leases, "it is kept"


class Deaf(HostRuntime):
    """A host that does not say at first what runs on it."""

    deaf = True

    async def adopt(self) -> list[Handle]:
        if self.deaf:
            raise RuntimeFault("not now")
        return await super().adopt()


async def test_a_ghost_is_ended_as_soon_as_its_runtime_answers(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    runtime = Deaf(rig.world)
    await runtime.start(workload_of("ghost"))
    daemon = make_daemon(rig.world, tmp_path, "http://127.0.0.1:9", runtime=runtime)
    async with anyio.create_task_group() as group:
        await daemon.resume(LedgerEye(rig.ledger, daemon.handle), group)
        assert set(rig.world.workloads) == {"ghost"}
        assert daemon.alarms
        runtime.deaf = False
        await daemon.adopt()
        assert rig.world.workloads == {}
        group.cancel_scope.cancel()
    daemon.close()


async def test_calls_that_hang_take_no_thread_from_the_journal() -> None:
    let_go = threading.Event()
    try:
        async with anyio.create_task_group() as group:

            async def hang() -> None:
                with pytest.raises(RuntimeTimeout):
                    await in_thread("hang", let_go.wait, 10)

            for _ in range(100):
                group.start_soon(hang)
            await anyio.sleep(0.1)
            with anyio.fail_after(9):
                assert await anyio.to_thread.run_sync(lambda: "written") == "written"
    finally:
        let_go.set()


async def test_one_tenants_commands_and_connections_are_bounded(tmp_path: Path) -> None:
    rig = Rig(tmp_path)

    async def body(adapter: Adapter) -> None:
        for lease in ("lease_1", "lease_2"):
            rig.propose(lease)
            await adapter.ask(lease)
        for _ in range(8):  # a consumer's second lease begins once it has paid for the first
            await adapter.second()
        host, sent = Chatty(rig.world), Sent()
        shipping = Transfers(sent, (), lambda _lease: host, adapter.daemon.lease, lambda: ())
        async with anyio.create_task_group() as group:
            for number in range(MOST_COMMANDS + 3):
                group.start_soon(shipping.execute, wire.ExecAsked("lease_1", f"c{number}", ["x"]))
            await anyio.wait_all_tasks_blocked()
            group.start_soon(shipping.execute, wire.ExecAsked("lease_2", "other", ["x"]))
            await anyio.wait_all_tasks_blocked()
            assert host.commands == MOST_COMMANDS + 1
            assert [m.exit_code for m in sent.messages if isinstance(m, wire.ExecDone)] == [126] * 3
            group.cancel_scope.cancel()
        asked = [
            wire.StreamOpened("lease_1", f"s{number}", 80) for number in range(MOST_STREAMS + 1)
        ]
        asked.append(wire.StreamOpened("lease_2", "s", 80))
        opened = [shipping.open(one) for one in asked]
        assert [number for number, room in enumerate(opened) if room is None] == [MOST_STREAMS]
        for one, room in zip(asked, opened, strict=True):
            if room is not None:
                room.close()
            shipping.stream_closed(wire.StreamClosed(one.lease, one.stream_id, ""))

    await rig.live(body)


async def test_nothing_is_carried_to_where_a_workload_was(tmp_path: Path) -> None:
    """Once it has ended its address may be another tenant's."""
    rig, reached = Rig(tmp_path), 0

    async def another(stream: anyio.abc.SocketStream) -> None:
        nonlocal reached
        reached += 1
        await stream.send(b"another tenant's")
        await stream.aclose()

    async def body(adapter: Adapter) -> None:
        rig.propose("lease_1")
        await adapter.ask("lease_1")
        runs = adapter.daemon.lease("lease_1")
        assert runs is not None and runs.handle is not None and runs.runs
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, another)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            there = replace(runs.handle, ports={80: ("127.0.0.1", port)})
            held = replace(runs, handle=there)
            for lease, said in ((held, ""), (replace(held, exited=True), "no such port")):
                sent = Sent()
                shipping = Transfers(
                    sent, (), lambda _lease: Chatty(rig.world), lambda _, at=lease: at, lambda: ()
                )
                asked = wire.StreamOpened("lease_1", "s", 80)
                incoming = shipping.open(asked)
                assert incoming is not None
                await shipping.carry(asked, incoming)
                assert sent.messages[-1] == wire.StreamClosed("lease_1", "s", said)
            assert reached == 1
            group.cancel_scope.cancel()

    await rig.live(body)


class Sent:
    """A link that keeps what it is given."""

    up = True
    backlog = 0
    crowded = False

    def __init__(self) -> None:
        self.messages: list[wire.Message] = []

    def send(self, message: wire.Message, number: int | None = None) -> None:
        self.messages.append(message)

    def can(self, capability: str) -> bool:
        return False

    async def room(self) -> None:
        return


def test_a_workspace_that_is_slow_to_look_at_is_looked_at_less_often(tmp_path: Path) -> None:
    folder = tmp_path / "workspaces" / "lease"
    folder.mkdir(parents=True)
    watch = DiskWatch(tmp_path)
    first = watch.usage("lease")
    assert first == Usage(0, 0)
    (folder / "file").write_bytes(os.urandom(2 << 20))
    while watch.usage("lease") == first:  # the rest is four times what the look took
        pass
    assert watch.usage("lease").disk_mib >= 2
    watch.forget("lease")
    assert watch.usage("lease").disk_mib >= 2


class Slow:
    """Meters that take their sample at once and need a while to hand it over, the first the
    longest.
    """

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._wait_s = [0.1] * 4
        self.at_a_time = self.most = 0
        self._lock = threading.Lock()

    def poll(self, subjects: Iterable[Subject]) -> dict[str, list[Reading]]:
        with self._lock:
            self.at_a_time += 1
            self.most = max(self.most, self.at_a_time)
            wait_s = self._wait_s.pop() if self._wait_s else 0.0
        taken = self._meters.poll(subjects)
        threading.Event().wait(wait_s)
        with self._lock:
            self.at_a_time -= 1
        return taken

    def relist(self, uuid: str) -> None:
        self._meters.relist(uuid)

    def forget(self, subject: Subject) -> None:
        self._meters.forget(subject)


async def test_readings_are_counted_in_the_order_in_which_they_were_taken(tmp_path: Path) -> None:
    made: list[Slow] = []

    def slowly(meters: Meters) -> Meters:
        made.append(Slow(meters))
        return made[-1]

    rig = Rig(tmp_path, through=slowly)

    async def body(adapter: Adapter) -> None:
        rig.propose("lease_1")
        await adapter.ask("lease_1")
        await adapter.second()
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(adapter.daemon.measure, "lease_1")
                group.start_soon(adapter.daemon.measure_all)
        assert [slow.most for slow in made] == [1]

    await rig.live(body)
