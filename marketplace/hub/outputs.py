"""Outputs are brought from their providers as soon as they are there, so that they outlive the
lease.

Each is fetched once, in parts over the adapter's socket, and checked against its hash. What a
provider announces fills no disk: of a job's outputs the market fetches unasked what fits into one
blob's limit together; what is beyond waits until its consumer asks for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import anyio
import structlog

from marketplace.domain.errors import NotFound, TallyError
from marketplace.domain.protocol import wire
from marketplace.hub.adapters import AdapterHub
from marketplace.hub.sockets import Connection
from marketplace.market.accounts.blobs import PART, Blobs
from marketplace.market.base.errors import Offline, TooLarge
from marketplace.market.base.records import Blob, Job, Lease, Output
from marketplace.market.context import Market

log = structlog.get_logger("hub")
AT_ONCE: Final = 4
PART_S: Final = 30
WHOLE_S: Final = 600
RECENT_MS: Final = 86_400_000  # after a reconnect: outputs of leases that ended within


class Outputs:
    """Of the providers that are connected to this process."""

    def __init__(self, market: Market, hub: AdapterHub, blobs: Blobs) -> None:
        self.market, self.hub, self.blobs = market, hub, blobs
        self._fetching: dict[tuple[str, str], anyio.Lock] = {}
        self._wanted: set[str] = set()
        self._event = anyio.Event()
        market.bus.on("output:", lambda topic: self._want([topic.partition(":")[2]]))
        hub.welcomed.append(self._back)

    async def fetch(self, job: Job, output: Output) -> None:
        """Bring it into the blob folder, unless it is there. NotFound, Offline, TooLarge,
        BlobMismatch.

        Also when another account's file has this hash: a provider that names it must have it.
        """
        name = (job.account, output.sha256)
        lock = self._fetching.setdefault(name, anyio.Lock())
        try:
            async with lock:
                if not await self.here(job.account, output.sha256):
                    await self._bring(job, output)
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._fetching.pop(name, None)

    async def here(self, account: str, sha256: str) -> bool:
        """True when the market has it for *account*."""
        path = anyio.Path(self.blobs.path(sha256))
        known = await self.market.store.get(Blob, account, sha256)
        return known is not None and await path.exists()

    async def _bring(self, job: Job, output: Output) -> None:
        lease, _ = await self.market.lease(output.lease)
        if output.size > self.market.settings.blob_limit:
            raise TooLarge("the output is larger than this market keeps", limit=output.size)

        async def chunks() -> AsyncIterator[bytes]:
            offset = 0
            while offset < output.size:
                ask = wire.BlobWanted(output.lease, output.sha256, offset, PART)
                name = f"{output.lease}/{output.sha256}/{offset}"
                part: wire.BlobPart = await self.hub.ask(lease.provider, name, ask, PART_S)
                if not part.data:
                    raise Offline("the provider has no more of this output")
                offset += len(part.data)
                yield part.data

        if not self.hub.connected(lease.provider):
            raise NotFound("the output was not fetched in time, and its provider is gone")
        await self.blobs.put(job.account, output.sha256, chunks(), output.size)

    # ---- unasked -----------------------------------------------------------------------------

    def _want(self, jobs: list[str]) -> None:
        self._wanted.update(jobs)
        self._event.set()

    async def _back(self, connection: Connection) -> None:
        """A provider is here again: what it said while this market did not listen to the end."""
        leases = await self.market.store.find(
            Lease,
            provider=connection.key.hex(),
            created_ms__gt=self.market.now - RECENT_MS,
            order=("-id",),
            limit=500,
        )
        jobs = list({lease.job for lease in leases})
        found = await self.market.store.find(Output, job=jobs, limit=10_000)
        self._want([output.job for output in found])

    async def collect(self) -> None:
        """Run for ever."""
        room = anyio.Semaphore(AT_ONCE)
        async with anyio.create_task_group() as tasks:
            while True:
                await self._event.wait()
                wanted, self._wanted, self._event = self._wanted, set(), anyio.Event()
                for job in wanted:
                    await room.acquire()
                    tasks.start_soon(self._all_of, job, room)

    async def _all_of(self, job_id: str, room: anyio.Semaphore) -> None:
        try:
            with anyio.move_on_after(WHOLE_S):
                await self._outputs_of(job_id)
        except TallyError as error:
            log.warning("output", job=job_id, error=error.line())
        finally:
            room.release()

    async def _outputs_of(self, job_id: str) -> None:
        job = await self.market.store.get(Job, job_id)
        left = self.market.settings.blob_limit
        for output in await self.market.store.find(Output, job=job_id, order=("at_ms", "path")):
            left -= output.size
            if job is None or left < 0:
                return
            lease = await self.market.store.get(Lease, output.lease)
            if lease is None or not self.hub.connected(lease.provider):
                continue
            try:
                await self.fetch(job, output)
            except (
                TallyError
            ) as error:  # it may be asked for again; the others are not its business
                log.warning("output", job=job_id, path=output.path, error=error.line())
