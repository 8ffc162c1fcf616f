"""Clusters: orders to their members, and how they stand."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from marketplace.api.http.auth import PartsDep, Reader, Worker
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import clusters as shapes
from marketplace.api.schemas.names import GangId, LeaseId
from marketplace.api.schemas.shape import Shape
from marketplace.domain.work.cluster_order import SignedOrder
from marketplace.market.jobs import clusters

router = APIRouter(prefix="/v1", tags=["gangs", "leases"], responses=documented(*EVERYWHERE))


@router.post("/leases/{lease_id}/order", summary="Order what a cluster's member does")
async def order_member(
    lease_id: LeaseId, body: shapes.OrderBody, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.OrderKept)]:
    """Signed by the lease's session key, above the version that is kept: the market passes it on,
    and cannot make one. Its provider hears of it at once, and whenever it comes back.
    """
    asked = SignedOrder(bytes.fromhex(body.body), bytes.fromhex(body.signature))
    return await clusters.order(parts.market, who, lease_id, asked)


@router.post("/gangs/{gang_id}/guest", summary="Leave to use the relay for a machine of one's own")
async def pass_guest(
    gang_id: GangId, body: shapes.GuestBody, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.GuestPass)]:
    """For some minutes, for a guest of a cluster's mesh. Its members take it only if the key of
    their lease says so: this lets nobody in.
    """
    return await clusters.guest(parts.market, who, gang_id, body.number)


@router.get("/gangs/{gang_id}/cluster", summary="How the members of a cluster stand")
async def get_cluster(
    gang_id: GangId, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Cluster)]:
    """With what was signed about each: check it against the terms of its lease."""
    return await clusters.view(parts.market, who, gang_id)
