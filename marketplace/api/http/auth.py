"""Who is asking: the bearer token of a signed-in wallet, or an API key; with its verb and its
rate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, cast

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from marketplace.api.http.limits import Addresses, Rates, client_of
from marketplace.domain.errors import Unauthenticated
from marketplace.hub.adapters import AdapterHub
from marketplace.hub.outputs import Outputs
from marketplace.hub.payers import PayerHub
from marketplace.market.accounts import access
from marketplace.market.accounts.access import Caller
from marketplace.market.accounts.blobs import Blobs
from marketplace.market.context import Market
from marketplace.market.leases.adapters import Adapters
from marketplace.registry.tokens import TokenKey

bearer = HTTPBearer(
    auto_error=False, description="A sign-in token (POST /v1/auth/verify) or an API key"
)


class Parts:
    """What the routes of one process share; it hangs on ``app.state.parts``."""

    def __init__(
        self, market: Market, adapters: Adapters, blobs: Blobs, hub: AdapterHub, payers: PayerHub
    ) -> None:
        self.market, self.adapters, self.blobs = market, adapters, blobs
        self.hub, self.payers = hub, payers
        self.outputs = Outputs(market, hub, blobs)
        self.rates = Rates()
        settings = market.settings
        self.addresses = Addresses(settings.open_per_address, settings.requests_per_minute)
        self.public_url = ""
        self.registry_key: TokenKey | None = None  # of the registry's tokens; none: no registry
        self.mainnet = False
        self.ready = False
        self.network_known = True
        self.chain_fault = ""  # why the chain cannot be asked just now; empty while it can


def parts_of(request: Request) -> Parts:
    """The process's parts."""
    return cast(Parts, request.app.state.parts)


PartsDep = Annotated[Parts, Depends(parts_of)]
Given = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def address_of(request: Request) -> str:
    """By what the client's network address is counted, as far as we see it."""
    return client_of(request.scope)


def spend(request: Request, parts: Parts, name: str, per_minute: int, tokens: int = 1) -> None:
    """RateLimited once *name* has asked so often within a minute; what is left is in the answer's
    head either way."""
    try:
        parts.rates.spend(name, per_minute, tokens)
    finally:
        request.state.left = parts.rates.left(name, per_minute)


def public(request: Request, parts: PartsDep) -> None:
    """Anybody, within the rate of one address."""
    spend(request, parts, f"ip:{address_of(request)}", parts.market.settings.requests_per_minute)


def login_rate(request: Request, parts: PartsDep) -> None:
    """Signing in costs the market a signature check, so its rate is lower."""
    spend(request, parts, f"login:{address_of(request)}", parts.market.settings.logins_per_minute)


async def _caller(request: Request, parts: Parts, token: str, verb: str) -> Caller:
    if not token:
        public(request, parts)
        raise Unauthenticated("this needs a sign-in token or an API key")
    try:
        who = await access.caller_of(parts.market, token)
    except Unauthenticated:
        public(request, parts)
        raise
    spend(request, parts, f"account:{who.account}", parts.market.settings.requests_per_minute)
    who.may(verb)
    return replace(who, address=address_of(request))


def allowed(verb: str) -> Callable[..., Awaitable[Caller]]:
    """A dependency: the caller, if it may do *verb*."""

    async def check(request: Request, parts: PartsDep, given: Given) -> Caller:
        return await _caller(request, parts, given.credentials if given else "", verb)

    return check


async def follower(
    request: Request,
    parts: PartsDep,
    given: Given,
    token: Annotated[
        str, Query(max_length=200, description="the credential, for browsers' EventSource alone")
    ] = "",
) -> Caller:
    """A reader of an event stream, whose credential a browser's EventSource can put nowhere but
    into the address; nobody else's is looked for there, since addresses are kept in histories and
    logs.
    """
    return await _caller(request, parts, given.credentials if given else token, "read")


Reader = Annotated[Caller, Depends(allowed("read"))]
Follower = Annotated[Caller, Depends(follower)]
Worker = Annotated[Caller, Depends(allowed("jobs"))]
Treasurer = Annotated[Caller, Depends(allowed("channels"))]
Porter = Annotated[Caller, Depends(allowed("blobs"))]
Hooker = Annotated[Caller, Depends(allowed("webhooks"))]
Locksmith = Annotated[Caller, Depends(allowed("keys"))]
