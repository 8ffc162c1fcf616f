"""Jobs, their logs and events."""

from __future__ import annotations

from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse

from marketplace.api.http import relay, streams
from marketplace.api.http.auth import Follower, PartsDep, Reader, Worker
from marketplace.api.http.idempotency import OnceKey, answered, question_of
from marketplace.api.http.jobforms import posted
from marketplace.api.http.paging import Cursor, Limit, page_of, place_in
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import jobs as shapes
from marketplace.api.schemas import money
from marketplace.api.schemas.names import JobId, Sha256
from marketplace.api.schemas.requests import (
    ExecBody,
    FileBody,
    JobBody,
    JobFileBody,
    JobKeys,
    Nothing,
    ReasonBody,
    ResumeBody,
    SpecBody,
    job_forms,
)
from marketplace.api.schemas.shape import BYTES, Shape, stream_of, text_of
from marketplace.domain.errors import Conflict, Malformed, NotFound, Unauthenticated
from marketplace.domain.protocol import wire
from marketplace.domain.work import jobfile
from marketplace.domain.work.job_machine import JobState
from marketplace.market.accounts import priority
from marketplace.market.base.records import Event, Job, Lease, LogRecord, Output, ReceiptRecord
from marketplace.market.jobs import evidence, gangs, jobs, views

router = APIRouter(prefix="/v1", tags=["jobs"], responses=documented(*EVERYWHERE))
QUOTE_WAIT_S = 2.0
PRINTED: Final = text_of("the bytes from *from* on")
LOG_STREAM: Final = stream_of(log=shapes.LogLine, end=shapes.LogEnd)
EVENT_STREAM: Final = stream_of(
    event=shapes.Event, tick=shapes.Tick, telemetry=shapes.Sample, end=shapes.JobEnd
)


@router.post(
    "/quotes",
    summary="Price, ceiling and alternatives; nothing is reserved",
    openapi_extra=job_forms(FileBody, SpecBody, Nothing),
)
async def quote(
    request: Request, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.JobDryRun, shapes.GangDryRun)]:
    """A dry run; of a gang each member's, all or none."""
    spec = (await posted(request, parts, who, Nothing)).spec
    if spec.gang is not None:
        found = await gangs.dry_run(parts.market, spec, who.account)
    else:
        await priority.check(parts.market, spec, who.account)
        found = await jobs.dry_run(parts.market, spec, who.account)
    return {**found, "job": jobfile.write(spec)}


@router.post(
    "/explain",
    summary="Whether the job fits now; if not, why, and what would",
    openapi_extra=job_forms(FileBody, SpecBody, Nothing),
)
async def explain(
    request: Request, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Explanation)]:
    """Counted reasons and the nearest relaxations with their price."""
    spec = (await posted(request, parts, who, Nothing)).spec
    if spec.gang is not None:
        return await gangs.explain(parts.market, spec, who.account)
    return await jobs.explain(parts.market, spec, who.account)


@router.post(
    "/jobs",
    status_code=201,
    summary="Post a job: it is matched and quoted",
    response_model=shapes.Job,
    openapi_extra=job_forms(JobFileBody, JobBody, JobKeys),
)
async def post_job(
    request: Request, parts: PartsDep, who: Worker, key: OnceKey = ""
) -> JSONResponse:
    """Answers as soon as the quote is there, or after two seconds without one."""
    question = await question_of(request)
    known = await answered(parts, who, key, question)
    if known is None:
        given = await posted(request, parts, who, JobKeys)
        asked = jobs.Posting(
            spec=given.spec,
            session_vk=bytes.fromhex(given.beside.session_vk),
            consumer_vkh=bytes.fromhex(given.beside.consumer_vkh or who.account),
            channels=tuple(bytes.fromhex(x) for x in given.beside.channels),
            spares=tuple(bytes.fromhex(x) for x in given.beside.spares),
            once=(key, question) if key else None,
            hop=bytes.fromhex(given.beside.hop),
        )
        try:
            job_id = (await jobs.post(parts.market, who, asked)).id
        except Conflict:
            known = await answered(parts, who, key, question)
            if known is None:
                raise
            job_id = str(known.answer["id"])
    else:
        job_id = str(known.answer["id"])
    job = await _until_quoted(parts, job_id)
    headers = {"Location": f"/v1/jobs/{job_id}"}
    return JSONResponse(await views.job_view(parts.market, job), 201, headers)


async def _until_quoted(parts: PartsDep, job_id: str) -> Job:
    market = parts.market
    with market.bus.listening(f"job:{job_id}") as inbox, anyio.move_on_after(QUOTE_WAIT_S):
        while True:
            job = await market.store.get(Job, job_id)
            if job is None or job.state is not JobState.POSTED or job.needs:
                break
            await inbox.wait(0.5)
    job = await market.store.get(Job, job_id)
    if job is None:
        raise NotFound(f"no job {job_id}")
    return job


