"""What a person sees at a workload's address while there is nothing of the workload's to see."""

from __future__ import annotations

import html
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse

from marketplace.api.http.problems import status_of
from marketplace.domain.app_origin import Place
from marketplace.domain.errors import Fault, Forbidden, TallyError, Unauthenticated
from marketplace.market.base.errors import (
    AppNotRunning,
    AppOver,
    NoReplica,
    Offline,
    ReplicaLost,
    Suspended,
)

AGAIN_S: Final = 3
_TITLES: Final[tuple[tuple[type[TallyError], str], ...]] = (
    (AppNotRunning, "It is not running now"),
    (AppOver, "It has ended"),
    (NoReplica, "It starts"),
    (ReplicaLost, "It went away while it answered"),
    (Offline, "It does not answer yet"),
    (Unauthenticated, "This page is not public"),
    (Forbidden, "This page is not public"),
    (Suspended, "This page is not public"),
    (Fault, "The market cannot say just now"),
)
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">{refresh}<title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1rem}}
a{{color:inherit}}@media(prefers-color-scheme:dark){{body{{background:#111;color:#eee}}}}</style></head>
<body><main><h1>{title}</h1><p>{why}</p><p>{remedy}</p>{link}<p><code>{code}</code></p></main></body></html>
"""


def wanted(request: Request) -> bool:
    """Whether a person looks, and no program."""
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")


def page(error: TallyError, market: str, place: Place | None) -> HTMLResponse:
    """*error* for a person; what passes by itself is looked at again. *market*: its address."""
    again = isinstance(error, Fault)
    title = next((text for kind, text in _TITLES if isinstance(error, kind)), "Nothing is here")
    link = ""
    if place is not None:
        at = html.escape(market if place.name else f"{market}/jobs/{place.job}", quote=True)
        whose = "The market that it is at" if place.name else "Its job at the market"
        link = f'<p><a href="{at}" rel="noreferrer">{whose}</a></p>'
    body = _PAGE.format(
        title=title, why=html.escape(_sentence(error.message)),
        remedy=html.escape(_sentence(error.remedy)), link=link, code=html.escape(error.code),
        refresh=f'<meta http-equiv="refresh" content="{AGAIN_S}">' if again else "",
    )  # fmt: skip
    headers = {
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    if again:
        headers["Retry-After"] = str(AGAIN_S)
    return HTMLResponse(body, status_of(error), headers)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""
