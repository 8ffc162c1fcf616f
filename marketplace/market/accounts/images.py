"""Who may do what with an image of the market's registry.

A repository is its account's: its owner pushes and deletes there. It is pulled by its owner, by
the provider of a lease whose job, the owner's own, runs an image of it, and by anybody once its
owner made it public.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from marketplace.domain.errors import Malformed, NotFound, Unauthenticated
from marketplace.domain.work.image_access import (
    MOST_PULL_MS,
    SignedPull,
    namespace_of,
    repository_of,
)
from marketplace.domain.work.image_names import Reference
from marketplace.market.accounts import standing
from marketplace.market.accounts.access import Caller, audit
from marketplace.market.base.errors import ImagePrivate, NoRegistry, TooLarge
from marketplace.market.base.ports import Change, KeptImage, OwnRegistry
from marketplace.market.base.records import Job, Lease, PublicImage
from marketplace.market.context import Market
from marketplace.market.core.ending import HOLDING

MOST_PUBLIC: Final = 1_000  # images of one account
_OWNERS: Final = {"pull": "read", "push": "blobs", "delete": "blobs"}  # and the verb of a key


@dataclass(frozen=True)
class Asked:
    """*actions* that are asked for, on the repository or namespace *name*."""

    kind: str
    name: str
    actions: frozenset[str]


def registry_of(market: Market) -> str:
    """The name of the market's registry (``host[:port]``); NoRegistry."""
    if not market.settings.registry:
        raise NoRegistry("this market keeps no images")
    return market.settings.registry


async def granted(market: Market, who: Caller | None, asked: Iterable[Asked]) -> list[Asked]:
    """What of *asked* the caller may do; *who* None: anybody."""
    return [one for each in asked if (one := await _granted(market, who, each)).actions]


async def _granted(market: Market, who: Caller | None, asked: Asked) -> Asked:
    mine = who is not None and asked.name.partition("/")[0] == namespace_of(who.account)
    may = set[str]()
    if who is not None and asked.kind == "namespace" and mine and "/" not in asked.name:
        may = {"list"} if "read" in who.verbs else set[str]()
    elif asked.kind == "repository" and _is_repository(asked.name):
        if who is not None and mine:
            may = {action for action, verb in _OWNERS.items() if verb in who.verbs}
        if "pull" in asked.actions - may and await is_public(market, asked.name):
            may.add("pull")
    return Asked(asked.kind, asked.name, asked.actions & may)


def _is_repository(name: str) -> bool:
    namespace, _, rest = name.partition("/")
    try:
        return repository_of(namespace, rest) == name
    except Malformed:
        return False


async def of_lease(market: Market, password: str, asked: Iterable[Asked]) -> list[Asked]:
    """What the provider of a lease may pull by what it signed. Unauthenticated."""
    return [one for each in asked if (one := await _of_lease(market, password, each)).actions]


async def _of_lease(market: Market, password: str, asked: Asked) -> Asked:
    no = Unauthenticated("this pull is for no lease that runs here, or it is too old")
    try:
        pull = SignedPull.read(password, registry_of(market), asked.name)
    except Malformed:
        raise no from None
    lease = await market.store.get(Lease, pull.lease)
    job = await market.store.get(Job, lease.job) if lease is not None else None
    if lease is None or job is None or lease.state not in HOLDING:
        raise no
    now = market.now
    if not now <= pull.until_ms <= now + MOST_PULL_MS or not pull.by(bytes.fromhex(lease.provider)):
        raise no
    named = ours(market, job.parsed.image)
    if asked.kind != "repository" or named != asked.name or not await may_run(market, job):
        return Asked(asked.kind, asked.name, frozenset())
    return Asked(asked.kind, asked.name, asked.actions & {"pull"})


def ours(market: Market, image: str) -> str:
    """The repository of *image* in the market's registry; empty if it is elsewhere."""
    if not market.settings.registry or image.startswith("sha256:") or not image:
        return ""
    try:
        reference = Reference.parse(image)
    except Malformed:
        return ""
    return reference.repository if reference.host == market.settings.registry else ""


async def may_run(market: Market, job: Job) -> bool:
    """Whether the job's account may have its image pulled."""
    return await readable(market, job.account, ours(market, job.parsed.image))


async def readable(market: Market, account: str, repository: str) -> bool:
    """Whether *account* may pull *repository* of the market's registry; "": one elsewhere."""
    if not repository or repository.partition("/")[0] == namespace_of(account):
        return True
    return await is_public(market, repository)


async def check(market: Market, image: str, account: str) -> None:
    """ImagePrivate for one of the market's registry that is another account's."""
    repository = ours(market, image)
    if not await readable(market, account, repository):
        raise ImagePrivate(f"{repository} is another account's, or is not there")


async def is_public(market: Market, repository: str) -> bool:
    """Whether its owner made *repository* public."""
    return await market.store.get(PublicImage, repository) is not None


async def mine(market: Market, who: Caller) -> list[PublicImage]:
    """The account's public repositories, by name."""
    return await market.store.find(
        PublicImage, account=who.account, order=("repository",), limit=MOST_PUBLIC
    )


async def holdings(market: Market, who: Caller) -> tuple[int, list[KeptImage]]:
    """(bytes that the account's images take, what they are). NoRegistry, Fault."""
    return await _own_registry(market).holdings(namespace_of(who.account))


async def delete(market: Market, who: Caller, name: str, digest: str) -> str:
    """Delete an image with all its tags; its repository. NoRegistry, Malformed, Forbidden,
    NotFound, Fault.
    """
    registry = _own_registry(market)
    who.may("blobs")
    repository = repository_of(namespace_of(who.account), name)
    if not await registry.delete(repository, digest):
        raise NotFound(f"there is no {name}@{digest}")
    note = audit(market, who, "image.delete", repository, {"digest": digest})
    await market.store.apply(Change(puts=[note]))
    return repository


def _own_registry(market: Market) -> OwnRegistry:
    if market.own_registry is None:
        raise NoRegistry("this market keeps no images")
    return market.own_registry


async def quota(market: Market, account: str) -> int:
    """Bytes that the account's images may take; fewer before it ever paid for anything."""
    settings = market.settings
    if (await standing.of(market, account)).paid:
        return settings.image_quota
    return min(settings.image_quota, settings.image_quota_new)


async def set_public(market: Market, who: Caller, name: str, public: bool) -> str:
    """Whether anybody pulls the account's repository *name*; that, with its namespace.
    NoRegistry, Malformed, Forbidden, TooLarge.
    """
    registry_of(market)
    who.may("blobs")
    repository = repository_of(namespace_of(who.account), name)
    known = await market.store.get(PublicImage, repository)
    if (known is not None) is public:
        return repository
    if public and len(await mine(market, who)) >= MOST_PUBLIC:
        raise TooLarge(f"an account has at most {MOST_PUBLIC} public images")
    made = PublicImage(repository, who.account, market.now)
    note = audit(market, who, "image.public" if public else "image.private", repository, {})
    change = Change(puts=[made, note]) if public else Change(drops=[made], puts=[note])
    await market.store.apply(change)
    return repository
