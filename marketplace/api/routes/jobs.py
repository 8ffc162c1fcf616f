"""Jobs, their logs and events, and the leases that their consumers sign."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse

from marketplace.api.http import relay, streams
from marketplace.api.http.auth import Follower, PartsDep, Reader, Worker
from marketplace.api.http.idempotency import Answer, OnceKey, Remember, answered, once, question_of
from marketplace.api.http.paging import Cursor, Limit, page_of, place_in
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas.requests import (
    ExecBody,
    JobBody,
    ReasonBody,
    ResumeBody,
    SignBody,
    SpecBody,
    unhex,
)
from marketplace.domain.errors import Conflict, Malformed, NotFound, Unauthenticated
from marketplace.domain.protocol import wire
from marketplace.domain.work.job import JobSpec, JobState
from marketplace.market.accounts import priority
from marketplace.market.base.records import Event, Job, Lease, LogRecord, Output, ReceiptRecord
from marketplace.market.jobs import gangs, jobs, views

router = APIRouter(prefix="/v1", tags=["jobs"], responses=documented(*EVERYWHERE))
QUOTE_WAIT_S = 2.0


def spec_of(body: SpecBody) -> JobSpec:
    """The job, or Malformed."""
    return JobSpec.from_wire(body.spec)


@router.post("/quotes", summary="Price, ceiling and alternatives; nothing is reserved")
async def quote(body: SpecBody, parts: PartsDep, who: Reader) -> dict[str, Any]:
    """A dry run; of a gang each member's, all or none."""
    spec = spec_of(body)
    if spec.gang is not None:
        return await gangs.dry_run(parts.market, spec, who.account)
    await priority.check(parts.market, spec, who.account)
    return jobs.dry_run(parts.market, spec, who.account)


@router.post("/explain", summary="Whether the job fits now; if not, why, and what would")
async def explain(body: SpecBody, parts: PartsDep, who: Reader) -> dict[str, Any]:
    """Counted reasons and the nearest relaxations with their price."""
    spec = spec_of(body)
    if spec.gang is not None:
        return await gangs.explain(parts.market, spec, who.account)
    return jobs.explain(parts.market, spec, who.account)


@router.post("/jobs", status_code=201, summary="Post a job: it is matched and quoted")
async def post_job(
    request: Request, body: JobBody, parts: PartsDep, who: Worker, key: OnceKey = ""
) -> JSONResponse:
    """Answers as soon as the quote is there, or after two seconds without one."""
    question = await question_of(request)
    known = await answered(parts, who, key, question)
    if known is None:
        asked = jobs.Posting(
            spec=spec_of(body),
            session_vk=bytes.fromhex(body.session_vk),
            consumer_vkh=bytes.fromhex(body.consumer_vkh),
            channels=tuple(bytes.fromhex(x) for x in body.channels),
            spares=tuple(bytes.fromhex(x) for x in body.spares),
            once=(key, question) if key else None,
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
) -> dict[str, Any]:
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
async def get_job(job_id: str, parts: PartsDep, who: Reader) -> dict[str, Any]:
    """State, quote, what it costs so far, and why it ended."""
    return await views.job_view(parts.market, await jobs.owned_job(parts.market, who, job_id))


@router.post("/jobs/{job_id}/stop", summary="End a job")
async def stop_job(
    job_id: str, parts: PartsDep, who: Worker, body: ReasonBody | None = None
) -> dict[str, Any]:
    """Twice is once."""
    job = await jobs.stop(parts.market, who, job_id, body.reason if body else "")
    return await views.job_view(parts.market, job)


@router.post("/jobs/{job_id}/resume", summary="Bring the fresh session key that a retry needs")
async def resume_job(job_id: str, body: ResumeBody, parts: PartsDep, who: Worker) -> dict[str, Any]:
    """The job is matched again with what is left of its budget."""
    key = bytes.fromhex(body.session_vk)
    return await views.job_view(parts.market, await jobs.resume(parts.market, who, job_id, key))


@router.get(
    "/jobs/{job_id}/logs",
    summary="What the workload printed",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}, "text/event-stream": {}}}},
)
async def logs(
    job_id: str,
    request: Request,
    parts: PartsDep,
    who: Follower,
    start: Annotated[int, Query(alias="from", ge=0, le=2**53)] = 0,
    follow: bool = False,
    lease: Annotated[str, Query(max_length=64, pattern="^[A-Za-z0-9_]*$")] = "",
) -> Response:
    """Text from byte offset *from*; with *follow* as server-sent events until the job ends."""
    if not follow and "token" in request.query_params:
        raise Unauthenticated("a token in the address is for event streams: send it as a bearer")
    job = await jobs.owned_job(parts.market, who, job_id)
    if follow:
        stream = streams.log_events(parts, job, lease, start)
        return StreamingResponse(stream, media_type="text/event-stream", headers=streams.HEADERS)
    chosen = lease or job.lease or await _last_lease(parts, job)
    chunks = await parts.market.store.find(
        LogRecord, job=job.id, lease=chosen, order=("offset",), limit=100_000
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
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    job_id: str,
    parts: PartsDep,
    who: Follower,
    request: Request,
    after: Annotated[str, Query(max_length=64, pattern="^[A-Za-z0-9_]*$")] = "",
    follow: bool = True,
) -> Response:
    """Server-sent events: state changes, receipts and telemetry; ends with the job."""
    job = await jobs.owned_job(parts.market, who, job_id)
    if far := await relay.target(request, parts, job.provider):
        return await relay.http(far, request)
    stream = streams.job_events(parts, job, after, follow)
    return StreamingResponse(stream, media_type="text/event-stream", headers=streams.HEADERS)


