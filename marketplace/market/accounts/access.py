"""Who asks, and what they may do: accounts, sign-in, API keys with verbs, budget and expiry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.errors import Conflict, Forbidden, Malformed, NotFound, Unauthenticated
from marketplace.domain.signin import OtherMarket, SignIn
from marketplace.domain.site import origin_of
from marketplace.market.base.errors import MonthSpent, OverBudget, Suspended
from marketplace.market.base.months import month_of, next_month_ms
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Account, ApiKey, Audit, Login, Record
from marketplace.market.context import Market, digest

VERBS: Final = ("read", "jobs", "channels", "blobs", "webhooks", "keys")
"""What an API key may do; a signed-in session may do all of it."""
KEY_PREFIX: Final = "tally_"


@dataclass(frozen=True)
class Caller:
    """A signed-in account, or one of its API keys."""

    account: str
    verbs: frozenset[str]
    key: ApiKey | None = None
    address: str = ""  # the network address that it asks from, as far as it is seen

    def may(self, verb: str) -> None:
        """Forbidden unless *verb* is among the verbs."""
        if verb not in self.verbs:
            raise Forbidden(f"this key lacks the verb {verb!r}", verb=verb)

    def commit(self, budget: int, now: int) -> ApiKey:
        """The key with *budget* more committed; OverBudget beyond its hard cap, MonthSpent beyond
        that of the month of *now*.
        """
        key = self.key
        assert key is not None
        left = key.budget - key.committed
        if budget > left:
            raise OverBudget(f"the key has {left} lovelace left of its budget", left=left)
        month = month_of(now)
        this_month = key.month_committed if key.month == month else 0
        left = key.month_cap - this_month
        if key.month_cap and budget > left:
            text = f"the key has {max(left, 0)} lovelace left of this month's {key.month_cap}"
            raise MonthSpent(text, left=max(left, 0), resets_at_ms=next_month_ms(now))
        return replace(
            key, committed=key.committed + budget, month=month, month_committed=this_month + budget
        )


async def challenge(market: Market, address: str, account: str, at: str = "") -> SignIn:
    """What the wallet at *address*, whose payment key hash is *account*, signs within a few
    minutes, once. *at*: the market's address as the caller dials it; :class:`OtherMarket` if it is
    none of ours.
    """
    if not 10 <= len(address) <= 250:
        raise Malformed("an address is bech32, or hex as CIP-30 gives it")
    origin = origin_of(at) if at else next(iter(market.names), "")
    if origin not in market.names:
        raise OtherMarket(f"{origin or 'this'} is not an address of this market")
    nonce, ttl = market.ids.secret(32).hex(), market.settings.challenge_ttl_ms
    now = market.now
    login = Login(digest(nonce), address, "", now + ttl)
    await market.store.apply(Change(puts=[login]))
    magic, issued = market.settings.magic, now // 1000 * 1000
    return SignIn(origin, account, magic, nonce, issued, _up_to_s(login.expires_ms))


def _up_to_s(ms: int) -> int:
    """*ms*, up to the whole second that a text names."""
    return -(-ms // 1000) * 1000


async def admit(market: Market, message: str, address: str, account: str) -> tuple[str, int]:
    """(token, expires_ms) once *account* signed *message*; its challenge is spent either way."""
    try:
        asked = SignIn.read(message)
    except Malformed:
        raise Unauthenticated("no such challenge, or it was used") from None
    if asked.origin not in market.names:
        raise OtherMarket(f"what was signed is for {asked.origin}, which is another market")
    waiting = await market.store.get(Login, digest(asked.nonce))
    if waiting is None or waiting.account:
        raise Unauthenticated("no such challenge, or it was used")
    ours = (account, market.settings.magic, _up_to_s(waiting.expires_ms))
    if (asked.account, asked.magic, asked.expires_ms) != ours:
        raise Unauthenticated("no such challenge, or it was used")
    now = market.now
    if now > waiting.expires_ms or waiting.address != address:
        await market.store.apply(Change(drops=[waiting]))
        raise Unauthenticated("the challenge is too old, or was for another address")
    known = await market.store.get(Account, account)
    if known is not None and known.suspended:
        raise Suspended(f"this account is suspended: {known.suspended}")
    token = KEY_PREFIX + "s_" + market.ids.secret(32).hex()
    expires = now + market.settings.token_ttl_ms
    # Putting the nonce back as spent makes a second use of it at the same instant a Conflict.
    spent = Login(f"spent:{digest(asked.nonce)}", "", "", waiting.expires_ms)
    change = Change(drops=[waiting], puts=[spent])
    change.puts.append(Login(digest(token), address, account, expires))
    change.puts.append(market.note(account, "sign-in", account))
    if known is None:
        try:
            await market.store.apply(replace(change, puts=[*change.puts, Account(account, now)]))
            return token, expires
        except Conflict:  # many commands of a new wallet sign in at once: one was first
            known = await market.store.get(Account, account)
            if known is None:
                raise
    await market.store.apply(change)
    return token, expires


async def caller_of(market: Market, token: str) -> Caller:
    """Whose token or API key this is. Unauthenticated, Suspended."""
    return await holder(market, digest(token), is_session(token))


def is_session(token: str) -> bool:
    """Whether *token* is a signed-in session's, and no API key."""
    return token.startswith(KEY_PREFIX + "s_")


