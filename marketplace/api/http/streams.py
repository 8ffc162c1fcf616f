"""What flows: server-sent events, and the parts of an output fetched from its provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from marketplace.api.http.auth import Parts
from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.records import Event, Job, LogRecord, ReceiptRecord
from marketplace.market.jobs import views

HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
QUIET_S: Final = 15.0
LAST_WORDS_MS: Final = 2_000  # the adapter ships what was printed last after the end is agreed


def sse(event: str, data: dict[str, Any], identity: str = "") -> str:
    """One server-sent event."""
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def event_view(event: Event) -> dict[str, Any]:
    """One line of a job's story."""
    return {
        "id": event.id,
        "job": event.job,
        "lease": event.lease,
        "at_ms": event.at_ms,
        "kind": event.kind,
        "detail": event.detail,
    }


def from_offset(chunk: LogRecord, start: int) -> bytes:
    """The part of *chunk* from byte *start* on."""
    return (
        chunk.data[max(start - chunk.offset, 0) :]
        if chunk.offset + len(chunk.data) > start
        else b""
    )


async def log_events(
    parts: Parts, job: Job, lease: str, start: int, since_ms: int = 0
) -> AsyncIterator[str]:
    """``log`` events with offset, stream and text, then ``end``. Without *lease* a job's leases
    follow one another. *since_ms*: only what came in then or later.
    """
    market, offsets, seen = parts.market, {lease: start} if lease else dict[str, int](), set[str]()
    first = True
    with market.bus.listening(f"log:{job.id}", f"job:{job.id}") as inbox:
        while True:
            now = await market.store.get(Job, job.id) or job
            leases = [lease] if lease else [x.id for x in await views.leases_of(market, job)]
            for one in leases:
                at = offsets.setdefault(one, start if first else 0)
                for chunk in await market.store.find(
                    LogRecord,
                    job=job.id,  # *lease* is whatever the caller named
                    lease=one,
                    offset__ge=max(at - 65_536, 0),
                    order=("offset",),
                ):
                    data = from_offset(chunk, offsets[one])
                    if data and chunk.at_ms >= since_ms:
                        at = max(offsets[one], chunk.offset)
                        offsets[one] = at + len(data)
                        text = data.decode(errors="replace")
                        body = {"lease": one, "offset": at, "stream": chunk.stream, "text": text}
                        yield sse("log", body, str(offsets[one]))
                seen.add(one)
            first = False
            over = now.state is JobState.ENDED
            if over and market.now - now.updated_ms > LAST_WORDS_MS:
                yield sse("end", {"reason": now.reason, "exit_code": now.exit_code})
                return
            if not await inbox.wait(0.5 if over else QUIET_S) and not over:
                yield ": still here\n\n"


async def job_events(parts: Parts, job: Job, after: str, follow: bool) -> AsyncIterator[str]:
    """``event``, ``tick`` and ``telemetry`` events, then ``end``."""
    market, last_tick, last_at = parts.market, "", 0
    with market.bus.listening(f"job:{job.id}", f"live:{job.id}", *_channels(job)) as inbox:
        while True:
            now = await market.store.get(Job, job.id) or job
            for event in await market.store.find(
                Event, job=job.id, order=("id",), after=(after,) if after else None
            ):
                after = event.id
                yield sse("event", event_view(event), event.id)
            tick = await _tick(parts, now)
            if tick is not None and f"{tick['lease']}/{tick['tick']}" != last_tick:
                last_tick = f"{tick['lease']}/{tick['tick']}"
                yield sse("tick", tick)
            samples = parts.adapters.telemetry.get(job.id, ())
            for sample in [s for s in samples if s["at_ms"] > last_at]:
                last_at = sample["at_ms"]
                yield sse("telemetry", sample)
            if now.state is JobState.ENDED or not follow:
                view = {"state": now.state.name, "reason": now.reason, "exit_code": now.exit_code}
                yield sse("end", view)
                return
            # Ticks come by the channel's topic, which changes with the lease: look every second.
            running = now.state in (JobState.RUNNING, JobState.PAUSED, JobState.ENDING)
            if not await inbox.wait(1.0 if running else QUIET_S):
                yield ": still here\n\n"


def _channels(job: Job) -> list[str]:
    return [f"channel:{x}" for x in job.channels]


async def _tick(parts: Parts, job: Job) -> dict[str, Any] | None:
    last: ReceiptRecord | None = await parts.market.last_receipt(job.lease) if job.lease else None
    if last is None:
        return None
    return {
        "lease": last.lease,
        "tick": last.tick,
        "unit_ms": last.unit_ms,
        "owed": last.lease_owed,
        "spent": job.spent_before + last.lease_owed,
        "at_ms": last.at_ms,
    }
