"""The demand that the market expects: given, or learned from what arrives."""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.matching.fleet import Fleet
from marketplace.matching.model import Request
from marketplace.matching.scores import Usable, Weights

KEPT = 512
"""Learned kinds beyond this many are forgotten, the rarest first."""


class Demand:
    """The mix, and the tables made from it. ``version`` moves whenever scores made from it are stale."""

    def __init__(
        self, mix: Sequence[tuple[Request, float]], weights: Weights, learn: bool | None = None
    ) -> None:
        self.weights = weights
        self.learning = not mix if learn is None else learn
        self.version = 0
        self._mix: dict[tuple[int, int, int, int, frozenset[str]], tuple[Request, float]] = {}
        for request, weight in mix:
            self._count(request, weight)
        self._usable: Usable | None = None
        self._models = 0
        self._arrived = 0
        self._next = 32

    def _count(self, request: Request, weight: float) -> None:
        key = (
            request.cpu_milli,
            request.memory_mib,
            request.gpu_count,
            request.gpu_milli,
            request.gpu_models,
        )
        known = self._mix.get(key)
        self._mix[key] = (request, weight + (known[1] if known else 0.0))

    def arrived(self, request: Request, fleet: Fleet) -> None:
        """Count an arrival; tables follow at doubling intervals at first, then every 4,096 arrivals, fading by half."""
        if not self.learning:
            return
        self._count(request, 1.0)
        self._arrived += 1
        if self._arrived < self._next:
            return
        self._next = self._arrived + min(self._arrived, 4096)
        if self._arrived > 8192:
            kept = sorted(self._mix.items(), key=lambda item: -item[1][1])[:KEPT]
            self._mix = {key: (r, w / 2) for key, (r, w) in kept}
        self._usable = None
        self.version += 1

    def supply_changed(self, fleet: Fleet) -> None:
        """A model that no table knows makes the tables stale."""
        if len(fleet.models) != self._models:
            self._usable = None
            self._models = len(fleet.models)
            self.version += 1

    def usable(self, fleet: Fleet) -> Usable:
        """Tables for the present mix."""
        if self._usable is None:
            numbers = {name: i for i, name in enumerate(fleet.models.all())}
            self._usable = Usable(list(self._mix.values()), numbers, self.weights)
        return self._usable
