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
_OK, _GONE, _IN_USE = 200, 404, 409


class StoresSilent(Fault):
    """The server of the market's stores does not answer as one."""

    code = "STORES_SILENT"
    remedy = "is the process that has --store-folder running, and reached by --store-url?"


class HttpStores:
    """That at *place*."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place

    async def held(self, store: str) -> StoreHeld | None:
        """What is in it; None: there is none. StoresSilent."""
        answer = await self._asked("GET", store)
        if answer.status_code == _GONE:
            return None
        try:
            said = cast("dict[str, Any]", answer.json())
            return StoreHeld(
                int(said["bytes"]), int(said["entries"]), int(said["used_s"]) * 1000
            )  # fmt: skip
        except (ValueError, KeyError, TypeError) as error:
            raise StoresSilent(f"it does not say how much is in a store: {error}") from error

    async def remove(self, store: str) -> bool:
        """It, with all that is in it; False: there is none. StoreInUse, StoresSilent."""
        answer = await self._asked("DELETE", store)
        if answer.status_code == _IN_USE:
            raise StoreInUse("a member of a cluster that runs uses it")
        return answer.status_code == _OK

    async def _asked(self, method: str, store: str) -> httpx.Response:
        until = SystemClock().now_ms() // 1000 + LEAVE_S
        given = self._place.let(Leave("market", store, until_s=until))
        head = {"Authorization": f"Bearer {given.token}"}
        try:
            async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
                answer = await http.request(method, given.url, headers=head)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise StoresSilent(str(error) or type(error).__name__) from error
        known = (_OK, _GONE, _IN_USE) if method == "DELETE" else (_OK, _GONE)
        if answer.status_code not in known:
            raise StoresSilent(f"status {answer.status_code}")
        return answer
