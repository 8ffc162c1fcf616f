"""What is remembered of channels that no block held when they were served (``before_block``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Young:
    """A channel that was served before a block held it: see ``before_block``.

    *allowance*: lovelace that may be served at depth 0; *marks*: whose money it is, and by which
    transactions it came; *in_block*: a block holds its open transaction now, *was_in_block*: one
    did once; *void_wall_ms*: when none could any more (0: one can).
    """

    allowance: int
    marks: frozenset[bytes]
    in_block: bool = False
    was_in_block: bool = False
    void_wall_ms: int = 0

    @property
    def void(self) -> bool:
        """True once no block can hold it any more."""
        return self.void_wall_ms > 0

    @property
    def waits(self) -> bool:
        """True while its block may come."""
        return not self.in_block and not self.void


@dataclass(frozen=True, slots=True)
class Loss:
    """What was served on an open that no block ever held, and when that was known."""

    wall_ms: int
    lovelace: int
