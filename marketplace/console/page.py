"""What every page of the console shares: who reads it, and how a template becomes an answer."""

from __future__ import annotations

from typing import Annotated, Any, Final, cast

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from marketplace.api.http.auth import Parts, PartsDep
from marketplace.console.assets import version
from marketplace.domain.errors import TallyError
from marketplace.market.accounts import access
from marketplace.market.accounts.access import Caller
from marketplace.version import release

COOKIE: Final = "tally_session"


class SignInFirst(Exception):
    """This page belongs to an account, and nobody is signed in."""


async def viewer(request: Request, parts: PartsDep) -> Caller | None:
    """Who is signed in to the pages, if anybody."""
    token = request.cookies.get(COOKIE, "")
    if not token.startswith(access.KEY_PREFIX + "s_"):
        return None
    try:
        return await access.caller_of(parts.market, token)
    except TallyError:
        return None


MaybeViewer = Annotated[Caller | None, Depends(viewer)]


async def signed_in(who: MaybeViewer) -> Caller:
    """The reader, or the way to the sign-in page."""
    if who is None:
        raise SignInFirst
    return who


Viewer = Annotated[Caller, Depends(signed_in)]


def page(request: Request, name: str, who: Caller | None, **values: Any) -> HTMLResponse:
    """One template."""
    templates = cast(Environment, request.app.state.templates)
    parts = cast(Parts, request.app.state.parts)
    html = templates.get_template(f"{name}.html").render(
        page=name, account=who.account if who else "", magic=parts.market.settings.magic,
        path=request.url.path, version=release(), assets=f"/assets/{version()}", **values,
    )  # fmt: skip
    return HTMLResponse(html, headers={"Cache-Control": "no-store"})
