"""Bytes in and out of a lease: input files, logs, outputs, commands and the ports of a service.

Everything is bounded: a log is sent only as fast as the market takes it and only from where it left
off, a blob in parts, a command's output up to a limit, a connection as fast as its other end reads
(``flow``). Logs, outputs and connections wait while the line is crowded: receipts go the same way.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.abc
import anyio.to_thread
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from adapter.core.events import Event, Logged
from adapter.core.state import Lease
from adapter.core.workload import Runtime, RuntimeFault, Terminal, WorkloadGone
from adapter.daemon import moves
from adapter.daemon.reaching import Reach, reach
from marketplace.domain.errors import Fault, Refusal
from marketplace.domain.protocol import codec, flow, wire
from marketplace.domain.work.parts import FileIn

PART: Final = 256 * 1024
LOG_PART: Final = 64 * 1024
FETCH_S: Final = 120.0
EXEC_MS: Final = 60_000
EXEC_OUTPUT: Final = 256 * 1024
MOST_COMMANDS: Final = 4  # of one lease at a time: each holds a thread for up to a minute
MOST_STREAMS: Final = 256  # of one lease at a time
MOST_SHELLS: Final = 8  # of one lease at a time: each is a process of its
STREAM_MOST: Final = 2 * flow.WINDOW  # a market without windows may be ahead of a workload by that
INPUT_MOST: Final = 512 * 1024 * 1024

Incoming = MemoryObjectReceiveStream[bytes]

_log = structlog.get_logger("adapter.transfers")


class FileMissing(Refusal):
    """An input file that the market cannot give, or that is not what its hash says."""

    code = "FILE_MISSING"
    remedy = "upload the file again, and post the job anew"


class FetchFault(Fault):
    """The market did not send a file in time."""

    code = "FETCH_FAULT"
    remedy = "check the connection to the market"


class Sender(Protocol):
    """The link, as far as shipping needs it."""

    @property
    def up(self) -> bool:
        """True while the market hears us."""
        ...

    @property
    def crowded(self) -> bool:
        """Whether pages, logs and files are to wait."""
        ...

    def send(self, message: wire.Message, number: int | None = None) -> None:
        """Now, or after the next welcome."""
        ...

    def can(self, capability: str) -> bool:
        """Whether the market that last welcomed us has it."""
        ...

    async def room(self) -> None:
        """Wait until the line is not crowded."""
        ...


class Transfers:
    """One per daemon."""

    def __init__(
        self,
        link: Sender,
        outputs: tuple[Path, ...],
        runtime: Callable[[Lease], Runtime],
        lease: Callable[[str], Lease | None],
        leases: Callable[[], Iterable[Lease]],
        reach: Reach = reach,
    ) -> None:
        self._link, self._reach = link, reach
        self._folders = outputs
        self._runtime = runtime
        self._lease = lease
        self._leases = leases
        self._parts: dict[tuple[str, str], dict[int, wire.BlobPart]] = {}
        self._arrived = anyio.Event()
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._commands: dict[str, int] = {}

    # ---- files in -------------------------------------------------------------------------------

    async def fetch(self, lease: Lease) -> dict[str, bytes]:
        """The job's input files by destination; each is checked against its hash."""
        files: dict[str, bytes] = {}
        if sum(file.size for file in lease.job.files) > INPUT_MOST:
            raise FileMissing(f"input files are larger than {INPUT_MOST} bytes together")
        for file in lease.job.files:
            files[file.dst] = await self._fetch(lease.id, file)
        return files

    async def _fetch(self, lease: str, file: FileIn) -> bytes:
        got, key = bytearray(), (lease, file.sha256)
        waiting = self._parts.setdefault(key, {})
        try:
            with anyio.fail_after(FETCH_S + file.size / PART):
                while len(got) < file.size:
                    self._link.send(wire.BlobWanted(lease, file.sha256, len(got), PART))
                    while len(got) not in waiting:
                        await self._arrived.wait()
                    part = waiting.pop(len(got))
                    if not part.data:
                        break
                    got += part.data
        except TimeoutError as error:
            raise FetchFault(f"{file.dst}: the market did not send it in time") from error
        finally:
            self._parts.pop(key, None)
        if len(got) != file.size or hashlib.sha256(got).hexdigest() != file.sha256:
            raise FileMissing(f"{file.dst}: what came is not what the job names")
        return bytes(got)

    def part(self, message: wire.BlobPart) -> None:
        """The market sent a part that :meth:`fetch` waits for; others are dropped."""
        waiting = self._parts.get((message.lease, message.sha256))
        if waiting is not None:
            waiting[message.offset] = message
            self._arrived.set()
            self._arrived = anyio.Event()

    # ---- outputs --------------------------------------------------------------------------------

    async def give(self, message: wire.BlobWanted) -> None:
        """Send the part of an output archive that the market asks for."""
        name = message.sha256
        total, data = 0, b""
        if len(name) == 64 and all(c in "0123456789abcdef" for c in name):
            total, data = await anyio.to_thread.run_sync(
                _read_part, self._folders, name, message.offset, min(max(message.length, 0), PART)
            )
        await self._link.room()
        self._link.send(wire.BlobPart(message.lease, name, message.offset, total, data))

    # ---- logs -----------------------------------------------------------------------------------

    async def pump(self, lease: Lease, offset: int) -> tuple[int, bool]:
        """Send what the workload wrote since *offset*; the offset to go on from, and whether that
        was all.
        """
        if lease.handle is None:
            return offset, True
        while self._link.up and not self._link.crowded:
            try:
                chunk = await self._runtime(lease).logs(lease.handle, offset, LOG_PART)
            except RuntimeFault:
                break  # the log is kept by the runtime: it is read at the next turn
            if not chunk.data:
                return chunk.next, True
            self._link.send(wire.LogChunk(lease.id, chunk.offset, "stdout", chunk.data))
            offset = chunk.next
        return offset, False

    # ---- commands -------------------------------------------------------------------------------

    async def execute(self, message: wire.ExecAsked) -> None:
        """Run a command inside the workload and report."""
        lease, code = self._lease(message.lease), 126
        if lease is None or lease.handle is None or not lease.runs:
            output = b"the workload does not run"
        elif self._commands.get(lease.id, 0) >= MOST_COMMANDS:
            output = f"{MOST_COMMANDS} commands run already".encode()
        else:
            self._commands[lease.id] = self._commands.get(lease.id, 0) + 1
            try:
                done = await self._runtime(lease).exec(
                    lease.handle, tuple(message.command), EXEC_MS, EXEC_OUTPUT
                )
                code, output = done.exit_code, done.output
            except (Fault, Refusal) as error:
                output = error.line().encode()
            finally:
                self._commands[lease.id] -= 1
                if not self._commands[lease.id]:
                    del self._commands[lease.id]
        self._link.send(wire.ExecDone(message.lease, message.call, code, output))

    # ---- connections: to ports, and to terminals -------------------------------------------------

    def open(self, message: wire.StreamOpened | wire.ShellOpened) -> Incoming | None:
        """Room for what comes before the workload has answered; None if there is none."""
        key = (message.lease, message.stream_id)
        most = MOST_SHELLS if isinstance(message, wire.ShellOpened) else MOST_STREAMS
        own = [one for (lease, _), one in self._streams.items() if lease == message.lease]
        at_terminals = sum(one.terminal for one in own)
        held = at_terminals if isinstance(message, wire.ShellOpened) else len(own) - at_terminals
        if held >= most or key in self._streams:
            self._link.send(wire.StreamClosed(*key, "too many connections"))
            return None
        # Unbounded here: a market of this version keeps to the window, another is cut off at it.
        inward, incoming = anyio.create_memory_object_stream[bytes](math.inf)
        self._streams[key] = _Stream(inward, isinstance(message, wire.ShellOpened))
        return incoming

    async def carry(
        self, message: wire.StreamOpened | wire.ShellOpened, incoming: Incoming
    ) -> None:
        """Connect to the workload and carry both ways until either side closes."""
        key, error = (message.lease, message.stream_id), ""
        stream = self._streams.get(key)
        try:
            end = await self._end_of(message) if stream is not None else None
            if end is None or stream is None:
                error = "no such port"
            else:
                try:
                    await self._both_ways(key, stream, end, incoming)
                finally:
                    await end.end()
        except (OSError, TimeoutError) as failed:
            error = str(failed)[:200] or "no answer"
        except (Fault, Refusal) as failed:
            error = failed.message[:200]
        finally:
            self._let_go(key)
            incoming.close()
        self._link.send(wire.StreamClosed(*key, error))

    async def _end_of(self, message: wire.StreamOpened | wire.ShellOpened) -> _End | None:
        """Its end in the workload; None if that has no such port."""
        lease = self._lease(message.lease)
        runs = lease if lease and lease.handle and lease.runs else None
        if isinstance(message, wire.ShellOpened):
            if runs is None or runs.handle is None:
                raise WorkloadGone("the workload does not run")
            stream = self._streams[message.lease, message.stream_id]
            if runs.job.is_volume:
                return await moves.begin(self._runtime(runs), runs, self._leases, message.command)
            made = await self._runtime(runs).terminal(
                runs.handle, tuple(message.command), message.rows, message.columns
            )
            stream.screen = made
            return made
        # An address that was the workload's is somebody else's once it is gone.
        place = runs.handle.ports.get(message.port) if runs and runs.handle else None
        if runs is None or place is None:
            return None
        with anyio.fail_after(10):
            return _Connection(await self._reach(runs, place))

    async def _both_ways(
        self, key: tuple[str, str], stream: _Stream, end: _End, incoming: Incoming
    ) -> None:
        async with anyio.create_task_group() as group:

            async def inward() -> None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async for data in incoming:
                        await end.write(data)
                        total = stream.receiving.passed(data)
                        if total is not None and self._link.can(codec.FLOW):
                            self._link.send(wire.StreamTaken(*key, total))
                group.cancel_scope.cancel()

            group.start_soon(inward)
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # an end, too
                while data := await end.read():
                    if self._link.can(codec.FLOW):
                        await stream.room()
                    await self._link.room()
                    stream.sending.gave(data)
                    self._link.send(wire.StreamData(*key, data))
            group.cancel_scope.cancel()

    async def sized(self, message: wire.ShellSized) -> None:
        """Whoever sits at a terminal has a window of another size."""
        stream = self._streams.get((message.lease, message.stream_id))
        if stream is not None and stream.screen is not None:
            await stream.screen.resize(message.rows, message.columns)

    def stream_data(self, message: wire.StreamData) -> None:
        """Bytes for the workload; a market that sends more than may wait loses the connection."""
        key = (message.lease, message.stream_id)
        stream = self._streams.get(key)
        if stream is None:
            return
        most = flow.WINDOW if self._link.can(codec.FLOW) else STREAM_MOST
        if stream.came - stream.receiving.taken >= most:
            self.stream_closed(wire.StreamClosed(*key, "too slow"))
            return
        stream.came += flow.cost(message.data)
        try:
            stream.inward.send_nowait(message.data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._let_go(key)

    def stream_taken(self, message: wire.StreamTaken) -> None:
        """The visitor has it: more may be sent."""
        stream = self._streams.get((message.lease, message.stream_id))
        if stream is not None:
            stream.sending.heard(message.taken)
            stream.more.set()

    def stream_closed(self, message: wire.StreamClosed) -> None:
        """The other side hung up."""
        self._let_go((message.lease, message.stream_id))

    def _let_go(self, key: tuple[str, str]) -> None:
        stream = self._streams.pop(key, None)
        if stream is not None:
            stream.inward.close()


class _End(Protocol):
    """A connection's end in the workload: a port, or a terminal."""

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    async def end(self) -> None: ...


class _Connection:
    """To a port."""

    def __init__(self, socket: anyio.abc.SocketStream) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        try:
            return await self._socket.receive()
        except anyio.EndOfStream:
            return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)

    async def end(self) -> None:
        await self._socket.aclose()


@dataclass(eq=False)
class _Stream:
    """One connection; *screen* is the terminal that it leads to."""

    inward: MemoryObjectSendStream[bytes]
    terminal: bool = False
    screen: Terminal | None = None
    came: int = 0  # for the workload, in all, as ``flow`` counts
    sending: flow.Sending = field(default_factory=flow.Sending)
    receiving: flow.Receiving = field(default_factory=flow.Receiving)
    more: anyio.Event = field(default_factory=anyio.Event)

    async def room(self) -> None:
        """Wait until the market has passed on enough of what it was sent."""
        while not self.sending.room:
            self.more = anyio.Event()
            await self.more.wait()


def logged(lease: Lease, offset: int) -> Event | None:
    """What to remember of a log that was sent up to *offset*."""
    return None if offset == lease.log_offset else Logged(lease.id, offset)


def _read_part(
    folders: tuple[Path, ...], sha256: str, offset: int, length: int
) -> tuple[int, bytes]:
    for folder in folders:
        path = folder / f"{sha256}.tar"
        try:
            with path.open("rb") as file:
                total = file.seek(0, 2)
                file.seek(max(0, offset))
                return total, file.read(length)
        except FileNotFoundError:
            continue
    return 0, b""
