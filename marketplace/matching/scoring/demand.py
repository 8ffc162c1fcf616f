"""The demand that the market expects: given, or learned from what arrives; and which models it
makes scarce.

A model is scarce when those who can use nothing else would want more of it, while the market fills
up, than is left of it: pressure = (their part of all demand x all that is free, spread over the
models that they accept) / what is free of the model. At 1 nothing is to spare for the flexible. A
request pays ``scarcity x pressure`` per device, so flexible work drifts to plentiful models in good
time, and no device is refused to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from marketplace.matching.fleet import Fleet
from marketplace.matching.model import Request
from marketplace.matching.scoring.usable import Floats, Usable, Weights

KEPT: Final = 512
"""Learned kinds beyond this many are forgotten, the rarest first."""

MOST_PRESSURE: Final = 2.0
"""Beyond this a model is simply taken; the price need not grow."""


class Demand:
    """The mix, and the tables made from it. ``version`` moves whenever scores made from it are
    stale.
    """

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
        self._bound: tuple[Floats, Floats] | None = None
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

    def arrived(self, request: Request, hosts: int) -> None:
        """Count an arrival. Tables follow at doubling intervals at first, then at steady ones, and
        the past fades by half.

        New tables mean that every shape is scored anew on every host, so a large market learns in
        longer steps.
        """
        if not self.learning:
            return
        self._count(request, 1.0)
        self._arrived += 1
        if self._arrived < self._next:
            return
        self._next = self._arrived + min(self._arrived, max(4096, hosts // 2))
        if self._arrived > 8192 or len(self._mix) > 2 * KEPT:
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
            self._bound = self._bind(numbers)
        return self._usable

    def _bind(self, numbers: dict[str, int]) -> tuple[Floats, Floats] | None:
        """Demand bound to models: a line per set of accepted models, and its part of all device
        demand.
        """
        part: dict[frozenset[str], float] = {}
        total = 0.0
        for request, weight in self._mix.values():
            asked = request.gpu_demand * weight
            total += asked
            if request.gpu_models and asked:
                part[request.gpu_models] = part.get(request.gpu_models, 0.0) + asked
        part = {names: asked for names, asked in part.items() if not names >= numbers.keys() - {""}}
        if not part:
            return None
        accepts = np.zeros((len(part), len(numbers)))
        for line, names in enumerate(part):
            accepts[line, [numbers[n] for n in names if n in numbers]] = 1.0
        return accepts, np.array(list(part.values())) / total

    def surcharge(self, fleet: Fleet) -> Floats | None:
        """What one device of each model costs above its fragmentation now; None when nothing is
        bound to a model.
        """
        if self._bound is None:
            return None
        accepts, part = self._bound
        free = fleet.free_of_model[: accepts.shape[1]]
        reach = np.maximum(accepts @ free, 1.0)
        pressure = np.minimum((part * free.sum() / reach) @ accepts, MOST_PRESSURE)
        return self.weights.scarcity * pressure