@router.get("/jobs/{job_id}/history", summary="What happened to a job")
async def history(
    job_id: str, parts: PartsDep, who: Reader, cursor: Cursor = "", limit: Limit = 100
) -> dict[str, Any]:
    """The same events as a list."""
    job = await jobs.owned_job(parts.market, who, job_id)
    found = await parts.market.store.find(
        Event, job=job.id, order=("id",), after=place_in(cursor, 1), limit=limit + 1
    )
    return page_of([streams.event_view(e) for e in found[:limit]], found, limit, lambda e: (e.id,))


@router.get(
    "/jobs/{job_id}/telemetry",
    summary="The last samples of GPU and CPU use",
    response_model=dict[str, Any],
)
async def telemetry(
    job_id: str, parts: PartsDep, who: Reader, request: Request
) -> dict[str, Any] | Response:
    """Evidence, never the price."""
    job = await jobs.owned_job(parts.market, who, job_id)
    if far := await relay.target(request, parts, job.provider):
        return await relay.http(far, request)
    return {"items": list(parts.adapters.telemetry.get(job.id, ())), "next": None}


@router.get("/jobs/{job_id}/receipts", summary="The job's receipts, with their signed bytes")
async def receipts(
    job_id: str,
    parts: PartsDep,
    who: Reader,
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
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
async def invoice(job_id: str, parts: PartsDep, who: Reader) -> dict[str, Any]:
    """Terms, receipts, vouchers and channel references; verify it with `tally invoice --verify`."""
    return await views.invoice_view(parts.market, await jobs.owned_job(parts.market, who, job_id))


@router.post(
    "/jobs/{job_id}/exec",
    summary="Run a command inside the workload",
    response_model=dict[str, Any],
)
async def execute(
    job_id: str, body: ExecBody, parts: PartsDep, who: Worker, request: Request
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
async def outputs(job_id: str, parts: PartsDep, who: Reader) -> dict[str, Any]:
    """Content-addressed."""
    job = await jobs.owned_job(parts.market, who, job_id)
    found = await parts.market.store.find(Output, job=job.id, limit=10_000)
    return {
        "items": [
            {"path": o.path, "sha256": o.sha256, "size": o.size, "lease": o.lease, "at_ms": o.at_ms}
            for o in found
        ],
        "next": None,
    }


@router.get(
    "/jobs/{job_id}/outputs/{sha256}",
    summary="One output's bytes",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
async def output(
    job_id: str, sha256: str, parts: PartsDep, who: Reader, request: Request
) -> Response:
    """Fetched from the provider as soon as it is there, or when it is first asked for; kept then."""
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


@router.get("/leases/{lease_id}", summary="One lease", tags=["leases"])
async def get_lease(lease_id: str, parts: PartsDep, who: Reader) -> dict[str, Any]:
    """Its terms, signatures and state."""
    lease, _ = await jobs.owned_lease(parts.market, who, lease_id)
    return views.lease_view(lease)


@router.post("/leases/{lease_id}/sign", summary="Sign the quote's terms", tags=["leases"])
async def sign_lease(
    request: Request,
    lease_id: str,
    body: SignBody,
    parts: PartsDep,
    who: Worker,
    key: OnceKey = "",
) -> JSONResponse:
    """With the session key; the provider starts once it sees the channel."""

    async def make(remember: Remember) -> Answer:
        secrets = {n: unhex(v, f"secrets.{n}") for n, v in body.secrets.items()}
        signature = bytes.fromhex(body.session_signature)
        lease = await jobs.sign(
            parts.market, who, lease_id, signature, body.channel_tx, secrets,
            lambda signed: remember(views.lease_view(signed)),
        )  # fmt: skip
        return views.lease_view(lease)

    return await once(request, parts, who, key, make, status=200)


@router.post("/leases/{lease_id}/decline", summary="Refuse a quote", tags=["leases"])
async def decline_lease(lease_id: str, parts: PartsDep, who: Worker) -> dict[str, Any]:
    """The job ends; nothing was paid."""
    job = await jobs.decline(parts.market, who, lease_id)
    return await views.job_view(parts.market, job)
