"""What each kind of request costs on every host, kept and brought up to date where hosts changed.

Each *shape* of request keeps a cost per host. A placement changes one host, which is written to the
fleet's change log; the next time a shape is asked for, only the hosts changed since it was last
asked are scored again. A bounded number of shapes is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from marketplace.matching import filters
from marketplace.matching.filters import Bits
from marketplace.matching.fleet import Fleet, Rows
from marketplace.matching.model import WHOLE, Policy, Request
from marketplace.matching.scoring import scores, scores_scalar
from marketplace.matching.scoring.demand import Demand
from marketplace.matching.scoring.scores import Slots
from marketplace.matching.scoring.standing import Standing
from marketplace.matching.scoring.usable import Floats

FEW: Final = 16
"""Up to this many hosts with room are scored one by one."""

SHAPE_CELLS: Final = 64_000_000
"""Cached costs over all shapes and hosts: about 0.9 GB at the most, whatever the policy says."""


class Shape:
    """One kind of request: which terms each row fails, what it costs there, and the device that is
    cheapest.
    """

    __slots__ = (
        "bits",
        "bits_seen",
        "bits_terms",
        "cost",
        "fails",
        "request",
        "seen",
        "slot",
        "terms_seen",
        "version",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.fails: Bits = np.zeros(0, np.int32)
        self.cost: Floats = np.zeros(0)
        self.slot: Slots = np.zeros(0, np.int16)
        self.terms_seen = self.seen = self.version = -1
        self.bits: Bits = np.zeros(0, np.int32)
        self.bits_seen = self.bits_terms = -1


def shape_key(request: Request) -> tuple[Any, ...]:
    """What of a request decides where it may go and what it costs there (not who asks, nor for how
    long).
    """
    return (
        request.cpu_milli,
        request.memory_mib,
        request.gpu_count,
        request.gpu_milli,
        request.gpu_models,
        request.vram_mib,
        request.vram_max_mib,
        request.disk_mib,
        request.regions,
        request.labels,
        request.isolation,
        request.trust,
        request.upload_mbps,
        request.download_mbps,
        request.egress,
        request.cluster_free_ms,
        request.mesh,
        request.store,
        request.max_gpu_rate,
        request.max_core_rate,
        request.max_disk_rate,
        request.rents_disk,
        request.avoid,
        bool(request.owner) and request.gpu_count == 1 and request.gpu_milli < WHOLE,
    )


def alternatives(request: Request) -> list[Request]:
    """The plain requests that would satisfy it, in order of preference: larger counts first, then
    ``any_of``.
    """
    most = request.gpu_count_max
    head = replace(request, any_of=(), gpu_count_max=None)
    plain = [head]
    if most is not None and most > request.gpu_count:
        plain = [replace(head, gpu_count=n) for n in range(most, request.gpu_count, -1)] + [head]
    for other in request.any_of:
        plain += alternatives(other)
    return plain


class Shapes:
    """The shapes that were asked for lately, over one fleet and the demand that scores follow."""

    def __init__(self, fleet: Fleet, demand: Demand, policy: Policy) -> None:
        self.fleet = fleet
        self.demand = demand
        self.policy = policy
        self.standing: Standing | None = None
        self._kept: dict[tuple[Any, ...], Shape] = {}

    def of(self, request: Request) -> Shape:
        """The cached costs of requests like this one, brought up to date."""
        key = shape_key(request)
        shape = self._kept.get(key)
        if shape is None:
            self._make_room()
            shape = self._kept[key] = Shape(request)
        fleet = self.fleet
        usable = self.demand.usable(fleet)
        if self.standing is None or self.standing.usable is not usable:
            self.standing = Standing(usable)
        sized = len(shape.cost) == fleet.rows
        if not sized:
            shape.cost = np.full(fleet.rows, np.inf)
            shape.slot = np.zeros(fleet.rows, np.int16)
            shape.fails = np.full(fleet.rows, -1, np.int32)
        self._judge_terms(shape, sized)
        current = sized and shape.version == self.demand.version and shape.seen >= 0
        changed = fleet.log.since(shape.seen) if current else None
        rows = np.arange(fleet.used) if changed is None else changed
        if len(rows):
            owner = None if shape.request.owner else 0
            shape.cost[rows], shape.slot[rows] = self.score(shape, rows, owner)
        shape.seen = fleet.log.end
        shape.version = self.demand.version
        return shape

    def _judge_terms(self, shape: Shape, sized: bool) -> None:
        log = self.fleet.terms_log
        if sized and shape.terms_seen == log.end:
            return
        changed = log.since(shape.terms_seen) if sized and shape.terms_seen >= 0 else None
        rows = np.arange(self.fleet.used) if changed is None else changed
        shape.fails[rows] = filters.failed_terms(self.fleet, rows, shape.request)
        shape.terms_seen = log.end

    def _make_room(self) -> None:
        """Forget the oldest shapes beyond what policy and memory allow."""
        most = min(self.policy.max_shapes, max(64, SHAPE_CELLS // max(self.fleet.rows, 1)))
        while len(self._kept) >= most:
            self._kept.pop(next(iter(self._kept)))

    def score(self, shape: Shape, rows: Rows, owner: int | None) -> tuple[Floats, Slots]:
        """Per row, what a request of *shape* costs there (infinite: no room, or its terms fail) and
        the device.
        """
        fleet, standing, request = self.fleet, self.standing, shape.request
        assert standing is not None, "of() makes the standing first"
        able = shape.fails.take(rows) == 0
        able &= fleet.cpu.take(rows) >= request.cpu_milli
        able &= fleet.mem.take(rows) >= request.memory_mib
        if request.disk_mib:
            able &= fleet.disk.take(rows) >= request.disk_mib
        fits = None
        if request.gpu_count:
            fits = filters.open_devices(fleet, rows, request, owner)
            able &= filters.enough(fits, request)
        costs, slots = np.empty(len(rows)), np.zeros(len(rows), np.int16)
        costs.fill(np.inf)
        (open_at,) = able.nonzero()
        weight = self.policy.price_weight
        if len(open_at) <= FEW:
            for at in open_at.tolist():
                devices: list[bool] = [] if fits is None else fits[at].tolist()
                costs[at], slots[at] = scores_scalar.score_row(
                    fleet, standing, int(rows[at]), request, devices, weight
                )
        elif len(open_at):
            some = None if fits is None else fits[open_at]
            costs[open_at], slots[open_at] = scores.score(
                fleet, standing, rows[open_at], request, some, weight
            )
        return costs, slots
