"""Each port of a workload has an origin of its own: ``https://8888-01ABC….apps.example``; and so
has each service, whose name stands in the port's place.

A browser keeps cookies, storage and service workers apart by origin, so what a stranger's workload
serves there can touch neither the market nor another workload. The name is one DNS label: the port
and the job's id without its prefix, which is the same for all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from marketplace.domain.errors import Malformed
from marketplace.domain.site import is_loopback, origin_of

ENTER: Final = "/.tally/enter"
"""The one path of such an origin that is the market's: where a browser comes in."""
_JOB: Final = "job_"
_SERVICE: Final = "svc_"
_LABEL: Final = re.compile(r"([1-9]\d{0,4}|[a-z](?:[a-z0-9-]{0,34}[a-z0-9])?)-([0-9a-z]{26})")
SERVICE_NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,34}[a-z0-9])?")
"""With its id a DNS label (63 characters, RFC 1035), which no port's can be taken for."""


@dataclass(frozen=True)
class Place:
    """A port of a job; or, with port 0, whatever the replicas of a service serve: then *job* is the
    service's id, and *name* its name.
    """

    job: str
    port: int
    name: str = ""


@dataclass(frozen=True)
class AppDomain:
    """Under which the origins are; *port* is None where it is the scheme's own."""

    scheme: str
    host: str
    port: int | None = None

    @staticmethod
    def at(url: str) -> AppDomain:
        """Of *url*, ``https://apps.example`` or ``http://localhost:8000``. Malformed: an address by
        number, under which nothing can be named.
        """
        parts = urlsplit(origin_of(url))
        host = parts.hostname or ""
        if ":" in host or re.fullmatch(r"[\d.]+", host):
            raise Malformed(f"{url[:100]!r} has no names under it: a domain has")
        return AppDomain(parts.scheme, host, parts.port)

    def apart_from(self, names: tuple[str, ...]) -> AppDomain:
        """Itself; Malformed where one of *names*, the market's own origins, is under it or is it:
        a workload's page may set cookies for all that lies under its own parent. ``localhost`` is
        no such parent to a browser, as no top-level domain is.
        """
        for name in names:
            host = urlsplit(name).hostname or ""
            inside = host == self.host or host.endswith(f".{self.host}")
            if inside and not is_loopback(self.host):
                raise Malformed(
                    f"{self.host} holds the market's own address {host}, and workloads' pages may "
                    "set cookies for all of it: give them a domain beside it or under it"
                )
        return self

    @property
    def secure(self) -> bool:
        """Whether it is served over TLS."""
        return self.scheme == "https"

    def origin(self, place: Place) -> str:
        """Of a port of a job, or of a service; no slash at its end."""
        at = "" if self.port is None else f":{self.port}"
        label = f"{place.name or place.port}-{place.job.partition('_')[2].lower()}"
        return f"{self.scheme}://{label}.{self.host}{at}"

    def entrance(self, place: Place, key: str) -> str:
        """The address that opens an origin to whoever has *key*: a ticket, or a link."""
        return f"{self.origin(place)}{ENTER}?key={key}"

    def holds(self, host: str) -> bool:
        """Whether a request with this ``Host`` is for a name under the domain."""
        return _bare(host).endswith(f".{self.host}")

    def place(self, host: str) -> Place | None:
        """What a ``Host`` names; None for a name that no port has."""
        bare = _bare(host)
        found = _LABEL.fullmatch(bare.removesuffix(f".{self.host}"))
        if not self.holds(host) or found is None:
            return None
        if not found[1].isdecimal():
            return Place(_SERVICE + found[2].upper(), 0, found[1])
        return Place(_JOB + found[2].upper(), int(found[1])) if int(found[1]) <= 65535 else None


def _bare(host: str) -> str:
    """Without the port; a name may end in a dot (RFC 3986, section 3.2.2) and still be it."""
    return host.lower().partition(":")[0].removesuffix(".")
