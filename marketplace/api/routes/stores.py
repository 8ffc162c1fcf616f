"""An account's stores of the market's own, which clusters write to (``cluster.store``)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from marketplace.api.http.auth import PartsDep, Porter, Reader
from marketplace.api.http.paging import Cursor, Limit, page_of, place_in
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import stores as shapes
from marketplace.api.schemas.names import StoreName
from marketplace.api.schemas.shape import Shape
from marketplace.market.accounts import stores

router = APIRouter(prefix="/v1/stores", tags=["stores"], responses=documented(*EVERYWHERE))


@router.get("", summary="Your stores")
async def mine(
    parts: PartsDep, who: Reader, cursor: Cursor = "", limit: Limit = 50
) -> Annotated[dict[str, Any], Shape(shapes.Stores)]:
    """How much lies in each. One that no cluster used for long is removed by the market."""
    market = parts.market
    known = await stores.known(market, who, place_in(cursor, 1), limit + 1)
    items = [
        {
            "name": one.name,
            "bytes": held.bytes,
            "entries": held.entries,
            "used_at_ms": held.used_ms,
        }
        for one, held in await stores.held(market, known[:limit])
    ]
    return page_of(items, known, limit, lambda one: (one.name,))


@router.post("/{name}/pass", summary="Leave to read and write a store")
async def lend(
    name: StoreName, parts: PartsDep, who: Porter
) -> Annotated[dict[str, Any], Shape(shapes.StorePass)]:
    """For an hour, at the server where it lies: `tally store rclone` asks for it. What lies there
    is encrypted with a key that follows from the purse, which the market does not have.
    """
    given, until_ms = await stores.lend(parts.market, who, name)
    return {"name": name, "url": given.url, "token": given.token, "expires_at_ms": until_ms}


@router.delete("/{name}", summary="Remove a store")
async def remove(
    name: StoreName, parts: PartsDep, who: Porter
) -> Annotated[dict[str, Any], Shape(shapes.RemovedStore)]:
    """With all that lies in it; nothing brings it back. Not while a cluster uses it."""
    await stores.remove(parts.market, who, name)
    return {"name": name, "removed": True}