@router.get("/jobs", summary="Your jobs, newest first")
async def list_jobs(
    parts: PartsDep,
    who: Reader,
    cursor: Cursor = "",
    limit: Limit = 50,
    state: Annotated[str, Query(max_length=20, description="one of the job states")] = "",
) -> Annotated[dict[str, Any], Shape(shapes.Jobs)]:
    """A page of jobs."""
    where: dict[str, object] = {"account": who.account}
    if state:
        if state not in JobState.__members__:
            raise Malformed(f"state is one of {', '.join(JobState.__members__)}")
        where["state"] = JobState[state]
    found = await parts.market.store.find(
        Job, order=("-id",), after=place_in(cursor, 1), limit=limit + 1, **where
    )
    items = await views.job_views(parts.market, found[:limit])
    return page_of(items, found, limit, lambda job: (job.id,))


@router.get("/jobs/{job_id}", summary="One job")
async def get_job(
    job_id: JobId, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Job)]:
    """State, quote, what it costs so far, and why it ended."""
    return await views.job_view(parts.market, await jobs.owned_job(parts.market, who, job_id))


@router.post("/jobs/{job_id}/stop", summary="End a job")
async def stop_job(
    job_id: JobId, parts: PartsDep, who: Worker, body: ReasonBody | None = None
) -> Annotated[dict[str, Any], Shape(shapes.Job)]:
    """Twice is once."""
    job = await jobs.stop(parts.market, who, job_id, body.reason if body else "")
    return await views.job_view(parts.market, job)


@router.post("/jobs/{job_id}/resume", summary="Bring the fresh session key that a retry needs")
async def resume_job(
    job_id: JobId, body: ResumeBody, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.Job)]:
    """The job is matched again with what is left of its budget."""
    key = bytes.fromhex(body.session_vk)
    return await views.job_view(parts.market, await jobs.resume(parts.market, who, job_id, key))


@router.get(
    "/jobs/{job_id}/logs",
    summary="What the workload printed",
    response_class=Response,
    responses={200: {"content": {"text/plain": PRINTED, "text/event-stream": LOG_STREAM}}},
)
async def logs(
    job_id: JobId,
    request: Request,
    parts: PartsDep,
    who: Follower,
    start: Annotated[
        int, Query(alias="from", ge=0, le=2**53, description="byte offset of the beginning")
    ] = 0,
    follow: Annotated[bool, Query(description="as events, until the job ends")] = False,
    lease: Annotated[
        str,
        Query(
            max_length=64,
            pattern="^[A-Za-z0-9_]*$",
            description="of this lease; empty: the current one, and as events all",
        ),
    ] = "",
    since_ms: Annotated[
        int,
        Query(ge=0, le=2**53, description="only what came in then or later, ms since 1970, UTC"),
    ] = 0,
) -> Response:
    """Text from byte offset *from*; with *follow* as server-sent events until the job ends."""
    if not follow and "token" in request.query_params:
        raise Unauthenticated("a token in the address is for event streams: send it as a bearer")
    job = await jobs.owned_job(parts.market, who, job_id)
    if follow:
        stream = streams.log_events(parts, job, lease, start, since_ms)
        return StreamingResponse(stream, media_type="text/event-stream", headers=streams.HEADERS)
    chosen = lease or job.lease or await _last_lease(parts, job)
    chunks = await parts.market.store.find(
        LogRecord, job=job.id, lease=chosen, order=("offset",), limit=100_000, at_ms__ge=since_ms
    )
    data = b"".join(streams.from_offset(chunk, start) for chunk in chunks)
    end = max((c.offset + len(c.data) for c in chunks), default=start)
    headers = {"X-Next-Offset": str(max(end, start)), "X-Lease": chosen}
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)


async def _last_lease(parts: PartsDep, job: Job) -> str:
    leases = await views.leases_of(parts.market, job)
    return leases[-1].id if leases else ""


@router.get(
    "/jobs/{job_id}/events",
    summary="What happens to a job, as it happens",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": EVENT_STREAM}}},
)
async def events(
    job_id: JobId,
    parts: PartsDep,
    who: Follower,
    request: Request,
    after: Annotated[
        str,
        Query(
            max_length=64,
            pattern="^[A-Za-z0-9_]*$",
            description="only events after the one of this id",
        ),
    ] = "",
    follow: Annotated[bool, Query(description="until the job ends; else what there is")] = True,
) -> Response:
    """Server-sent events: state changes, receipts and telemetry; ends with the job."""
    job = await jobs.owned_job(parts.market, who, job_id)
    if far := await relay.target(request, parts, job.provider):
        return await relay.http(far, request)
    stream = streams.job_events(parts, job, after, follow)
    return StreamingResponse(stream, media_type="text/event-stream", headers=streams.HEADERS)


