"""Where a market is: its origin as clients dial it, which is what they sign when they sign anything
for it.

A market that passes a client's challenge on to another market cannot pass on its address with it:
the signature names the place that the client itself dialled.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from marketplace.domain.errors import Malformed

_PORTS: Final = {"http": 80, "https": 443}
_SOCKETS: Final = {"ws": "http", "wss": "https"}
_HOST: Final = re.compile(r"[a-z0-9_.-]{1,253}|[0-9a-f:.]{2,45}")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def origin_of(url: str) -> str:
    """``scheme://host[:port]`` of *url* as a browser's ``location.origin`` has it (RFC 6454,
    section 6.2): lower case, no default port, no path; ws and wss are http and https. Malformed for
    anything else.
    """
    try:
        parts = urlsplit(url.strip())
        scheme = _SOCKETS.get(parts.scheme.lower(), parts.scheme.lower())
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except (ValueError, UnicodeError) as error:
        raise Malformed(f"{url[:100]!r} is not an address") from error
    if scheme not in _PORTS or not _HOST.fullmatch(host):
        raise Malformed(f"{url[:100]!r} is not an address: http:// or https:// and a host")
    return _written(scheme, host, _PORTS[scheme] if port is None else port)


def origins(url: str) -> tuple[str, ...]:
    """Every way to dial *url*'s host: one, or the three names of this very machine."""
    origin = origin_of(url)
    parts = urlsplit(origin)
    if parts.hostname not in _LOOPBACK:
        return (origin,)
    port = parts.port or _PORTS[parts.scheme]
    others = [_written(parts.scheme, host, port) for host in _LOOPBACK]
    return (origin, *(other for other in others if other != origin))


def is_loopback(host: str) -> bool:
    """Whether *host* is this very machine."""
    return host in _LOOPBACK


def host_of(origin: str) -> str:
    """What a person reads of *origin*: its host, and the port where it is not the usual one."""
    return origin.partition("://")[2]


def _written(scheme: str, host: str, port: int) -> str:
    try:
        shown = f"[{ipaddress.IPv6Address(host).compressed}]"
    except ValueError:
        shown = host
    return f"{scheme}://{shown}" + ("" if port == _PORTS[scheme] else f":{port}")
