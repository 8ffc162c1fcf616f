"""The market's router: its offer, and the channels of consumers to it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from marketplace.api.http.auth import PartsDep, Reader, Treasurer, public
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import routing
from marketplace.api.schemas.names import SessionVk
from marketplace.api.schemas.requests import HopBody, unhex
from marketplace.api.schemas.shape import Shape
from marketplace.domain.errors import Malformed
from marketplace.market.base.errors import OtherPurse
from marketplace.market.base.routing import HopView
from marketplace.market.leases.hops import router_of

router = APIRouter(prefix="/v1/router", tags=["router"], responses=documented(*EVERYWHERE))


@router.get(
    "", summary="The router's offer, and what it could carry", dependencies=[Depends(public)]
)
async def get_router(parts: PartsDep) -> Annotated[dict[str, Any], Shape(routing.Router)]:
    """`NO_ROUTER` where this market passes on no payments."""
    its = router_of(parts.market)
    offer = its.offer
    return {
        "offer": offer.body.hex(),
        "signature": offer.signature.hex(),
        "free": its.free(),
        "hops_out": its.hops_out(),
    }


@router.post(
    "/hops",
    status_code=201,
    summary="Say that a channel to the router was opened",
    response_model=routing.Hop,
)
async def announce_hop(body: HopBody, parts: PartsDep, who: Treasurer) -> JSONResponse:
    """The router looks at it through its own chain; said twice, it is one."""
    its = router_of(parts.market)
    owner = body.consumer_vkh or who.account
    if owner != who.account:
        raise OtherPurse("consumer_vkh is not the key hash of the account that asks")
    key = bytes.fromhex(body.session_vk)
    seen = await its.announce(who.account, key, bytes.fromhex(owner), body.tx, body.index)
    return JSONResponse(_hop(seen), 201, {"Location": f"/v1/router/hops/{body.session_vk}"})


@router.get("/hops/{session_vk}", summary="One of your channels to the router")
async def get_hop(
    session_vk: SessionVk, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(routing.Hop)]:
    """As the router sees it. Nobody else's is shown."""
    if len(session_vk) != 64:
        raise Malformed("a hop is named by its session key: 64 hex digits")
    its = router_of(parts.market)
    return _hop(its.hop(who.account, unhex(session_vk, "session_vk")))


def _hop(seen: HopView) -> dict[str, Any]:
    return {**asdict(seen), "session_vk": seen.session_vk.hex()}
