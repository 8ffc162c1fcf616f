"""What the API answers about an account's stores."""

from __future__ import annotations

from marketplace.api.schemas.shape import Answer, Next, told


class Store(Answer):
    """A store of the market's own, as its server has it."""

    name: str = told("as `cluster.store.name` of a job file says")
    bytes: int = told("all that lies there, encrypted")
    entries: int = told("files and folders")
    used_at_ms: int = told(
        "when a cluster used it last, or its owner wrote to it, ms since 1970, UTC"
    )


class Stores(Answer):
    """A page of an account's stores."""

    items: list[Store] = told("those that are there, by name")
    next: str | None = Next


class StorePass(Answer):
    """What lets into a store."""

    name: str = told("the store's")
    url: str = told("its folder at a WebDAV server; names and content there are encrypted")
    token: str = told("for `Authorization: Bearer`")
    expires_at_ms: int = told("when it lets in nobody any more, ms since 1970, UTC")


class RemovedStore(Answer):
    """A store that is gone."""

    name: str = told("the store's")
    removed: bool = told("always true")
