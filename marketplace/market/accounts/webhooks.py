"""Webhooks: who is told, what is signed, where the market must never call, and when it gives up."""

from __future__ import annotations

import difflib
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from marketplace.domain import canonical
from marketplace.domain.errors import Conflict, Malformed, NotFound
from marketplace.domain.hkdf import hkdf_sha256
from marketplace.domain.money.terms import PUBLIC_MAGICS
from marketplace.market.accounts.access import Caller, audit
from marketplace.market.base.errors import HookKeyWrong, HookRefused, HooksOff
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Delivery, Event, Hook, Record, Setting
from marketplace.market.base.story import KINDS, TEST
from marketplace.market.context import Market

BACKOFF_MS: Final = (1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000)
MOST: Final = 20
LOG_MS: Final = 3 * 86_400_000
KEY: Final = "hooks.key"  # the setting: which key the secrets are derived from, by its fingerprint
_TAG: Final = "tally/webhook/v1"
_V6_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_V6_PUBLIC: Final = ipaddress.IPv6Network("2000::/3")  # all that IANA has given out
_V6_MAPPED: Final = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))


def check_url(url: str, private: bool, loopback: bool = False) -> tuple[str, int]:
    """(host, port) of a URL that may be called; HookRefused otherwise.

    The name's *addresses* are checked again at every delivery (:func:`check_addresses`), since a
    name may point elsewhere tomorrow. *private*: anywhere; *loopback*: this machine as well, by its
    address or as ``localhost``.
    """
    if not (url.isascii() and url.isprintable()):
        raise HookRefused("a webhook's URL is printable ASCII: write its host as xn--…")
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise HookRefused("this is not a URL") from error
    here = loopback and is_loopback(parts.hostname or "")
    if parts.scheme != "https" and not ((private or here) and parts.scheme == "http"):
        raise HookRefused("a webhook is an https URL")
    if not parts.hostname or parts.username or parts.password:
        raise HookRefused("a webhook names a host, and no user")
    if not private and not here:
        try:
            check_addresses([parts.hostname])
        except ValueError:
            pass  # a name, not an address: looked up and checked at delivery
        name = parts.hostname.rstrip(".")
        if name == "localhost" or name.endswith((".localhost", ".internal", ".local")):
            raise HookRefused("a webhook points to a public host")
    return parts.hostname, port


def is_loopback(host: str) -> bool:
    """Whether *host* is written as this machine; names that lead here by a lookup are not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_call(market: Market, url: str) -> tuple[str, int]:
    """:func:`check_url` by the rules of *market*: loopback is for a devnet on one's own machine."""
    settings = market.settings
    local = settings.loopback_hooks and settings.magic not in PUBLIC_MAGICS
    return check_url(url, settings.allow_private_hooks, local)


def check_kinds(kinds: Iterable[str]) -> None:
    """Malformed, with the nearest, for a kind that nothing ever is."""
    for kind in kinds:
        if kind not in KINDS:
            near = difflib.get_close_matches(kind.upper()[:40], KINDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KINDS)}"
            raise Malformed(f"no event is a {kind[:40]!r}; {hint}", field="kinds")


def check_addresses(addresses: Iterable[str]) -> None:
    """HookRefused unless all are public; ValueError for what is not an address."""
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address):
            if address.sixtofour is not None or address.teredo is not None:
                raise HookRefused("a webhook points to a public address, not through a tunnel")
            if address.is_site_local or address in _V6_COMPATIBLE:  # deprecated, and never public
                raise HookRefused("a webhook points to a public address")
            for network in _V6_MAPPED:
                if address in network:
                    address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
                    break
            else:  # outside lie translators to IPv4 of one's own network: 64:ff9b:1::, ::ffff:0:0:0
                if address not in _V6_PUBLIC:
                    raise HookRefused("a webhook points to a public address")
        if not address.is_global or address.is_multicast:
            raise HookRefused("a webhook points to a public address")


def secret_of(market: Market, hook: Hook) -> str:
    """What signs the deliveries of *hook*: ``whsec_`` and 64 hex digits. HooksOff.

    HKDF-SHA256 of the market's key with ``info`` = canonical CBOR of [tag, id, rotation], so that a
    database, its backup and whoever reads them know no secret.
    """
    if not market.hook_key:
        raise HooksOff("this market signs no webhooks: it has no key for them")
    info = canonical.encode([_TAG, hook.id, hook.rotation])
    return "whsec_" + hkdf_sha256(market.hook_key, info).hex()


def fingerprint(key: bytes) -> str:
    """What the database may know of *key*."""
    return hkdf_sha256(key, b"tally/webhook/fingerprint/v1", 16).hex()


async def check_key(market: Market) -> None:
    """HookKeyWrong unless the key is the one that this database's webhooks were made with."""
    if not market.hook_key:
        return
    mine = fingerprint(market.hook_key)
    known = await market.store.get(Setting, KEY)
    if known is None:
        try:
            await market.store.apply(Change(puts=[Setting(KEY, mine)]))
            return
        except Conflict:  # another process was first
            known = await market.store.get(Setting, KEY)
    if known is None or not secrets.compare_digest(known.value, mine):
        raise HookKeyWrong("this database's webhooks were made with another key")


