"""What the market itself needs: its outbox, its answers, settings, locks, processes and audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marketplace.market.base.records.record import Json, Record


@dataclass(frozen=True)
class Sent(Record):
    """A message in the outbox: leaves it once the other side has acknowledged it."""

    id: str
    target: str  # adapter:<hex key>
    payload: bytes  # a wire frame's message
    at_ms: int


@dataclass(frozen=True)
class Remembered(Record):
    """The answer to an idempotency key: the same question gets the same answer."""

    KEY: ClassVar[tuple[str, ...]] = ("account", "key")
    account: str
    key: str
    question: str  # hash of method, path and body
    status: int
    answer: Json
    at_ms: int


@dataclass(frozen=True)
class Audit(Record):
    """Who did what to whom; never changed, never dropped."""

    id: str
    at_ms: int
    actor: str
    action: str
    subject: str
    detail: Json


@dataclass(frozen=True)
class Setting(Record):
    """One of the operator's settings, or a secret of this market."""

    KEY: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    value: str
    version: int = 0


@dataclass(frozen=True)
class Lock(Record):
    """A lease lock: whoever raised *epoch* last holds it while *beat* keeps changing."""

    KEY: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    holder: str
    epoch: int
    beat: int
    version: int = 0


@dataclass(frozen=True)
class Process(Record):
    """A market process and its heartbeat."""

    id: str
    started_ms: int
    beat_ms: int
    version: int = 0
