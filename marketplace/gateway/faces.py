"""What passes between a browser and a workload, by where the browser meets it: under the market's
own address, or at an origin of the port's own.

Neither way does a credential of the market's reach the workload, nor does the workload set or read
a cookie of the market's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import unquote_plus

import h11
from starlette.datastructures import Headers

from marketplace.api.http import relay
from marketplace.market.accounts.access import KEY_PREFIX

SANDBOX: Final = "sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals"
HOP: Final = frozenset(  # of one connection alone (RFC 9110, section 7.6.1)
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
_WHOLE_HOST: Final = frozenset(
    # They speak for more than one origin: the site, or every name and port of the host.
    {"clear-site-data", "strict-transport-security", "alt-svc", "nel", "report-to"}
)
_MARKETS: Final = frozenset(  # as are these where the origin is the market's
    {"content-security-policy", "reporting-endpoints", "service-worker-allowed", "www-authenticate"}
)
_OURS: Final = ("tally_", "__host-tally_")


class Face(Protocol):
    """Where a browser meets a workload."""

    @property
    def prefix(self) -> str:
        """Stripped of every path; empty: none."""
        ...

    def asked(self, headers: Headers) -> list[tuple[str, str]]:
        """Of a request's headers those that are the workload's business."""
        ...

    def shown(self, head: h11.Response) -> list[tuple[bytes, bytes]]:
        """Of an answer's headers those that are the browser's business, in lower case."""
        ...


@dataclass(frozen=True)
class UnderTheMarket:
    """``/p/JOB/PORT/`` of the market: a page there is put in a sandbox, an origin of no name."""

    prefix: str

    def asked(self, headers: Headers) -> list[tuple[str, str]]:
        """All but what is the market's, and an address with a token in it."""
        kept = [
            (n, v) for n, v in _passing(headers)
            if n != "authorization" and not (n == "referer" and "token=" in v)
        ]  # fmt: skip
        return [*kept, ("x-forwarded-prefix", self.prefix)]

    def shown(self, head: h11.Response) -> list[tuple[bytes, bytes]]:
        """Nothing that speaks for the market's host; cookies for these paths alone."""
        shown = _answered(head, _WHOLE_HOST | _MARKETS, f"{self.prefix}/")
        return [
            *(one for one in shown if one[0] != b"x-content-type-options"),
            (b"content-security-policy", SANDBOX.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]


@dataclass(frozen=True)
class OwnOrigin:
    """An origin of the port's own, where a workload may do as any site does. *host*: as it was
    dialled, with the port.
    """

    scheme: str
    host: str
    prefix: str = ""

    def asked(self, headers: Headers) -> list[tuple[str, str]]:
        """All but what is the market's: a workload may have names and passwords of its own. And how
        it is dialled, for what it builds links of.
        """
        kept = [
            (n, v) for n, v in _passing(headers)
            if not (n == "authorization" and market_bearer(v))
            and not (n == "referer" and "/.tally/" in v)
            and n not in ("x-forwarded-proto", "x-forwarded-host")
        ]  # fmt: skip
        told = [("x-forwarded-proto", self.scheme), ("x-forwarded-host", self.host)]
        return [*kept, *told]

    def shown(self, head: h11.Response) -> list[tuple[bytes, bytes]]:
        """Nothing that speaks for more than this origin; cookies for this host alone."""
        return _answered(head, _WHOLE_HOST, "")


def market_bearer(authorization: str) -> str:
    """The session token or API key that a header gives; empty: it is none of this market's."""
    kind, _, token = authorization.partition(" ")
    token = token.strip()
    return token if kind.lower() == "bearer" and token.startswith(KEY_PREFIX) else ""


def query(raw: str, without: str) -> str:
    """``?`` and the query, without what is named *without*; empty where nothing is left."""
    kept = [part for part in raw.split("&") if part and unquote_plus(part.split("=")[0]) != without]
    return "?" + "&".join(kept) if kept else ""


def _passing(headers: Headers) -> Iterable[tuple[str, str]]:
    for name, value in headers.items():
        lower = name.lower()
        if lower == "cookie":
            value = _foreign_cookies(value)
        if value and lower not in HOP and lower not in (relay.MARK, relay.REPLICA):
            yield lower, value


def _answered(head: h11.Response, dropped: frozenset[str], path: str) -> list[tuple[bytes, bytes]]:
    shown: list[tuple[bytes, bytes]] = []
    for name, value in head.headers:
        lower = name.lower()
        if lower == b"set-cookie":
            value = _own_cookie(value.decode("latin-1"), path).encode("latin-1")
        if value and lower.decode() not in HOP | dropped and lower.decode() != relay.REPLICA:
            shown.append((lower, value))
    return shown


def _foreign_cookies(value: str) -> str:
    kept = [c.strip() for c in value.split(";") if not c.strip().lower().startswith(_OURS)]
    return "; ".join(kept)


def _own_cookie(value: str, path: str) -> str:
    """A workload's cookie, for this host alone and for *path* (empty: what it says); nothing for
    one of the market's names, or of none: a browser sends that one's value alone, which may read as
    a name (RFC 6265bis, 5.7).
    """
    pair, *attributes = [part.strip() for part in value.split(";")]
    name, named, _ = pair.partition("=")
    if not named or not name.strip() or name.strip().lower().startswith(_OURS):
        return ""
    dropped = ("path", "domain") if path else ("domain",)
    kept = [a for a in attributes if a.partition("=")[0].strip().lower() not in dropped]
    return "; ".join([pair, *kept, *([f"Path={path}"] if path else [])])