@router.get("/jobs/{job_id}/history", summary="What happened to a job")
async def history(
    job_id: JobId, parts: PartsDep, who: Reader, cursor: Cursor = "", limit: Limit = 100
) -> Annotated[dict[str, Any], Shape(shapes.Events)]:
    """A job's events as one list, for who does not follow them."""
    job = await jobs.owned_job(parts.market, who, job_id)
    found = await parts.market.store.find(
        Event, job=job.id, order=("id",), after=place_in(cursor, 1), limit=limit + 1
    )
    return page_of([streams.event_view(e) for e in found[:limit]], found, limit, lambda e: (e.id,))


@router.get(
    "/jobs/{job_id}/telemetry",
    summary="The last samples of GPU and CPU use",
    response_model=Annotated[dict[str, Any], Shape(shapes.Samples)],
)
async def telemetry(
    job_id: JobId, parts: PartsDep, who: Reader, request: Request
) -> dict[str, Any] | Response:
    """Evidence, never the price."""
    job = await jobs.owned_job(parts.market, who, job_id)
    if far := await relay.target(request, parts, job.provider):
        return await relay.http(far, request)
    return {"items": list(parts.adapters.telemetry.get(job.id, ())), "next": None}


@router.get("/jobs/{job_id}/receipts", summary="The job's receipts, with their signed bytes")
async def receipts(
    job_id: JobId,
    parts: PartsDep,
    who: Reader,
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="items a page")] = 200,
) -> Annotated[dict[str, Any], Shape(money.Receipts)]:
    """In the order of leases and ticks."""
    job = await jobs.owned_job(parts.market, who, job_id)
    leases = [x.id for x in await views.leases_of(parts.market, job)]
    found = await parts.market.store.find(
        ReceiptRecord,
        lease=leases,
        order=("lease", "tick"),
        after=place_in(cursor, 2, ints=(1,)),
        limit=limit + 1,
    )
    items = [views.receipt_view(r) for r in found[:limit]]
    return page_of(items, found, limit, lambda r: (r.lease, r.tick))


@router.get("/jobs/{job_id}/invoice", summary="Everything that an invoice is recomputed from")
async def invoice(
    job_id: JobId, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(money.Invoice)]:
    """Terms, receipts, vouchers and channel references; verify it with `tally invoice --verify`."""
    return await evidence.invoice_view(
        parts.market, await jobs.owned_job(parts.market, who, job_id)
    )


@router.post(
    "/jobs/{job_id}/exec",
    summary="Run a command inside the workload",
    response_model=Annotated[dict[str, Any], Shape(shapes.Done)],
)
async def execute(
    job_id: JobId, body: ExecBody, parts: PartsDep, who: Worker, request: Request
) -> dict[str, Any] | Response:
    """Its exit code and what it printed (bounded, hex)."""
    job = await jobs.owned_job(parts.market, who, job_id)
    if not job.lease or job.state is not JobState.RUNNING:
        raise Conflict(f"the job is {job.state.name}, not RUNNING")
    if far := await relay.target(request, parts, job.provider):
        return await relay.http(far, request)
    call = parts.market.ids.new("call")
    ask = wire.ExecAsked(job.lease, call, body.command)
    done: wire.ExecDone = await parts.hub.ask(job.provider, call, ask, 60)
    return {
        "exit_code": done.exit_code,
        "output": done.output.decode(errors="replace"),
        "output_hex": done.output.hex(),
    }


@router.get("/jobs/{job_id}/outputs", summary="Files that the workload gave back")
async def outputs(
    job_id: JobId, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Outputs)]:
    """Content-addressed."""
    job = await jobs.owned_job(parts.market, who, job_id)
    found = await parts.market.store.find(Output, job=job.id, limit=10_000)
    return {
        "items": [
            {
                "path": o.path,
                "sha256": o.sha256,
                "size": o.size,
                "lease": o.lease,
                "at_ms": o.at_ms,
                "signature": o.signature,
            }
            for o in found
        ],
        "next": None,
    }


@router.get(
    "/jobs/{job_id}/outputs/{sha256}",
    summary="One output's bytes",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": BYTES}}},
)
async def output(
    job_id: JobId, sha256: Sha256, parts: PartsDep, who: Reader, request: Request
) -> Response:
    """Fetched from the provider as soon as it is there, or when it is first asked for; kept
    then.
    """
    job = await jobs.owned_job(parts.market, who, job_id)
    path = parts.blobs.path(sha256)
    found = await parts.market.store.find(Output, job=job.id, sha256=sha256, limit=1)
    if not found:
        raise NotFound("the job has no such output")
    if not await parts.outputs.here(who.account, sha256):
        lease = await parts.market.store.get(Lease, found[0].lease)
        if lease is not None and (far := await relay.target(request, parts, lease.provider)):
            return await relay.http(far, request)
        await parts.outputs.fetch(job, found[0])
    return FileResponse(path, media_type="application/octet-stream")
