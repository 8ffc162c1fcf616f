"""Answers about an account: sign-in, keys, webhooks and files."""

from __future__ import annotations

from typing import Any, Literal

from marketplace.api.schemas.shape import Answer, Next, told
from marketplace.market.base.story import KINDS, TEST


class Challenge(Answer):
    """What a wallet is to sign."""

    nonce: str = told("serves once")
    message: str = told("the message's bytes, hex, for `signData`")
    text: str = told("the same as text, to be read and compared")


class Session(Answer):
    """A signed-in wallet."""

    token: str = told("for `Authorization: Bearer`")
    account: str = told("the payment key's hash, hex")
    expires_at_ms: int = told("ms since 1970, UTC")


class SignedOut(Answer):
    """A session that ended."""

    account: str = told("the payment key's hash, hex")


class Key(Answer):
    """A scoped API key, without its secret."""

    id: str = told("its name in this market")
    name: str = told("what its owner calls it")
    verbs: list[str] = told("what it may do")
    budget: int = told("the most its jobs may cost, lovelace")
    committed: int = told("what its jobs cost or may still cost, lovelace")
    month_cap: int = told(
        "the most that what it posts in one calendar month (UTC) may cost, lovelace; 0: no such cap"
    )
    month_committed: int = told("what it posted this month costs or may still cost, lovelace")
    created_at_ms: int = told("ms since 1970, UTC")
    expires_at_ms: int = told("ms since 1970, UTC")
    revoked_at_ms: int = told("ms since 1970, UTC; 0: it is not")


class NewKey(Key):
    """A scoped API key that was just made."""

    secret: str | None = told("for `Authorization: Bearer`, shown this once; null in a repetition")


class Keys(Answer):
    """All keys of the account."""

    items: list[Key] = told("oldest first")
    next: str | None = Next


class Revoked(Answer):
    """A key that opens nothing any more."""

    id: str = told("the key's")
    revoked: bool = told("always true")


class Me(Answer):
    """Who a credential is."""

    account: str = told("the payment key's hash, hex")
    verbs: list[str] = told("what it may do")
    key: Key | None = told("the API key; null: a signed-in wallet")


class Hook(Answer):
    """A webhook, without its secret."""

    id: str = told("its name in this market")
    url: str = told("where deliveries go")
    kinds: list[str] = told("of events; none: all")
    created_at_ms: int = told("ms since 1970, UTC")
    rotation: int = told("which of its secrets signs, from 1; 0: one that was never shown")
    failures: int = told("deliveries in a row that were not taken")


class NewHook(Hook):
    """A webhook with a new secret."""

    secret: str | None = told("signs deliveries, shown this once; null in a repetition")


class Hooks(Answer):
    """All webhooks of the account."""

    items: list[Hook] = told("oldest first")
    next: str | None = Next


class Removed(Answer):
    """Something that is gone."""

    id: str = told("what it was named")
    removed: bool = told("always true")


class Blob(Answer):
    """A file that the account put or got."""

    sha256: str = told("of its bytes, hex: its name")
    size: int = told("bytes")


class Blobs(Answer):
    """All files of the account, up to 1,000."""

    items: list[Blob] = told("by name")
    next: str | None = Next


class RemovedBlob(Answer):
    """A file that is gone."""

    sha256: str = told("what it was named")
    removed: bool = told("always true")


class HookEvent(Answer):
    """The body of a delivery: what is posted to the webhook's URL, and signed."""

    id: str = told("the event's id; a delivery that comes twice has the same")
    kind: str = told("what happened: " + ", ".join(f"`{kind}`" for kind in (*KINDS, TEST)))
    job: str = told("the job's id; empty for a test")
    lease: str = told("the lease's id; empty: none")
    at_ms: int = told("when it happened, ms since 1970, UTC")
    detail: dict[str, Any] = told("plain facts of that kind, e.g. `reason` or `exit_code`")


class Delivery(Answer):
    """One delivery of a webhook, and what became of it."""

    id: str = told("its name, in `Tally-Delivery` too")
    state: Literal["WAITING", "DELIVERED", "GIVEN_UP"] = told("given up after seven tries")
    body: HookEvent = told("what is posted")
    attempts: int = told("how often it was tried")
    status: int = told("the HTTP status of the last answer; 0: there was none")
    error: str = told("why there was none; empty otherwise")
    next_at_ms: int = told("when it is tried next, ms since 1970, UTC; 0: never")
    done_at_ms: int = told("when it was delivered or given up; 0: it waits")


class Deliveries(Answer):
    """A page of deliveries."""

    items: list[Delivery] = told("newest first")
    next: str | None = Next
