"""What passes for running workloads beside their bytes: terminals inside them, and how the market
sees a relay. A part of ``wire``, by which name they are used. A terminal's bytes are
``StreamData``, as those of a port's connection; ``StreamClosed`` ends one.
"""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.protocol.message import Message


@dataclass(frozen=True)
class ShellOpened(Message):
    """Somebody sits down at a terminal in the workload: *command* runs there, on a screen of *rows*
    and *columns* (capability ``shell``).
    """

    lease: str
    stream_id: str
    command: list[str]
    rows: int
    columns: int


@dataclass(frozen=True)
class ShellSized(Message):
    """That screen has another size now."""

    lease: str
    stream_id: str
    rows: int
    columns: int


@dataclass(frozen=True)
class RelayLooked(Message):
    """How the relay that the lease is stands as the market sees it, through the lease's port:
    *standing* is a name of ``ouroboros.reading.Standing``, *why* in words, in part the relay's.
    """

    lease: str
    at_ms: int
    standing: str
    why: str
