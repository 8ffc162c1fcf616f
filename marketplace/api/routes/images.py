"""The market's registry of images: its tokens, and who may pull what."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from marketplace.api.http.auth import Parts, PartsDep, Porter, Reader, public, spend
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import images as shapes
from marketplace.api.schemas.names import ImageDigest, ImageName
from marketplace.api.schemas.requests import ImageBody
from marketplace.api.schemas.shape import Shape
from marketplace.domain.errors import Unauthenticated
from marketplace.domain.work.image_access import LEASE_USER, namespace_of
from marketplace.market.accounts import access, images
from marketplace.market.accounts.images import Asked
from marketplace.market.base.errors import NoRegistry
from marketplace.registry.tokens import LIVES_S, Scope, TokenKey, scopes_of

router = APIRouter(prefix="/v1/registry", tags=["images"], responses=documented(*EVERYWHERE))
_MOST_SCOPES = 8


def key_of(parts: Parts) -> TokenKey:
    """NoRegistry where the market has none."""
    if parts.registry_key is None:
        raise NoRegistry("this market keeps no images")
    return parts.registry_key


@router.get("", summary="The market's registry of images", dependencies=[Depends(public)])
async def registry(parts: PartsDep) -> Annotated[dict[str, Any], Shape(shapes.Registry)]:
    """What Distribution is told, so that it believes this market's tokens and no others."""
    key = key_of(parts)
    return {
        "name": images.registry_of(parts.market),
        "realm": f"{parts.public_url}/v1/registry/token",
        "certificate": key.certificate,
    }


@router.get("/token", summary="A token for the registry")
async def token(
    request: Request,
    parts: PartsDep,
    service: Annotated[str, Query(max_length=300, description="the registry's name")] = "",
    scope: Annotated[
        list[str] | None, Query(max_length=_MOST_SCOPES, description="`repository:NAME:pull,push`")
    ] = None,
    account: Annotated[str, Query(max_length=300, description="not looked at")] = "",
    client_id: Annotated[str, Query(max_length=300, description="not looked at")] = "",
    offline_token: Annotated[
        str, Query(max_length=10, description="not looked at: none is given")
    ] = "",
) -> Annotated[dict[str, Any], Shape(shapes.ImageToken)]:
    """As `docker login` and `docker pull` ask for it (Distribution's "Token Authentication"): HTTP
    Basic with any name and an API key or a sign-in token as the password; without, what is public.
    A token says what was granted, which may be less than was asked for.
    """
    key, name = key_of(parts), images.registry_of(parts.market)
    asked = [
        Asked(one.kind, one.name, one.actions)
        for one in scopes_of(part[:500] for part in scope or [])[:_MOST_SCOPES]
    ]
    if service and service != name:
        asked = []  # a token for another registry is none of ours
    subject, quota, given = await _granted(request, parts, asked)
    now = parts.market.now
    made = key.token(
        name, subject, [Scope(one.kind, one.name, one.actions) for one in given], now // 1000, quota
    )
    issued = datetime.fromtimestamp(now // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"token": made, "access_token": made, "expires_in": LIVES_S, "issued_at": issued}


async def _granted(
    request: Request, parts: Parts, asked: list[Asked]
) -> tuple[str, int, list[Asked]]:
    """(whose token it is, the quota that it states, what it allows). Unauthenticated."""
    market = parts.market
    name, password = _basic(request.headers.get("authorization", ""))
    if not password:
        public(request, parts)
        return "", 0, await images.granted(market, None, asked)
    try:
        if name == LEASE_USER and not password.startswith(access.KEY_PREFIX):
            public(request, parts)
            return name, 0, await images.of_lease(market, password, asked)
        who = await access.caller_of(market, password)
    except Unauthenticated:
        public(request, parts)
        raise
    spend(request, parts, f"account:{who.account}", market.settings.requests_per_minute)
    quota = await images.quota(market, who.account)
    return namespace_of(who.account), quota, await images.granted(market, who, asked)


def _basic(header: str) -> tuple[str, str]:
    scheme, _, rest = header.partition(" ")
    if not header:
        return "", ""
    if scheme.lower() == "bearer":
        return "token", rest.strip()
    try:
        name, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = name = password = ""
    if scheme.lower() != "basic" or not colon or not password:
        raise Unauthenticated("a registry's client sends a name and a password (HTTP Basic)")
    return name, password


@router.get("/images", summary="An account's images")
async def mine(parts: PartsDep, who: Reader) -> Annotated[dict[str, Any], Shape(shapes.Images)]:
    """Its namespace, its quota and what is public; `tally image list` asks the registry for the
    rest.
    """
    market = parts.market
    return {
        "registry": images.registry_of(market),
        "namespace": namespace_of(who.account),
        "quota": await images.quota(market, who.account),
        "public": [
            {"repository": one.repository, "created_at_ms": one.created_ms}
            for one in await images.mine(market, who)
        ],
    }


@router.get("/holdings", summary="What an account's images are")
async def holdings(
    parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Holdings)]:
    """Each with its tags, and the room that they take together, as the registry counts it."""
    market = parts.market
    used, found = await images.holdings(market, who)
    public = {one.repository for one in await images.mine(market, who)}
    return {
        "registry": images.registry_of(market),
        "namespace": namespace_of(who.account),
        "used": used,
        "quota": await images.quota(market, who.account),
        "items": [
            {
                "repository": one.repository, "digest": one.digest, "tags": one.tags,
                "bytes": one.bytes, "layers": one.layers, "pushed_at_ms": one.pushed_ms,
                "public": one.repository in public,
            }
            for one in found
        ],
    }  # fmt: skip


@router.delete("/images/{name}/{digest}", summary="Delete an image")
async def delete(
    name: ImageName, digest: ImageDigest, parts: PartsDep, who: Porter
) -> Annotated[dict[str, Any], Shape(shapes.DeletedImage)]:
    """With all its tags. Its room comes back with the registry's next collection; a lease that
    runs keeps what it has.
    """
    repository = await images.delete(parts.market, who, name, digest)
    return {"repository": repository, "digest": digest, "deleted": True}


@router.put("/images/{name}", summary="Who may pull an image")
async def put(
    name: ImageName, body: ImageBody, parts: PartsDep, who: Porter
) -> Annotated[dict[str, Any], Shape(shapes.ImageAccess)]:
    """Anybody, or the account alone and the providers of its leases; also before it is pushed."""
    repository = await images.set_public(parts.market, who, name, body.public)
    return {"repository": repository, "public": body.public}
