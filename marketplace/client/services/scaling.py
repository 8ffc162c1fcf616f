"""How many replicas are wanted: what is under way, over how many each is meant for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from marketplace.domain.work.service import Scale


@dataclass
class Scaler:
    """More at once, fewer only after none more were needed for as long as the scale says."""

    _needed: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])

    def wanted(self, scale: Scale, under_way: int, now: int) -> int:
        """*under_way*: requests that are answered or wait."""
        if not scale.per_replica:
            return scale.least
        self._needed.append((now, -(-under_way // scale.per_replica)))
        while self._needed[0][0] < now - scale.down_after_ms:
            self._needed.popleft()
        return min(max(scale.least, *(count for _, count in self._needed)), scale.most)
