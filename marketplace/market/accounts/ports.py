"""Who may open a port of a job, or a service, and what a browser is given to open it with.

A browser shows a stranger's page there, so it never has what opens anything else: a port's token
opens one port of one job, as long as the session or key that it was made from does. To the port's
own origin it gets with a ticket, once and soon, or with a link, which its owner gives to whomever
he likes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from marketplace.domain.app_origin import Place
from marketplace.domain.errors import Conflict, Malformed, NotFound, Unauthenticated
from marketplace.market.accounts import access
from marketplace.market.accounts.access import KEY_PREFIX, Caller
from marketplace.market.base.errors import TooManyLinks
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ApiKey, Job, Login, PortLink, Record
from marketplace.market.context import Market, digest

TICKET_MS: Final = 60_000
LINK_LEAST_MS: Final = 60_000
LINK_MOST_MS: Final = 30 * 86_400_000
MOST_LINKS: Final = 100  # of one account at once
_TICKET: Final = KEY_PREFIX + "t_"
_LINK: Final = KEY_PREFIX + "g_"  # a guest's
_TOKEN: Final = KEY_PREFIX + "p_"


class Owned(Protocol):
    """A job, or a service (whose port is 0)."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def account(self) -> str:
        """Whose it is."""
        ...


def declared(job: Job, port: int) -> str:
    """How *port* of *job* is guarded. NotFound for one that its job file does not name."""
    for one in job.parsed.ports:
        if one.port == port:
            return one.auth
    raise NotFound("no such port")


# ---- a browser's token -------------------------------------------------------------------------


async def port_token(market: Market, token: str, job: str, port: int) -> str:
    """A token that opens this one port of this one job and nothing else, for as long as *token* (a
    session's or a key's) itself does: what a browser keeps of it while a stranger's page is shown.
    """
    made = _TOKEN + digest(f"tally/port/v1 {token} {job} {port}")
    if await market.store.get(Login, digest(made)) is None:
        login = _token_of(market, made, Place(job, port), digest(token), _kind(token))
        with suppress(Conflict):  # made by another request at this instant
            await market.store.apply(Change(puts=[login]))
    return made


async def port_caller(market: Market, token: str, job: str, port: int) -> Caller:
    """Who opened this port with its token, if he still could. Unauthenticated, Suspended."""
    known = await market.store.get(Login, digest(token))
    place, _, kind = known.address.rpartition(" ") if known is not None else ("", "", "")
    if known is None or place != f"port {job} {port}" or market.now >= known.expires_ms:
        raise Unauthenticated(
            "this port was not opened here, or too long ago: open it from its job"
        )
    return await access.holder(market, known.account, kind == "s")


def _kind(token: str) -> str:
    return "s" if access.is_session(token) else "k"


def _token_of(market: Market, token: str, place: Place, of: str, kind: str) -> Login:
    expires = market.now + market.settings.token_ttl_ms
    return Login(digest(token), f"port {place.job} {place.port} {kind}", of, expires)


# ---- tickets -----------------------------------------------------------------------------------


async def ticket(market: Market, token: str, place: Place) -> tuple[str, int]:
    """(ticket, expires_ms): opens *place* in one browser, once, for whoever has *token*, which is
    looked at again whenever what it opened is used.
    """
    made, until = _TICKET + market.ids.secret(32).hex(), market.now + TICKET_MS
    what = f"ticket {place.job} {place.port} {_kind(token)}"
    await market.store.apply(Change(puts=[Login(digest(made), what, digest(token), until)]))
    return made, until


