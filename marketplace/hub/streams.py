"""Connections to ports of workloads, as their adapter's socket carries them."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakValueDictionary

import anyio

from marketplace.domain.protocol import flow

MOST_WAITING: Final = 16 << 20  # bytes for a visitor, of an adapter that knows of no windows
SLOW_S: Final = 1  # for which such a one is held up, and with it all that its adapter says
MOST_REQUESTS: Final = 48  # of one lease at a time
IDLE_S: Final = 4.0  # less than what servers wait for the next request (five seconds and more)
MOST_IDLE: Final = 8  # connections of one lease


@dataclass(eq=False)
class Stream:
    """One connection: what its workload said and nobody has read yet, and both directions' credit.
    *flows*: its adapter counts with us.
    """

    lease: str
    provider: str
    flows: bool
    error: str = ""  # why it was closed, in its adapter's words
    over: bool = False
    sending: flow.Sending = field(default_factory=flow.Sending)
    receiving: flow.Receiving = field(default_factory=flow.Receiving)
    _came: int = 0
    _waiting: deque[bytes] = field(default_factory=deque[bytes])
    _news: anyio.Event = field(default_factory=anyio.Event)
    _read: anyio.Event = field(default_factory=anyio.Event)

    @property
    def unread(self) -> int:
        """Bytes that wait for their reader, as ``flow`` counts them."""
        return self._came - self.receiving.taken

    async def put(self, data: bytes) -> None:
        """From the workload. Whoever sends more than may wait loses the connection: all of its
        provider's receipts come the same way.
        """
        if not self.flows and self.unread >= MOST_WAITING:
            with anyio.move_on_after(SLOW_S):
                while self.unread >= MOST_WAITING and not self.over:
                    self._read = anyio.Event()
                    await self._read.wait()
        # The last message within a window may be larger than what was left of it.
        if self.unread >= (flow.WINDOW if self.flows else MOST_WAITING):
            self.end("what it said was not taken in time")
        if not self.over:
            self._came += flow.cost(data)
            self._waiting.append(data)
            self._news.set()

    async def get(self) -> tuple[bytes, int | None]:
        """What came next, and how much its adapter is to be told was passed on; no bytes once it is
        over and all is read.
        """
        while not self._waiting:
            if self.over:
                return b"", None
            self._news = anyio.Event()
            await self._news.wait()
        data = self._waiting.popleft()
        total = self.receiving.passed(data)
        self._read.set()
        return data, total if self.flows else None

    def end(self, error: str = "") -> None:
        """No more comes; *error*: why, empty for an ordinary end."""
        if not self.over:
            self.over, self.error = True, error
        self._news.set()
        self._read.set()


class Idle(Protocol):
    """An HTTP connection that waits for its next request."""

    @property
    def alive(self) -> bool:
        """Nobody has hung up, or said anything unasked."""
        ...

    def hang_up(self) -> None:
        """Close it."""
        ...


class Streams:
    """All of one market process."""

    def __init__(self) -> None:
        self.live: dict[str, Stream] = {}
        self.slots: WeakValueDictionary[str, anyio.Semaphore] = WeakValueDictionary()
        self._idle: dict[str, deque[tuple[float, int, Idle]]] = defaultdict(deque)

    def of(self, stream_id: str, provider: str) -> Stream | None:
        """The stream, if *provider* carries it."""
        stream = self.live.get(stream_id)
        return stream if stream is not None and stream.provider == provider else None

    def closed(self, stream_id: str, provider: str, error: str) -> None:
        """Its adapter says so."""
        stream = self.of(stream_id, provider)
        if stream is not None:
            del self.live[stream_id]
            stream.end(error)

    def gone(self, provider: str) -> None:
        """None of *provider* goes on."""
        for name, stream in list(self.live.items()):
            if stream.provider == provider:
                self.closed(name, provider, "the provider went away")

    def slot(self, lease: str) -> anyio.Semaphore:
        """Of :data:`MOST_REQUESTS`; kept for as long as somebody holds it, or waits."""
        slot = self.slots.get(lease)
        if slot is None:
            slot = self.slots[lease] = anyio.Semaphore(MOST_REQUESTS)
        return slot

    def keep(self, lease: str, port: int, idle: Idle) -> None:
        """*idle* may be asked again, for :data:`IDLE_S`."""
        self._idle[lease].append((anyio.current_time() + IDLE_S, port, idle))
        while len(self._idle[lease]) > MOST_IDLE:
            self._idle[lease].popleft()[2].hang_up()

    def take(self, lease: str, port: int) -> Idle | None:
        """The one of the port that was used last, if there is any."""
        self.sweep(lease)
        waiting = self._idle.get(lease, deque())
        for at in range(len(waiting) - 1, -1, -1):
            if waiting[at][1] == port:
                found = waiting[at][2]
                del waiting[at]
                self.sweep(lease)
                return found
        return None

    def sweep(self, lease: str = "") -> None:
        """Hang up what has waited for too long, of *lease* or of all."""
        now = anyio.current_time()
        for name in [lease] if lease else list(self._idle):
            kept = deque[tuple[float, int, Idle]]()
            for one in self._idle.pop(name, ()):
                if one[0] > now and one[2].alive:
                    kept.append(one)
                else:
                    one[2].hang_up()
            if kept:
                self._idle[name] = kept
