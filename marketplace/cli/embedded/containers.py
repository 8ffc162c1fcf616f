"""What Docker itself says of our containers, an oracle that never asks the adapter; and what an
embedded market leaves there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import anyio
import anyio.to_thread

from adapter.core.workload import RuntimeFault
from adapter.runtime.docker.door import connect, map_docker
from adapter.runtime.docker.networks import OF_ADAPTER


class Containers:
    """Listens to Docker's events; ``ran_ms(lease)`` is the time from a container's start to its
    death.
    """

    def __init__(self) -> None:
        self._times: dict[str, dict[str, int]] = {}
        self._events: Any = None
        self._client: Any = None
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Containers:
        await anyio.to_thread.run_sync(self._open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._events is not None:
            self._events.close()
            self._client.close()

    def _open(self) -> None:
        try:
            self._client = connect("")
        except RuntimeFault:
            return  # no Docker: the process runtime runs the jobs
        self._events = self._client.events(decode=True, filters={"label": "tally.lease"})
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for event in self._events:
            if event.get("Action") in ("start", "die"):
                lease = event["Actor"]["Attributes"].get("tally.lease", "")
                at = self._times.setdefault(lease, {})
                at.setdefault(event["Action"], int(event["timeNano"]) // 1_000_000)

    async def ran_ms(self, lease: str) -> int | None:
        """Milliseconds, or None where Docker never saw the lease."""
        with anyio.move_on_after(5):
            while self._thread and "die" not in self._times.get(lease, {}):  # noqa: ASYNC110  fed by a thread
                await anyio.sleep(0.1)
        seen = self._times.get(lease, {})
        return seen["die"] - seen["start"] if "die" in seen and "start" in seen else None


def remove_leftovers(adapters: Sequence[str]) -> int:
    """Containers and networks that carry one of the names of *adapters*; how many were removed."""
    try:
        client = connect("")
    except RuntimeFault:
        return 0
    removed = 0
    try:
        for adapter in adapters:
            mine, holders = [{"label": f"{one}={adapter}"} for one in ("tally.adapter", OF_ADAPTER)]
            for asked in (mine, holders):
                for one in client.containers.list(all=True, filters=asked, ignore_removed=True):
                    with map_docker("remove a container that was left"):
                        one.remove(force=True, v=True)
                    removed += 1
            for network in client.networks.list(filters=mine):
                with map_docker("remove a network that was left"):
                    network.remove()
                removed += 1
    finally:
        client.close()
    return removed
