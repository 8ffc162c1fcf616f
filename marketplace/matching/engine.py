"""The matchmaker: filters, then scores, then the lowest row; everything kept incrementally.

One writer of the state: the hosts, the live placements and what is kept of them to answer quickly.
Nothing grows with history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from marketplace.matching import explain, filters
from marketplace.matching.filters import BIT, Bits
from marketplace.matching.fleet import Fleet, Rows
from marketplace.matching.gangs import place_gang
from marketplace.matching.locality import Locality, soonest, wait_costs
from marketplace.matching.model import WHOLE, Gang, Host, NoMatch, Placement, Policy, Request
from marketplace.matching.scoring.affinity import Beside, Owners
from marketplace.matching.scoring.demand import Demand
from marketplace.matching.scoring.scores import Slots
from marketplace.matching.scoring.shapes import Shape, Shapes, alternatives
from marketplace.matching.scoring.usable import Floats, Weights


class Matchmaker:
    """Places requests on hosts. One writer; every method is synchronous and pure of clock and
    IO.
    """

    def __init__(
        self,
        mix: Iterable[tuple[Request, float]] = (),
        policy: Policy | None = None,
        weights: Weights | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.fleet = Fleet()
        self.demand = Demand(list(mix), weights or Weights(), self.policy.learn)
        self.shapes = Shapes(self.fleet, self.demand, self.policy)
        self.locality = Locality(self.fleet)
        self._live: dict[int, tuple[Placement, int]] = {}
        self._next = 1
        self._capacity = (0, 0, 0)
        self._owners = Owners()
        self._beside = Beside()
        self._windowed: set[int] = set()
        self._draining: list[int] = []
        self.recent: deque[tuple[Request, str | None, int]] = deque(maxlen=256)

    # -- supply ------------------------------------------------------------------------------------

    def add(self, host: Host) -> None:
        """A host joins, idle. ValueError when its id is taken."""
        self._terms_changed(self.fleet.add(host), host)
        self._count_capacity(host, 1)

    def remove(self, host_id: str) -> list[Placement]:
        """A host leaves. The placements that were on it are ended and returned. KeyError when
        unknown.
        """
        row = self.fleet.row_of[host_id]
        lost = [placed for placed, at in self._live.values() if at == row]
        for placed in lost:
            self.release(placed)
        self._count_capacity(self.fleet.at(row), -1)
        self.fleet.remove(host_id)
        self._draining = [r for r in self._draining if r != row]
        self._terms_changed(row, None)
        return lost

    def drain(self, host_id: str, draining: bool = True) -> None:
        """Stop (or resume) new placements on a host; leases on it stay."""
        row = self.fleet.row_of[host_id]
        self.fleet.draining[row] = draining
        self.fleet.log.add(row)
        self._draining = [r for r in self._draining if r != row] + [row] * draining

    def _count_capacity(self, host: Host, sign: int) -> None:
        gpus, cores, memory = self._capacity
        self._capacity = (
            gpus + sign * sum(gpu.offered for gpu in host.gpus),
            cores + sign * host.cpu_milli,
            memory + sign * host.memory_mib,
        )

    def _terms_changed(self, row: int, host: Host | None) -> None:
        (self._windowed.add if host and host.maintenance else self._windowed.discard)(row)
        self.demand.supply_changed(self.fleet)

    # -- matching ----------------------------------------------------------------------------------

    def place(self, request: Request, now: int = 0) -> Placement | NoMatch:
        """The best host for *request*, taken; or why there is none. *now* only matters to
        maintenance windows.
        """
        found = self._find(request, now)
        self.demand.arrived(request, self.fleet.used)
        if found is None:
            self.recent.append((request, None, 0))
            return self.refusal(request, now)
        return self._take(*found)

    def attempt(self, request: Request, now: int = 0, only: Rows | None = None) -> Placement | None:
        """Like :meth:`place`, for callers that try again: None instead of a reasoned refusal, no
        arrival counted. *only*: on no other rows.
        """
        found = self._find(request, now, only)
        return None if found is None else self._take(*found)

    def capacity(self) -> tuple[int, int, int]:
        """Totals over all hosts: per-mille of devices, milli-cores, MiB."""
        return self._capacity

    def quote(self, request: Request, now: int = 0) -> Placement | NoMatch:
        """What :meth:`place` would answer, with nothing taken; its id is 0."""
        found = self._find(request, now)
        if found is None:
            return self.refusal(request, now)
        plain, row, slots = found
        return Placement(0, self.fleet.at(row).id, slots, plain, self.rate(plain, row, slots))

    def place_gang(self, gang: Gang, now: int = 0) -> tuple[Placement, ...] | NoMatch:
        """All members placed, in the order given, or none and the state as before."""
        return place_gang(self, gang, now)

    def _find(
        self, request: Request, now: int, only: Rows | None = None
    ) -> tuple[Request, int, tuple[int, ...]] | None:
        if not request.any_of and request.gpu_count_max is None:
            return self._find_plain(request, now, only)
        for plain in alternatives(request):
            found = self._find_plain(plain, now, only)
            if found is not None:
                return found
        return None

    def _find_plain(
        self, request: Request, now: int, only: Rows | None
    ) -> tuple[Request, int, tuple[int, ...]] | None:
        """The cheapest row and its devices, without taking them."""
        closed = self.closed(request, now)
        if self._draining:
            closed += self._draining
        found = self._cheapest(request, closed, only)
        if (
            found is not None
            and filters.below_minimum(self.fleet, np.array([found[1]]), request)[0]
        ):
            # Seldom: only then is every host asked what it would be worth there.
            rows = np.arange(self.fleet.used)
            below = filters.below_minimum(self.fleet, rows, request)
            found = self._cheapest(request, closed + rows[below].tolist(), only)
        return found

    def _cheapest(
        self, request: Request, closed: list[int], only: Rows | None
    ) -> tuple[Request, int, tuple[int, ...]] | None:
        """The same, but for the rows that are *closed*."""
        shape = self.shapes.of(request)
        cost = shape.cost
        surcharge = self._surcharge(request)
        if surcharge is not None:
            cost = cost + surcharge[self.fleet.model0]
        delays = self.locality.delays(request.image) if request.image else None
        waits = None
        if delays is not None and request.wait_rate != 0:
            worth = wait_costs(delays, self.fleet, request, shape.slot, self.policy.wait_worth)
            waits = self.policy.price_weight * worth
            cost = cost + waits
        cost = self._open(cost, closed, only)
        row = int(cost.argmin())
        if delays is not None and cost[row] < np.inf:
            row = soonest(cost, row, delays)
        best, slot = float(cost[row]), int(shape.slot[row])
        if request.owner and request.gpu_count == 1 and request.gpu_milli < WHOLE:
            found = (row, best, slot)
            row, best, slot = self._beside_own(
                request, shape, closed, only, found, surcharge, waits
            )
        if best == np.inf:
            return None
        return request, row, self._slots(request, row, slot)

    def _surcharge(self, request: Request) -> Floats | None:
        """Per model, what this request pays for taking something scarce."""
        if not request.gpu_count:
            return None
        each = self.demand.surcharge(self.fleet)
        return None if each is None else each * (request.gpu_demand / WHOLE)

    def _beside_own(
        self,
        request: Request,
        shape: Shape,
        closed: list[int],
        only: Rows | None,
        found: tuple[int, float, int],
        surcharge: Floats | None,
        waits: Floats | None,
    ) -> tuple[int, float, int]:
        """The better of *found* (a device that nobody shares yet) and a device already shared by
        the same owner.
        """
        number = self._owners.number(request.owner)
        if number is None:
            return found

        def score(rows: Rows) -> tuple[Floats, Slots]:
            return self.shapes.score(shape, rows, number)

        key, version = (shape, request.owner), self.demand.version
        own = self._beside.of(
            self.fleet, key, number, self._owners.rows(request.owner), version, score
        )
        costs = self._open(own.cost, closed, only)
        if surcharge is not None:
            costs = costs + surcharge[self.fleet.model0]
        if waits is not None:
            costs = costs + waits
        row = int(costs.argmin())
        if (float(costs[row]), row) < (found[1], found[0]):
            return row, float(costs[row]), int(own.slot[row])
        return found

    @staticmethod
    def _open(cost: Floats, closed: list[int], only: Rows | None) -> Floats:
        """*cost* with the rows that are closed, or not among *only*, at infinity."""
        if only is not None:
            some = np.full(len(cost), np.inf)
            some[only] = cost[only]
            cost = some
        elif closed:
            cost = cost.copy()
        if closed:
            cost[closed] = np.inf
        return cost

    def closed(self, request: Request, now: int) -> list[int]:
        """Rows in maintenance at *now*, or before *request* could be over."""
        end = now + max(request.duration_ms, 1)
        return [
            row
            for row in self._windowed
            if any(a < end and now < b for a, b in self.fleet.at(row).maintenance)
        ]

    def _slots(self, request: Request, row: int, first: int) -> tuple[int, ...]:
        if request.gpu_count == 0:
            return ()
        if request.gpu_count == 1:
            return (first,)
        fits = filters.open_devices(self.fleet, np.array([row]), request, 0)
        free = np.flatnonzero(fits[0])
        order = np.argsort(self.fleet.gpu_rate[row, free], kind="stable")
        return tuple(sorted(int(s) for s in free[order[: request.gpu_count]]))

    def rate(self, request: Request, row: int, slots: Sequence[int]) -> int:
        """Micro-lovelace per second: devices times share, or cores, or disk, for a request without
        devices.
        """
        if slots:
            return sum(int(self.fleet.gpu_rate[row, s]) for s in slots) * request.gpu_milli // WHOLE
        return int(self.fleet.plain_rates(np.array([row]), request)[0])

    def fits_on(self, host_id: str, request: Request, now: int = 0) -> bool:
        """Whether a plain *request* fits on one host now. KeyError when the host is unknown."""
        at = np.array([self.fleet.row_of[host_id]])
        owner = self.owner_number(request.owner)
        closed = self.closed(request, now)
        return not (
            filters.failed_terms(self.fleet, at, request)[0]
            or filters.failed_now(self.fleet, at, request, owner, closed)[0]
            or filters.below_minimum(self.fleet, at, request)[0]
        )

    def why_lost(self, host_id: str) -> explain.Losses:
        """Why a provider's host got no work lately. KeyError when it is unknown."""
        return explain.losses(self, host_id)

    def explain(self, request: Request, now: int = 0) -> NoMatch | Placement:
        """The quote if something fits; otherwise every reason and up to three relaxations, the
        nearest first.
        """
        answer = self.quote(request, now)
        return explain.refusal(self, request, now, 3) if isinstance(answer, NoMatch) else answer

    def failures(self, request: Request, now: int = 0) -> Bits:
        """Per row, every filter that a plain *request* fails now; -1 where no host lives."""
        shape, fleet = self.shapes.of(request), self.fleet
        owner = self.owner_number(request.owner)
        # Windows move with the clock and shares with the owner; all else changes only where the log
        # says so.
        steady = not self._windowed and not (request.owner and request.gpu_milli < WHOLE)
        kept = steady and len(shape.bits) == fleet.rows and shape.bits_terms == fleet.terms_log.end
        changed = fleet.log.since(shape.bits_seen) if kept else None
        if changed is None:
            shape.bits = np.full(fleet.rows, -1, np.int32)
        rows = np.arange(fleet.used) if changed is None else changed
        if len(rows):
            terms = shape.fails[rows]
            bits = filters.failed_now(fleet, rows, request, owner, self.closed(request, now))
            # Where the device itself is wrong, whether it is free says nothing.
            bits[(terms & filters.DEVICE_BITS) != 0] &= ~filters.FREE_BITS
            shape.bits[rows] = np.where(terms < 0, -1, bits | terms)
        shape.bits_seen, shape.bits_terms = fleet.log.end, fleet.terms_log.end
        if not steady:
            shape.bits_terms = -1
        below = filters.below_minimum(fleet, np.arange(fleet.used), request)
        if not below.any():
            return shape.bits
        bits = shape.bits.copy()
        bits[: fleet.used][below & (bits[: fleet.used] >= 0)] |= BIT["minimum"]
        return bits

    def refusal(self, request: Request, now: int = 0) -> NoMatch:
        """Why *request* fits nowhere, and the nearest relaxation that would."""
        return explain.refusal(self, request, now)

    def owner_number(self, owner: str) -> int | None:
        """The number of an owner that shares a device now; 0 for the anonymous one, None for a
        newcomer.
        """
        return self._owners.number(owner)

    def owner_on(self, host_id: str, slot: int) -> str:
        """Who shares a device of a host now; empty when it is nobody in particular. KeyError: no
        such host.
        """
        number = int(self.fleet.owner[self.fleet.row_of[host_id], slot])
        return self._owners.name(number)

    # -- holding -----------------------------------------------------------------------------------

    def _take(self, request: Request, row: int, slots: tuple[int, ...]) -> Placement:
        owner = self._owners.took(request.owner, row)
        need = (request.cpu_milli, request.memory_mib, request.disk_mib)
        self.fleet.take(row, slots, request.gpu_milli, need, owner)
        rate = self.rate(request, row, slots)
        placed = Placement(self._next, self.fleet.at(row).id, slots, request, rate)
        self._next += 1
        self._live[placed.id] = (placed, row)
        self.recent.append((request, placed.host, rate))
        return placed

    def adopt(self, host_id: str, gpus: Sequence[int], request: Request) -> Placement:
        """Hold what is already known to run there (at start-up). KeyError: no such host;
        ValueError: no room.
        """
        row = self.fleet.row_of[host_id]
        slots = tuple(gpus)
        fleet = self.fleet
        room = (
            fleet.cpu[row] >= request.cpu_milli
            and fleet.mem[row] >= request.memory_mib
            and fleet.disk[row] >= request.disk_mib
        )
        owner = self.owner_number(request.owner)
        devices = filters.open_devices(fleet, np.array([row]), request, owner)[0]
        if len(slots) != request.gpu_count or len(set(slots)) != len(slots):
            raise ValueError(
                f"{host_id}: {len(slots)} devices named, {request.gpu_count} asked for"
            )
        if not room or not all(s < int(fleet.count[row]) and devices[s] for s in slots):
            raise ValueError(f"{host_id}: no room there")
        return self._take(request, row, slots)

    def release(self, placement: Placement) -> None:
        """Give back what a placement holds. KeyError when it is not live."""
        placed, row = self._live.pop(placement.id)
        request = placed.request
        need = (request.cpu_milli, request.memory_mib, request.disk_mib)
        self.fleet.give(row, placed.gpus, request.gpu_milli, need)
        self._owners.gave(request.owner, row)

    def holds(self, placement: Placement) -> bool:
        """Whether *placement* is held now."""
        return placement.id in self._live

    def live(self) -> list[Placement]:
        """Every placement held now."""
        return [placed for placed, _ in self._live.values()]
