"""Sign-in, API keys, webhooks and files: what belongs to an account."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse, JSONResponse

from marketplace.api.http.auth import Given, Hooker, Locksmith, PartsDep, Porter, Reader, login_rate
from marketplace.api.http.idempotency import Answer, OnceKey, Remember, once
from marketplace.api.http.paging import Cursor, Limit, page_of, place_in
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import account as shapes
from marketplace.api.schemas.names import HookId, KeyId, Sha256
from marketplace.api.schemas.requests import ChallengeBody, HookBody, KeyBody, VerifyBody
from marketplace.api.schemas.shape import BYTES, Shape
from marketplace.chain.signin import payment_key_hash, verify_sign_in
from marketplace.market.accounts import access, webhooks
from marketplace.market.base.months import month_of
from marketplace.market.base.records import ApiKey, Blob, Delivery, Hook
from marketplace.market.context import Market

router = APIRouter(prefix="/v1", responses=documented(*EVERYWHERE))


@router.post("/auth/challenge", tags=["auth"], dependencies=[Depends(login_rate)])
async def challenge(
    body: ChallengeBody, parts: PartsDep
) -> Annotated[dict[str, Any], Shape(shapes.Challenge)]:
    """A message for the wallet's `signData`; it serves once, for a few minutes, and names this
    market.

    Whoever signs it compares the origin in it with the address that he dialled.
    """
    account = payment_key_hash(body.address, parts.mainnet)
    asked = await access.challenge(parts.market, body.address, account, body.market)
    text = asked.text
    return {"nonce": asked.nonce, "message": text.encode().hex(), "text": text}


@router.post("/auth/verify", tags=["auth"], dependencies=[Depends(login_rate)])
async def verify(
    body: VerifyBody, parts: PartsDep
) -> Annotated[dict[str, Any], Shape(shapes.Session)]:
    """The wallet's answer for a bearer token."""
    account, message = verify_sign_in(body.address, body.signature, body.key, parts.mainnet)
    token, expires = await access.admit(parts.market, message, body.address, account)
    return {"token": token, "account": account, "expires_at_ms": expires}


@router.post("/auth/logout", tags=["auth"])
async def logout(
    parts: PartsDep, who: Reader, given: Given
) -> Annotated[dict[str, Any], Shape(shapes.SignedOut)]:
    """End this session."""
    if given is not None and who.key is None:
        await access.sign_out(parts.market, who, given.credentials)
    return {"account": who.account}


@router.get("/me", tags=["auth"])
async def me(parts: PartsDep, who: Reader) -> Annotated[dict[str, Any], Shape(shapes.Me)]:
    """Who the credential is, and what it may do."""
    return {
        "account": who.account,
        "verbs": sorted(who.verbs),
        "key": None if who.key is None else _key_view(parts.market, who.key),
    }


@router.post("/keys", status_code=201, tags=["keys"], response_model=shapes.NewKey)
async def new_key(
    request: Request, body: KeyBody, parts: PartsDep, who: Locksmith, key: OnceKey = ""
) -> JSONResponse:
    """The secret is shown this once."""

    async def make(remember: Remember) -> Answer:
        made, secret = await access.new_key(
            parts.market, who, body.name, body.verbs, body.budget, body.expires_at_ms,
            lambda made: remember({**_key_view(parts.market, made), "secret": None}),
            body.month_cap,
        )  # fmt: skip
        return {**_key_view(parts.market, made), "secret": secret}

    return await once(request, parts, who, key, make)


@router.get("/keys", tags=["keys"])
async def list_keys(
    parts: PartsDep, who: Locksmith
) -> Annotated[dict[str, Any], Shape(shapes.Keys)]:
    """Without their secrets."""
    keys = await parts.market.store.find(ApiKey, account=who.account)
    return {"items": [_key_view(parts.market, k) for k in keys], "next": None}


@router.delete("/keys/{key_id}", tags=["keys"])
async def revoke_key(
    key_id: KeyId, parts: PartsDep, who: Locksmith
) -> Annotated[dict[str, Any], Shape(shapes.Revoked)]:
    """At once."""
    await access.revoke_key(parts.market, who, key_id)
    return {"id": key_id, "revoked": True}


def _key_view(market: Market, key: ApiKey) -> dict[str, Any]:
    this_month = key.month_committed if key.month == month_of(market.now) else 0
    return {
        "id": key.id,
        "name": key.name,
        "verbs": key.verbs,
        "budget": key.budget,
        "committed": key.committed,
        "month_cap": key.month_cap,
        "month_committed": this_month,
        "created_at_ms": key.created_ms,
        "expires_at_ms": key.expires_ms,
        "revoked_at_ms": key.revoked_ms,
    }


@router.post("/webhooks", status_code=201, tags=["webhooks"], response_model=shapes.NewHook)
async def new_hook(
    request: Request, body: HookBody, parts: PartsDep, who: Hooker, key: OnceKey = ""
) -> JSONResponse:
    """Deliveries are signed with the secret that is shown this once."""

    async def make(remember: Remember) -> Answer:
        hook = await webhooks.add(
            parts.market, who, body.url, body.kinds,
            lambda made: remember({**_hook_view(made), "secret": None}),
        )  # fmt: skip
        return {**_hook_view(hook), "secret": webhooks.secret_of(parts.market, hook)}

    return await once(request, parts, who, key, make)


