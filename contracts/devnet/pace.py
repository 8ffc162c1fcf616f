"""How a network goes: when its blocks come, how often it forks, how far its index is behind, and
how many requests its door takes.

The devnet's own pace is a clock's.  :data:`PREPROD` is what a program meets on a public network:

* **Blocks by lottery.** Each second is a slot, and each slot has a block with the same chance,
  one in twenty (``activeSlotsCoeff`` of the Shelley genesis): 20 s between blocks in the mean, more
  than 60 s in one of twenty.
* **Forks.** Now and then the chain turns out to be another one for its last three blocks, and the
  node changes to it; what was in them waits again.
* **An index that is behind** the node by 20 s, as an indexer of blocks is.
* **A limit of requests**, Blockfrost's: 10 a second, after 500 at once, for each project id.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Pace:
    """*block_ms*: milliseconds between blocks, in the mean where it is a *lottery*; *name*: what
    the status calls it; *fork_chance*: of a fork of *fork_blocks* before a block; *lag_ms*: how far
    the index is behind; *requests_a_second*, after a *burst* of so many: 0 = no limit.
    """

    block_ms: int
    name: str = "devnet"
    lottery: bool = False
    fork_chance: float = 0.0
    fork_blocks: int = 0
    lag_ms: int = 0
    requests_a_second: int = 0
    burst: int = 0

    def next_block_ms(self, dice: random.Random) -> int:
        """Milliseconds until the next block."""
        if not self.lottery:
            return self.block_ms
        slots, chance = 1, 1000 / self.block_ms
        while dice.random() >= chance:
            slots += 1
        return slots * 1000

    def forks(self, dice: random.Random) -> bool:
        """Whether the next block comes on another chain."""
        return dice.random() < self.fork_chance


PREPROD: Final = Pace(
    block_ms=20_000, name="preprod", lottery=True, fork_chance=1 / 30, fork_blocks=3,
    lag_ms=20_000, requests_a_second=10, burst=500,
)  # fmt: skip


NAMED: Final = {PREPROD.name: PREPROD}
"""Every pace but the devnet's own."""


@dataclass(slots=True)
class Bucket:
    """What one project may still ask: tokens that refill with time (*seconds* is a clock's)."""

    pace: Pace
    seconds: Callable[[], float]
    left: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.at = float(self.pace.burst), self.seconds()

    def take(self) -> bool:
        """Whether one more request is answered."""
        now = self.seconds()
        gained = (now - self.at) * self.pace.requests_a_second
        self.left, self.at = min(float(self.pace.burst), self.left + gained), now
        if self.left < 1:
            return False
        self.left -= 1
        return True
