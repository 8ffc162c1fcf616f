"""The console's pages of what an account runs beside single jobs: its services, its images and its
gangs; and the terminal in a job.

A terminal's screen is a page of its own, in a sandbox without an origin: a library of others parses
there what a workload shows, and reaches neither the console's token nor the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from marketplace.api.http.auth import Parts, PartsDep, public
from marketplace.api.routes import images as image_routes
from marketplace.api.routes import services as service_routes
from marketplace.console import gangs
from marketplace.console.page import Viewer, page
from marketplace.console.rendering import folder
from marketplace.domain.errors import Fault, NotFound
from marketplace.domain.work.image_access import namespace_of
from marketplace.domain.work.shells import ANY_SHELL
from marketplace.market.base.records import LogRecord
from marketplace.market.jobs import clusters, views
from marketplace.market.jobs import gangs as gang_use
from marketplace.market.jobs.jobs import owned_job

SCREEN: Final = "/terminal-screen"
SCREEN_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
)
"""Of the screen alone. Its library writes styles into its page, which a page with something to lose
would not let it do; here nothing can be asked of anybody (``connect-src``, ``img-src``: none).
"""
_PARTS: Final = {
    "xterm.js": "@xterm/xterm/lib/xterm.js",
    "xterm.css": "@xterm/xterm/css/xterm.css",
    "addon-fit.js": "@xterm/addon-fit/lib/addon-fit.js",
}

router = APIRouter(include_in_schema=False, dependencies=[Depends(public)])


@router.get("/services")
async def services(request: Request, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """One address each, and the jobs behind it."""
    found = (await service_routes.mine(parts, who))["items"]
    return page(request, "services", who, services=found)


@router.get("/images")
async def images(request: Request, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """What lies in the market's registry of theirs; the page stands also where that is silent."""
    held, silent = None, ""
    if parts.market.own_registry is not None:
        try:
            held = await image_routes.holdings(parts, who)
        except Fault as fault:
            silent = f"The market's registry does not answer ({fault.code}). Try again later."
    return page(
        request, "images", who, held=held, silent=silent,
        registry=parts.market.settings.registry, namespace=namespace_of(who.account),
    )  # fmt: skip


@router.get("/gangs/{gang_id}")
async def gang(request: Request, gang_id: str, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """All members of a gang as one: how they stand, what they cost together, what they say."""
    market = parts.market
    members = await gang_use.owned(market, who, gang_id)
    spec = members[0].parsed
    made, _ = await market.gang(gang_id)
    seen = await clusters.view(market, who, gang_id) if spec.cluster is not None else None
    views_of = await views.job_views(market, members)
    rows = gangs.rows_of(views_of, seen)
    printed = [await _printed(parts, one, len(members)) for one in views_of]
    pairs = gangs.pairs_of(rows)
    return page(
        request, "gang", who, id=gang_id, title=spec.name, state=made.state.name, rows=rows,
        standing=gangs.standing(spec.cluster, seen) if spec.cluster and seen else None,
        mesh=gangs.picture_of(rows) if spec.cluster is not None and spec.cluster.mesh else None,
        pairs=pairs[: gangs.MOST_PAIRS], more=len(pairs) - gangs.MOST_PAIRS,
        totals={name: sum(one[name] for one in views_of) for name in ("spent", "budget")},
        leases=sum(len(one["leases"]) for one in views_of), log=gangs.log_of(printed),
    )  # fmt: skip


async def _printed(parts: Parts, job: Mapping[str, Any], members: int) -> list[LogRecord]:
    """The newest pieces of what the lease that speaks for *job* wrote, by offset."""
    lease = job["lease"] or (job["leases"][-1] if job["leases"] else "")
    newest = await parts.market.store.find(
        LogRecord, job=job["id"], lease=lease, order=("-offset",),
        limit=max(8, gangs.LOG_ROWS // members),
    )  # fmt: skip
    return newest[::-1]


@router.get("/jobs/{job_id}/terminal")
async def terminal(request: Request, job_id: str, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """A terminal in a job that runs."""
    mine = await owned_job(parts.market, who, job_id)
    view = await views.job_view(parts.market, mine)
    there = all(_part(name).is_file() for name in _PARTS)
    command = json.dumps(ANY_SHELL)
    return page(request, "terminal", who, job=view, screen=there, command=command)


@router.get(SCREEN)
async def screen(request: Request) -> HTMLResponse:
    """The page in the sandbox."""
    return page(request, "terminal-screen", None)


@router.get(SCREEN + "/{name}")
async def part(name: str) -> Response:
    """What that page takes from others. NotFound."""
    file = _part(name)
    if name not in _PARTS or not file.is_file():
        raise NotFound("no such part of a terminal's screen")
    return FileResponse(file, headers={"Cache-Control": "no-cache"})


def _part(name: str) -> Path:
    """In the installed package, or where npm put it in a checkout."""
    packaged = folder() / "screen" / name
    return packaged if packaged.is_file() else folder() / "node_modules" / _PARTS.get(name, "")
