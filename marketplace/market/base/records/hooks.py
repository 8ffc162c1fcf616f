"""Webhooks, and what they deliver."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.market.base.records.record import Json, Record


@dataclass(frozen=True)
class Hook(Record):
    """A webhook: where and what for. Its secret is derived (``service.hooks.secret_of``), never
    kept.
    """

    id: str
    account: str
    url: str
    kinds: list[str]
    created_ms: int
    rotation: int = 1  # which of its secrets signs; 0: one that its owner was never shown
    failures: int = 0
    version: int = 0


@dataclass(frozen=True)
class Delivery(Record):
    """One delivery of a webhook: owed while *done_ms* is 0, then kept a while for its owner to
    see.
    """

    id: str
    hook: str
    body: Json
    next_ms: int
    attempts: int = 0
    done_ms: int = 0  # when it was delivered or given up
    status: int = 0  # what was answered last; 0: nothing was
    error: str = ""  # why nothing was
    version: int = 0
