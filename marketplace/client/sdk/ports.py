"""A port of a running job's workload, or a service, opened in a browser or shared with others."""

from __future__ import annotations

from typing import Any, Final

from marketplace.client.net.answers import (
    LinkAnswer,
    LinksAnswer,
    NewLinkAnswer,
    TicketAnswer,
)
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read

DAY_MS: Final = 86_400_000


class Entrance:
    """``job.port(8888)``, or of a service. Every method: NotFound for a port that the job does not
    name, and ``NO_APP_DOMAIN`` where the market has no domain for addresses of their own.
    """

    def __init__(self, http: Http, path: str) -> None:
        self._http, self._path = http, path

    @staticmethod
    def of_port(http: Http, job: str, port: int) -> Entrance:
        """Of a port of a job."""
        return Entrance(http, f"/v1/jobs/{job}/ports/{port}")

    @staticmethod
    def of_service(http: Http, name: str) -> Entrance:
        """Of a service."""
        return Entrance(http, f"/v1/services/{name}")

    async def ticket(self) -> str:
        """An address that opens it in one browser, once, within a minute."""
        return read(TicketAnswer, await self._http.post(f"{self._path}/tickets", {}), "ticket")[
            "url"
        ]

    async def share(self, lasts_ms: int = DAY_MS) -> NewLinkAnswer:
        """A link that opens it to whoever has it, for *lasts_ms*: 1 minute to 30 days."""
        asked: dict[str, Any] = {"lasts_ms": lasts_ms}
        return read(NewLinkAnswer, await self._http.post(f"{self._path}/links", asked), "link")

    async def links(self) -> list[LinkAnswer]:
        """The links that open it, oldest first."""
        return read(LinksAnswer, await self._http.get(f"{self._path}/links"), "links")["items"]

    async def end_link(self, link: str) -> None:
        """End a link, by its id; also for those who came in by it."""
        await self._http.delete(f"{self._path}/links/{link}")
