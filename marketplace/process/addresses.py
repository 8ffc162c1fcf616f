"""The addresses of a market process: where clients dial it, where its other processes reach it, and
under which domain workloads have origins of their own.
"""

from __future__ import annotations

import socket
from typing import Protocol

from marketplace.domain.app_origin import AppDomain
from marketplace.domain.site import host_of, is_loopback, origins


class Told(Protocol):
    """What of it a configuration says (``process.main.Config``)."""

    @property
    def host(self) -> str: ...
    @property
    def public_url(self) -> str: ...
    @property
    def also_urls(self) -> tuple[str, ...]: ...
    @property
    def internal_url(self) -> str: ...
    @property
    def apps_url(self) -> str: ...


def names_of(told: Told, port: int) -> tuple[str, ...]:
    """The origins at which clients may dial this process, the public one first."""
    urls = [url for url in (told.public_url, *told.also_urls) if url]
    if not told.public_url:
        host = f"[{told.host}]" if ":" in told.host else told.host
        anywhere = told.host in ("", "0.0.0.0", "::")
        hosts = ["127.0.0.1", *_own_hosts()] if anywhere else [host]
        urls = [f"http://{host}:{port}" for host in hosts] + urls
    return tuple(dict.fromkeys(name for url in urls for name in origins(url)))


def _own_hosts() -> list[str]:
    """This machine's name and addresses, as far as it knows them itself."""
    name = socket.gethostname()
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    except OSError:
        return [name]
    return [name, *sorted(f"[{one}]" if ":" in one else one for one in found if "%" not in one)]


def inside(told: Told, port: int) -> str:
    """Where the market's other processes reach this one: as told, or where it listens."""
    host = told.host if told.host not in ("", "0.0.0.0", "::") else socket.gethostname()
    host = f"[{host}]" if ":" in host else host
    return (told.internal_url or f"http://{host}:{port}").rstrip("/")


def apps_of(told: Told, names: tuple[str, ...], port: int) -> AppDomain | None:
    """The domain of workloads' origins: as told, and apart from the market's own *names*
    (Malformed); for a market of this machine alone ``localhost``, whose every name is this machine
    to a browser, unless the market itself is dialled by one of those; else none.
    """
    if told.apps_url:
        return AppDomain.at(told.apps_url).apart_from(names)
    here = AppDomain("http", "localhost", port)
    if told.public_url or not is_loopback(told.host) or any(map(here.holds, map(host_of, names))):
        return None
    return here