async def holder(market: Market, hashed: str, session: bool) -> Caller:
    """Whose session, or API key, has this sha256. Unauthenticated, Suspended."""
    now = market.now
    if session:
        login = await market.store.get(Login, hashed)
        if login is None or not login.account or now >= login.expires_ms:
            raise Unauthenticated("the session is over; sign in again")
        return Caller(await standing(market, login.account), frozenset(VERBS))
    found = await market.store.find(ApiKey, hash=hashed, limit=1)
    if not found or found[0].revoked_ms:
        raise Unauthenticated("no such API key")
    key = found[0]
    if now >= key.expires_ms:
        raise Unauthenticated("the API key has expired")
    return Caller(await standing(market, key.account), frozenset(key.verbs), key)


async def standing(market: Market, account: str) -> str:
    """*account*, if it is one and may do anything. Unauthenticated, Suspended."""
    known = await market.store.get(Account, account)
    if known is None:
        raise Unauthenticated("no such account")
    if known.suspended:
        raise Suspended(f"this account is suspended: {known.suspended}")
    return account


async def sign_out(market: Market, who: Caller, token: str) -> None:
    """The token is worth nothing any more."""
    note = audit(market, who, "sign-out", who.account, {})
    await market.store.apply(Change(drops=[Login(digest(token), "", "", 0)], puts=[note]))


async def new_key(
    market: Market,
    who: Caller,
    name: str,
    verbs: list[str],
    budget: int,
    expires_ms: int,
    remember: Callable[[ApiKey], list[Record]] = lambda _: [],
    month_cap: int = 0,
) -> tuple[ApiKey, str]:
    """(key, secret): the secret is shown this once. Never wider than the caller itself; a key with
    a monthly cap makes none, since several, or one kept for later, would spend more in a month.

    What *remember* gives is written in the same transaction.
    """
    who.may("keys")
    unknown = set(verbs) - set(VERBS)
    if unknown or not verbs:
        raise Malformed(f"verbs are some of {', '.join(VERBS)}")
    for verb in verbs:
        who.may(verb)
    if expires_ms <= market.now:
        raise Malformed("expires_at_ms lies in the past")
    if who.key is not None and who.key.month_cap:
        raise Forbidden("a key with a monthly cap makes no other key")
    if who.key is not None:
        free = who.key.budget - who.key.committed
        if budget > free or expires_ms > who.key.expires_ms:
            raise Forbidden("a key cannot make one with more budget or a longer life than its own")
    secret = KEY_PREFIX + "k_" + market.ids.secret(32).hex()
    key = ApiKey(
        market.ids.new("key"), who.account, digest(secret), name, sorted(set(verbs)), budget,
        market.now, expires_ms, month_cap=month_cap,
    )  # fmt: skip
    note = audit(market, who, "key.new", key.id, {"verbs": key.verbs})
    change = Change(puts=[key, note, *remember(key)])
    if who.key is not None:
        change.sets.append(who.commit(budget, market.now))
    await market.store.apply(change)
    return key, secret


async def revoke_key(market: Market, who: Caller, key_id: str) -> None:
    """At once. NotFound for another account's."""
    who.may("keys")
    key = await market.store.get(ApiKey, key_id)
    if key is None or key.account != who.account:
        raise NotFound(f"no key {key_id}")
    gone = replace(key, revoked_ms=market.now)
    note = audit(market, who, "key.revoke", key.id, {})
    await market.store.apply(Change(sets=[gone], puts=[note]))


def audit(
    market: Market, who: Caller, action: str, subject: str, detail: dict[str, object]
) -> Audit:
    """A line for the audit log."""
    actor = who.key.id if who.key is not None else who.account
    return market.note(actor, action, subject, **detail)
