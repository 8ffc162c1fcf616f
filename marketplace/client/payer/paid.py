"""What a channel's payer tells whoever listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Paid:
    """Something that happened on a channel: what a screen or a log line is made from.

    *kind*: tick, note, refused, stage, renewed, not_renewed, final, end, settled, wait. *spent* is
    the lease's approved amount.
    """

    kind: str
    session_vk: bytes
    lease: str
    spent: int = 0
    code: str = ""
    message: str = ""
    detail: dict[str, Any] | None = None


Listener = Callable[[Paid], Awaitable[None]]
