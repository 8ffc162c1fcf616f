"""The leases that consumers sign."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from marketplace.api.http.auth import PartsDep, Reader, Worker
from marketplace.api.http.idempotency import Answer, OnceKey, Remember, once
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import jobs as shapes
from marketplace.api.schemas import money
from marketplace.api.schemas.names import LeaseId
from marketplace.api.schemas.renewals import RenewalBody, RenewalSignBody
from marketplace.api.schemas.requests import SignBody, unhex
from marketplace.api.schemas.shape import Shape
from marketplace.market.jobs import evidence, jobs, renewals, views

router = APIRouter(prefix="/v1", tags=["jobs", "leases"], responses=documented(*EVERYWHERE))


@router.get("/leases/{lease_id}", summary="One lease")
async def get_lease(
    lease_id: LeaseId, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Lease)]:
    """Its terms, signatures and state."""
    lease, _ = await jobs.owned_lease(parts.market, who, lease_id)
    return views.lease_view(lease)


@router.get(
    "/leases/{lease_id}/evidence", summary="What one lease's bill is recomputed from, for each side"
)
async def get_evidence(
    lease_id: LeaseId, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(money.LeaseEvidence)]:
    """For the consumer's account, and for the account of the key that is paid: a provider signs in
    with the wallet of its payout address. Each is shown its own hop, and not the other's.
    """
    lease, side = await evidence.seen_by(parts.market, who, lease_id)
    return await evidence.lease_evidence(parts.market, lease, side)


@router.post(
    "/leases/{lease_id}/sign",
    summary="Sign the quote's terms",
    response_model=shapes.Lease,
)
async def sign_lease(
    request: Request,
    lease_id: LeaseId,
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
            parts.market, who, lease_id, signature, body.channel_tx, unhex(body.open_tx, "open_tx"),
            secrets,
            lambda signed: remember(views.lease_view(signed)),
        )  # fmt: skip
        return views.lease_view(lease)

    return await once(request, parts, who, key, make, status=200)


@router.post("/leases/{lease_id}/renewal", summary="Ask for a lease to go on")
async def ask_renewal(
    lease_id: LeaseId, body: RenewalBody, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.Lease)]:
    """At the agreed price, for longer; its provider may say no. The answer shows what it signed
    (`renewal`) or why not (`renewal_refused`); neither: it has not said yet, ask again.
    """
    lease = await renewals.ask(parts.market, who, lease_id, body.duration_ms, body.budget)
    return views.lease_view(lease)


@router.post("/leases/{lease_id}/renewal/sign", summary="Sign the renewed terms")
async def sign_renewal(
    lease_id: LeaseId, body: RenewalSignBody, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.Lease)]:
    """With the session key; the lease goes on under them at once."""
    signature = bytes.fromhex(body.session_signature)
    return views.lease_view(await renewals.sign(parts.market, who, lease_id, signature))


@router.post("/leases/{lease_id}/decline", summary="Refuse a quote")
async def decline_lease(
    lease_id: LeaseId, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.Job)]:
    """The job ends; nothing was paid."""
    job = await jobs.decline(parts.market, who, lease_id)
    return await views.job_view(parts.market, job)