async def enter(market: Market, key: str, place: Place) -> tuple[str, int]:
    """(what a browser keeps, until when in ms) for a ticket, which is spent, or a link.
    Unauthenticated.
    """
    if key.startswith(_LINK):
        return key, (await _linked(market, key, place)).expires_ms
    hashed = digest(key)
    known = await market.store.get(Login, hashed)
    what, _, kind = known.address.rpartition(" ") if known is not None else ("", "", "")
    if known is None or what != f"ticket {place.job} {place.port}":
        raise Unauthenticated("no such ticket, or it was used: open the port from its job again")
    if market.now >= known.expires_ms:
        raise Unauthenticated("the ticket is too old: open the port from its job again")
    await access.holder(market, known.account, kind == "s")
    token = _TOKEN + market.ids.secret(32).hex()
    made = _token_of(market, token, place, known.account, kind)
    # Put back as spent, so that a second use at the same instant is a Conflict.
    spent = Login(f"spent:{hashed}", "", "", known.expires_ms)
    try:
        await market.store.apply(Change(drops=[known], puts=[spent, made]))
    except Conflict:
        raise Unauthenticated("the ticket was used already") from None
    return token, made.expires_ms


async def may_pass(market: Market, kept: str, job: Owned, port: int) -> None:
    """Whether what a browser *kept* of :func:`enter` still opens the port. Unauthenticated,
    Forbidden, NotFound, Suspended.
    """
    if kept.startswith(_LINK):
        await _linked(market, kept, Place(job.id, port))
        return
    who = await port_caller(market, kept, job.id, port)
    who.may("jobs")
    if who.account != job.account:
        raise NotFound("no such port")


# ---- links -------------------------------------------------------------------------------------


async def share(
    market: Market,
    who: Caller,
    job: Owned,
    port: int,
    lasts_ms: int,
    remember: Callable[[PortLink], list[Record]] = lambda _: [],
) -> tuple[PortLink, str]:
    """(link, secret): whoever has the secret opens this port until it expires or is ended. One
    that an API key made ends with that key. What *remember* gives is written with it.
    """
    if not LINK_LEAST_MS <= lasts_ms <= LINK_MOST_MS:
        raise Malformed("a link lasts from 1 minute to 30 days")
    until = market.now + lasts_ms
    if who.key is not None:
        until = min(until, who.key.expires_ms)
    now = market.now
    others = await market.store.find(PortLink, account=who.account, limit=MOST_LINKS + 1)
    if sum(now < one.expires_ms for one in others) >= MOST_LINKS:
        raise TooManyLinks(f"an account has at most {MOST_LINKS} links at once")
    secret = _LINK + market.ids.secret(32).hex()
    by = who.key.id if who.key is not None else ""
    made = PortLink(
        market.ids.new("link"), digest(secret), who.account, job.id, port, by, now, until
    )
    note = access.audit(market, who, "link.new", made.id, {"job": job.id, "port": port})
    await market.store.apply(Change(puts=[made, note, *remember(made)]))
    return made, secret


async def links(market: Market, job: Owned, port: int) -> list[PortLink]:
    """Those of the port that are not over, oldest first."""
    found = await market.store.find(PortLink, job=job.id, port=port, limit=MOST_LINKS + 1)
    return sorted((s for s in found if market.now < s.expires_ms), key=lambda one: one.id)


async def end_link(market: Market, who: Caller, job: Owned, port: int, link_id: str) -> None:
    """At once, also for those who are inside. NotFound."""
    known = await market.store.get(PortLink, link_id)
    if known is None or (known.job, known.port) != (job.id, port):
        raise NotFound(f"no link {link_id} of this port")
    note = access.audit(market, who, "link.end", known.id, {"job": job.id, "port": port})
    await market.store.apply(Change(drops=[known], puts=[note]))


async def _linked(market: Market, secret: str, place: Place) -> PortLink:
    found = await market.store.find(PortLink, hash=digest(secret), limit=1)
    known = found[0] if found else None
    over = Unauthenticated("this link has ended: ask who gave it to you for another")
    if known is None or (known.job, known.port) != (place.job, place.port):
        raise over
    if market.now >= known.expires_ms:
        raise over
    if known.key:
        key = await market.store.get(ApiKey, known.key)
        if key is None or key.revoked_ms:
            raise over
    await access.standing(market, known.account)
    return known