@router.post(
    "/webhooks/{hook_id}/rotate", status_code=201, tags=["webhooks"], response_model=shapes.NewHook
)
async def rotate_hook(
    hook_id: HookId, request: Request, parts: PartsDep, who: Hooker, key: OnceKey = ""
) -> JSONResponse:
    """A new secret, shown this once; the old one signs nothing more."""

    async def make(remember: Remember) -> Answer:
        hook = await webhooks.rotate(
            parts.market, who, hook_id,
            lambda made: remember({**_hook_view(made), "secret": None}),
        )  # fmt: skip
        return {**_hook_view(hook), "secret": webhooks.secret_of(parts.market, hook)}

    return await once(request, parts, who, key, make)


@router.get("/webhooks", tags=["webhooks"])
async def list_hooks(
    parts: PartsDep, who: Hooker
) -> Annotated[dict[str, Any], Shape(shapes.Hooks)]:
    """Without their secrets."""
    found = await parts.market.store.find(Hook, account=who.account)
    return {"items": [_hook_view(h) for h in found], "next": None}


@router.delete("/webhooks/{hook_id}", tags=["webhooks"])
async def drop_hook(
    hook_id: HookId, parts: PartsDep, who: Hooker
) -> Annotated[dict[str, Any], Shape(shapes.Removed)]:
    """What is still to be delivered is dropped with it."""
    await webhooks.remove(parts.market, who, hook_id)
    return {"id": hook_id, "removed": True}


@router.post("/webhooks/{hook_id}/test", status_code=202, tags=["webhooks"])
async def try_hook(
    hook_id: HookId, parts: PartsDep, who: Hooker
) -> Annotated[dict[str, Any], Shape(shapes.Delivery)]:
    """A delivery of kind `TEST`, whatever kinds it is told of; at once, signed and tried again as
    any other. Its log says what came of it.
    """
    return _delivery_view(await webhooks.test(parts.market, who, hook_id))


@router.get("/webhooks/{hook_id}/deliveries", tags=["webhooks"])
async def list_deliveries(
    hook_id: HookId, parts: PartsDep, who: Hooker, cursor: Cursor = "", limit: Limit = 50
) -> Annotated[dict[str, Any], Shape(shapes.Deliveries)]:
    """What was sent and what was answered, newest first; three days are kept."""
    hook = await webhooks.owned(parts.market, who, hook_id)
    found = await parts.market.store.find(
        Delivery, hook=hook.id, order=("-id",), after=place_in(cursor, 1), limit=limit + 1
    )
    return page_of([_delivery_view(d) for d in found[:limit]], found, limit, lambda d: (d.id,))


def _delivery_view(delivery: Delivery) -> dict[str, Any]:
    good = 200 <= delivery.status < 300
    state = "WAITING" if not delivery.done_ms else "DELIVERED" if good else "GIVEN_UP"
    return {
        "id": delivery.id,
        "state": state,
        "body": delivery.body,
        "attempts": delivery.attempts,
        "status": delivery.status,
        "error": delivery.error,
        "next_at_ms": 0 if delivery.done_ms else delivery.next_ms,
        "done_at_ms": delivery.done_ms,
    }


def _hook_view(hook: Hook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "url": hook.url,
        "kinds": hook.kinds,
        "created_at_ms": hook.created_ms,
        "rotation": hook.rotation,
        "failures": hook.failures,
    }


@router.put(
    "/blobs/{sha256}",
    tags=["blobs"],
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": BYTES},
        }
    },
)
async def put_blob(
    sha256: Sha256, request: Request, parts: PartsDep, who: Porter
) -> Annotated[dict[str, Any], Shape(shapes.Blob)]:
    """A file for jobs to take in, named by the hash of its bytes."""
    told = request.headers.get("content-length", "")
    size = int(told) if told.isdigit() else None
    blob = await parts.blobs.put(who.account, sha256, request.stream(), size, who.address)
    return {"sha256": blob.sha256, "size": blob.size}


@router.get("/blobs", tags=["blobs"])
async def list_blobs(
    parts: PartsDep, who: Porter
) -> Annotated[dict[str, Any], Shape(shapes.Blobs)]:
    """What this account has put or got."""
    found = await parts.market.store.find(Blob, account=who.account, limit=1000)
    return {"items": [{"sha256": b.sha256, "size": b.size} for b in found], "next": None}


@router.get(
    "/blobs/{sha256}",
    tags=["blobs"],
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": BYTES}}},
)
async def get_blob(sha256: Sha256, parts: PartsDep, who: Porter) -> FileResponse:
    """Its bytes."""
    path = await parts.blobs.owned(who.account, sha256)
    return FileResponse(path, media_type="application/octet-stream")


@router.delete("/blobs/{sha256}", tags=["blobs"])
async def drop_blob(
    sha256: Sha256, parts: PartsDep, who: Porter
) -> Annotated[dict[str, Any], Shape(shapes.RemovedBlob)]:
    """Refused while a job that has not ended takes it in. Its bytes count for the quota no more."""
    await parts.blobs.remove(who, sha256)
    return {"sha256": sha256, "removed": True}