def signature(secret: str, at_ms: int, body: bytes) -> str:
    """``t=…,v1=…``: HMAC-SHA256 over ``<t>.<body>``, so that an old delivery cannot be replayed."""
    mac = hmac.new(secret.encode(), f"{at_ms}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_ms},v1={mac}"


Remember = Callable[[Hook], list[Record]]


async def add(
    market: Market,
    who: Caller,
    url: str,
    kinds: list[str],
    remember: Remember = lambda _: [],
) -> Hook:
    """A new webhook; HookRefused, Malformed. What *remember* gives is written in the same
    transaction.
    """
    may_call(market, url)
    check_kinds(kinds)
    if await market.store.count(Hook, account=who.account) >= MOST:
        raise HookRefused(f"an account has at most {MOST} webhooks")
    hook = Hook(market.ids.new("hook"), who.account, url, kinds, market.now)
    secret_of(market, hook)  # refuses before anything is written
    note = audit(market, who, "webhook.new", hook.id, {"url": url})
    await market.store.apply(Change(puts=[hook, note, *remember(hook)]))
    return hook


async def owned(market: Market, who: Caller, hook_id: str) -> Hook:
    """The caller's webhook; NotFound for anybody else's."""
    hook = await market.store.get(Hook, hook_id)
    if hook is None or hook.account != who.account:
        raise NotFound(f"no webhook {hook_id}")
    return hook


async def rotate(
    market: Market, who: Caller, hook_id: str, remember: Remember = lambda _: []
) -> Hook:
    """The webhook with its next secret; from now on every delivery, also one tried again, is signed
    with it."""
    hook = await owned(market, who, hook_id)
    secret_of(market, hook)
    note = audit(market, who, "webhook.rotate", hook.id, {"rotation": hook.rotation + 1})
    turned = replace(hook, rotation=hook.rotation + 1)
    await market.store.apply(Change(sets=[turned], puts=[note, *remember(turned)]))
    return replace(turned, version=hook.version + 1)


async def remove(market: Market, who: Caller, hook_id: str) -> None:
    """And whatever it was still owed."""
    hook = await owned(market, who, hook_id)
    owed = await market.store.find(Delivery, hook=hook_id, limit=10_000)
    note = audit(market, who, "webhook.remove", hook.id, {})
    await market.store.apply(Change(drops=[hook, *owed], puts=[note]))


async def enqueue(market: Market, after: str, before_ms: int) -> str:
    """Deliveries for every event since *after* and older than *before_ms*; the last event's id."""
    while True:
        events = await market.store.find(
            Event, order=("id",), after=(after,), limit=500, at_ms__lt=before_ms
        )
        if not events:
            return after
        accounts = {e.account for e in events}
        hooks = await market.store.find(Hook, account=list(accounts), limit=10_000)
        puts: list[Delivery] = []
        for event in events:
            for hook in hooks:
                if hook.account == event.account and (not hook.kinds or event.kind in hook.kinds):
                    name = f"{event.id}-{hook.id}"[:120]
                    puts.append(Delivery(name, hook.id, _body(event), market.now))
        if puts:
            try:
                await market.store.apply(Change(puts=[*puts]))
            except Conflict:
                pass  # another process enqueued the same events: the names are theirs as well
        after = events[-1].id


def _body(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "kind": event.kind,
        "job": event.job,
        "lease": event.lease,
        "at_ms": event.at_ms,
        "detail": event.detail,
    }


async def due(market: Market) -> list[tuple[Delivery, Hook]]:
    """What is to be delivered now, claimed for this process by moving its time."""
    now, taken = market.now, list[tuple[Delivery, Hook]]()
    for delivery in await market.store.find(
        Delivery, done_ms=0, next_ms__le=now, order=("next_ms", "id"), limit=50
    ):
        hook = await market.store.get(Hook, delivery.hook)
        if hook is None:
            await market.store.apply(Change(drops=[delivery]))
            continue
        wait = BACKOFF_MS[min(delivery.attempts, len(BACKOFF_MS) - 1)]
        mine = replace(delivery, attempts=delivery.attempts + 1, next_ms=now + wait)
        try:
            await market.store.apply(Change(sets=[mine]))
        except Conflict:
            continue
        taken.append((replace(mine, version=mine.version + 1), hook))
    return taken


async def test(market: Market, who: Caller, hook_id: str) -> Delivery:
    """A delivery of kind ``TEST`` to the caller's webhook, whatever kinds it is told of; it is
    signed, logged and tried again like any other. Conflict while one is still waiting."""
    hook = await owned(market, who, hook_id)
    waiting = await market.store.find(Delivery, hook=hook_id, done_ms=0, limit=1000)
    if any(delivery.body["kind"] == TEST for delivery in waiting):
        raise Conflict("a test of this webhook still waits to be delivered")
    name = market.ids.new("ev")
    at_ms, detail = market.now, dict[str, Any]()
    body = {"id": name, "kind": TEST, "job": "", "lease": "", "at_ms": at_ms, "detail": detail}
    made = Delivery(f"{name}-{hook.id}"[:120], hook.id, body, market.now)
    await market.store.apply(Change(puts=[made]))
    return made


async def delivered(market: Market, delivery: Delivery, status: int) -> None:
    """It is done; it stays in the log for a while."""
    done = replace(delivery, done_ms=market.now, status=status, error="")
    await market.store.apply(Change(sets=[done]))


async def failed(market: Market, delivery: Delivery, hook: Hook, status: int, error: str) -> None:
    """It will be tried again, until it was tried often enough. *status*: what was answered, 0 if
    nothing was; *error*: why not, in a few words."""
    given_up = market.now if delivery.attempts >= len(BACKOFF_MS) else 0
    told = replace(delivery, done_ms=given_up, status=status, error=error[:200])
    counted = replace(hook, failures=hook.failures + 1)
    for change in (Change(sets=[told]), Change(sets=[counted])):
        try:
            await market.store.apply(change)
        except Conflict:
            pass  # it was removed meanwhile; and a count of failures that lost one is still a count


async def old(market: Market) -> list[Delivery]:
    """What is in the log no longer."""
    before = market.now - LOG_MS
    return await market.store.find(Delivery, done_ms__gt=0, done_ms__lt=before, limit=1000)
