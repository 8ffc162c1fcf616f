"""The server of the market's stores, asked as the market itself: how much is in one, and that it
goes.
"""

from __future__ import annotations

from typing import Any, Final, cast

import httpx

from marketplace.domain.errors import Fault
from marketplace.domain.work.cluster_store import Leave, StorePlace
from marketplace.market.base.errors import StoreInUse
from marketplace.market.base.ports import StoreHeld
from marketplace.system import SystemClock

DEADLINE_S: Final = 30.0
LEAVE_S: Final = 60


class StoresSilent(Fault):
    """The server of the market's stores does not answer as one."""

    code = "STORES_SILENT"
    remedy = "is the market's process that has --store running, and reached by its --store-url?"


class HttpStores:
    """That at *place*, asked by *http*."""

    def __init__(self, place: StorePlace, http: httpx.AsyncClient) -> None:
        self._place, self._http = place, http

    async def held(self, store: str) -> StoreHeld | None:
        """What is in it; None: there is none. StoresSilent."""
        said = await self._asked("GET", store)
        try:
            if said.get("code") == "STORE_GONE":
                return None
            return StoreHeld(
                int(said["bytes"]), int(said["entries"]), int(said["used_s"]) * 1000
            )  # fmt: skip
        except (ValueError, KeyError, TypeError) as error:
            raise StoresSilent(f"it does not say how much is in a store: {said}") from error

    async def remove(self, store: str) -> bool:
        """It, with all that is in it; False: there is none. StoreInUse, StoresSilent."""
        said = await self._asked("DELETE", store)
        if said.get("code") == StoreInUse.code:
            raise StoreInUse("a member of a cluster that runs uses it")
        if said.get("removed") is not True and said.get("code") != "STORE_GONE":
            raise StoresSilent(f"it does not say that a store is gone: {said}")
        return "removed" in said

    async def _asked(self, method: str, store: str) -> dict[str, Any]:
        """What it says, by its own word: whatever else stands at that address says it not."""
        until = SystemClock().now_ms() // 1000 + LEAVE_S
        given = self._place.let(Leave("market", store, until_s=until))
        head = {"Authorization": f"Bearer {given.token}"}
        try:
            answer = await self._http.request(method, given.url, headers=head)
            said = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise StoresSilent(str(error) or type(error).__name__) from error
        if not isinstance(said, dict):
            raise StoresSilent(f"status {answer.status_code}")
        return cast("dict[str, Any]", said)
