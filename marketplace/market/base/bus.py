"""Who is told what after a commit, inside this process; the store carries topics between processes.

Topics: ``job:<id>``, ``channel:<hex>`` (a receipt), ``voucher:<hex>``, ``adapter:<hex>`` (the
outbox), ``matcher``, ``lease:<id>`` (released), ``live:<job>`` (telemetry),
``output:<job>`` (announced), ``service:<id>`` (its replicas, or who waits for one),
``order:<lease>`` (to a cluster's member). A topic only says "look again": the truth is in the
store, so a lost or repeated one does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

Listener = Callable[[str], None]


@dataclass(eq=False)
class Inbox:
    """The topics told since it was last read."""

    topics: set[str] = field(default_factory=set[str])
    event: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self, seconds: float) -> set[str]:
        """The topics, as soon as there is one; empty after *seconds*."""
        with anyio.move_on_after(seconds):
            await self.event.wait()
        told, self.topics, self.event = self.topics, set(), anyio.Event()
        return told


class Bus:
    """Publish and listen; all in the event loop's thread."""

    def __init__(self) -> None:
        self._by_topic: dict[str, set[Inbox]] = {}
        self._by_prefix: list[tuple[str, Listener, bool]] = []

    def tell(self, topics: Iterable[str], *, remote: bool = False) -> None:
        """To everyone who listens; *remote*: another process committed it."""
        for topic in topics:
            for inbox in self._by_topic.get(topic, ()):
                inbox.topics.add(topic)
                inbox.event.set()
            for prefix, listener, remote_only in self._by_prefix:
                if topic.startswith(prefix) and (remote or not remote_only):
                    listener(topic)

    def on(self, prefix: str, listener: Listener, *, remote_only: bool = False) -> None:
        """Call *listener* for every topic that starts with *prefix*; it must not block."""
        self._by_prefix.append((prefix, listener, remote_only))

    @contextmanager
    def listening(self, *topics: str) -> Generator[Inbox]:
        """An inbox for as long as the block lasts; a topic may be named twice."""
        inbox = Inbox()
        wanted = frozenset(topics)
        for topic in wanted:
            self._by_topic.setdefault(topic, set()).add(inbox)
        try:
            yield inbox
        finally:
            for topic in wanted:
                left = self._by_topic[topic]
                left.discard(inbox)
                if not left:
                    del self._by_topic[topic]
