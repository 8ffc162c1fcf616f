"""Offers and jobs in the words of ``marketplace.matching``, and what every live lease holds there.

One process's view; the store decides. Whoever holds the matcher's lock plans here and commits with
the lock as fence, so two processes can never lease one device twice.
What a job's words ask of the listed offers is :mod:`.listings`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from marketplace.domain.metering.kinds import DISK
from marketplace.domain.money.terms import close_period_floor
from marketplace.domain.supply.grant import Grant
from marketplace.domain.supply.offer import Offer, OfferState
from marketplace.domain.units import WHOLE
from marketplace.domain.work.job import JobSpec
from marketplace.market.base.records import Lease, OfferRecord
from marketplace.market.state import gangs
from marketplace.market.state.image_places import ImagePlaces
from marketplace.market.state.listings import Listed, Listings, as_host
from marketplace.market.state.match import NOTHING, Begun, Match, Spent
from marketplace.market.state.others import others
from marketplace.market.state.starts import Starts
from marketplace.market.state.understood import Understood
from marketplace.matching import (
    FairQueue,
    Gang,
    Matchmaker,
    NoMatch,
    Placement,
    Quota,
    Request,
    Reservations,
    plan_preemption,
)

MOST_PRIORITY: Final = 100


@dataclass(frozen=True)
class _Held:
    offer: str
    provider: str
    grant: Grant
    account: str


class Directory:
    """The matchmaker with names: offers by id, holdings by lease, waiting jobs by id."""

    def __init__(self, starts: Starts | None = None) -> None:
        self.starts = starts or Starts()  # told how many leases each provider has
        self.matchmaker = Matchmaker()
        self.images = ImagePlaces(self.matchmaker.locality)
        # A job is accepted with a priority that its account was granted, so the queue caps none.
        self.queue = FairQueue(self.matchmaker, default=Quota(max_priority=MOST_PRIORITY))
        self.reservations = Reservations(self.matchmaker)
        self._listings = Listings()
        self._held: dict[str, _Held] = {}
        self._placed: dict[str, str] = {}  # lease → its name among the fair queue's holdings
        self._waiting: dict[str, tuple[JobSpec, str, frozenset[str], Spent]] = {}
        self._gangs: dict[str, tuple[JobSpec, ...]] = {}  # members of those of the waiting that are
        self._understood = Understood(self._listings)
        self._rooms: dict[str, gangs.Blocks] = {}  # the block that a waiting job's room is for

    # ---- supply ------------------------------------------------------------------------------

    def set_offer(self, record: OfferRecord) -> None:
        """The offer as it is now: listed, draining, or gone from the market."""
        known = self._listings.get(record.id)
        gone = record.state not in (OfferState.LISTED, OfferState.DRAINING) or record.away_ms
        if gone:
            if known is not None:
                self._unlist(record.id)
            return
        draining = record.state is OfferState.DRAINING
        if known is not None and known.record.body == record.body:
            known.record = record
            self.matchmaker.drain(record.id, draining)
            return
        if known is not None:
            self._unlist(record.id)
        offer = record.offer
        if offer.close_period_ms < close_period_floor(offer.magic):
            return  # stored before there was a floor: no terms of it would be signed
        slots = tuple(g for g in offer.host.gpus if g.rentable and g.model in offer.gpu_rates)
        self._listings.put(Listed(record, offer, slots))
        self.matchmaker.add(as_host(offer, slots))
        for lease, held in self._held.items():
            if held.offer == record.id:
                self._place_held(lease, held)
        self.matchmaker.drain(record.id, draining)
        self.reservations.grow(record.id)

    def _unlist(self, offer_id: str) -> None:
        for lease in [x for x, held in self._held.items() if held.offer == offer_id]:
            self._give_back(lease)
        self.matchmaker.remove(offer_id)
        self._listings.drop(offer_id)

    def offers(self) -> list[tuple[OfferRecord, Offer]]:
        """Everything listed now."""
        return [(one.record, one.offer) for one in self._listings.all()]

    def free(self, offer_id: str) -> dict[str, int]:
        """Per device the per-mille that nobody holds; empty for an unknown offer."""
        listed = self._listings.get(offer_id)
        if listed is None:
            return {}
        row = self.matchmaker.fleet.row_of[offer_id]
        return {g.uuid: int(self.matchmaker.fleet.free[row, i]) for i, g in enumerate(listed.slots)}

    def free_cores_milli(self, offer_id: str) -> int:
        """Thousandths of its cores that nobody holds; 0 for an unknown offer."""
        if offer_id not in self._listings:
            return 0
        return int(self.matchmaker.fleet.cpu[self.matchmaker.fleet.row_of[offer_id]])

    # ---- demand ------------------------------------------------------------------------------

    def request(
        self, spec: JobSpec, account: str, avoid: frozenset[str], spent: Spent = NOTHING
    ) -> Request:
        """The job as one request with its alternatives; *avoid* are providers."""
        return gangs.whole(self._listings.blocks(spec, account, avoid, spent))

    def place(
        self, spec: JobSpec, account: str, avoid: frozenset[str], now: int, lease: str,
        spent: Spent = NOTHING,
    ) -> Match | NoMatch:  # fmt: skip
        """The best match, held for *lease*; or why there is none."""
        blocks = self._listings.blocks(spec, account, avoid, spent)
        placed = self.matchmaker.place(gangs.whole(blocks), now)
        if isinstance(placed, NoMatch):
            return placed
        match = self._listings.named(spec, blocks, placed)
        self._hold(lease, _Held(match.offer.id, match.offer.provider, match.grant, account))
        self._count(lease, placed)
        return match

    def place_gang(
        self, members: Sequence[JobSpec], account: str, now: int, leases: Sequence[str]
    ) -> list[Match] | NoMatch:
        """A match for each of a gang's *members*, held for its lease; or why not all fit, and none
        is held.
        """
        matched = self._gang(members, account, now)
        if isinstance(matched, NoMatch):
            return matched
        for lease, match in zip(leases, matched, strict=True):
            self._hold(lease, _Held(match.offer.id, match.offer.provider, match.grant, account))
            self._count(lease, match.placement)
        return matched

    def quote_gang(
        self, members: Sequence[JobSpec], account: str, now: int
    ) -> list[Match] | NoMatch:
        """Where these *members* of a gang would be placed now, or why not all; none is held."""
        matched = self._gang(members, account, now)
        if not isinstance(matched, NoMatch):
            for match in matched:
                self.matchmaker.release(match.placement)
        return matched

    def _gang(self, members: Sequence[JobSpec], account: str, now: int) -> list[Match] | NoMatch:
        asked = gangs.asked(self._listings, members, account)
        placed = self.matchmaker.place_gang(gangs.wanted(members, asked), now)
        if isinstance(placed, NoMatch):
            return placed
        return gangs.named(self._listings, members, asked, placed)

    def wait(
        self, job: str, spec: JobSpec, account: str, avoid: frozenset[str], now: int,
        spent: Spent = NOTHING,
    ) -> None:  # fmt: skip
        """Put a job in the fair queue; nothing if it stands there already, or was given a place by
        it that is just being written (it still reads as waiting until then).
        """
        if job not in self._waiting and not self.queue.runs(job):
            self.queue.submit(job, self.request(spec, account, avoid, spent), now)
            self._waiting[job] = (spec, account, avoid, spent)
            self._understood.hear((spec,))

    def wait_gang(self, gang: str, members: Sequence[JobSpec], account: str, now: int) -> None:
        """The same for all *members* of a gang as one, by its name; they hold nothing."""
        if gang not in self._waiting and not self.queue.runs(gang):
            asked = gangs.asked(self._listings, members, account)
            self.queue.submit_gang(gang, gangs.wanted(members, asked), now)
            self._waiting[gang] = (members[0], account, frozenset(), NOTHING)
            self._gangs[gang] = tuple(members)
            self._understood.hear(members)

    def leave(self, job: str) -> None:
        """Take a job or a gang out of the queue, if it waits."""
        self._gangs.pop(job, None)
        self._rooms.pop(job, None)
        if self._waiting.pop(job, None) is not None:
            self.queue.cancel(job)

    def waiting(self, job: str) -> bool:
        """True while it stands in the queue."""
        return job in self._waiting

    def expected_wait_ms(self, job: str, now: int) -> int | None:
        """None while it does not wait or nothing has ended yet."""
        return self.queue.expected_wait_ms(job, now) if job in self._waiting else None

    def round(self, now: int, lease_for: Callable[[], str]) -> list[Begun]:
        """Every waiting job and gang that fits now, fairest first; each is held."""
        self._read_anew()
        begun: list[Begun] = []
        for started in self.queue.round(now):
            spec, account, avoid, spent = self._waiting.pop(started.job)
            members, _ = self._gangs.pop(started.job, ()), self._rooms.pop(started.job, None)
            if members:
                asked = gangs.asked(self._listings, members, account)
                found = gangs.named(self._listings, members, asked, started.placements)
            else:
                blocks = self._listings.blocks(spec, account, avoid, spent)
                found = [self._listings.named(spec, blocks, one) for one in started.placements]
            places = tuple((lease_for(), one) for one in found)
            for name, (lease, match) in zip(started.names, places, strict=True):
                self._hold(lease, _Held(match.offer.id, match.offer.provider, match.grant, account))
                self._placed[lease] = name
            begun.append(Begun(started.job, bool(members), places))
        return begun

    def _read_anew(self) -> None:
        """A waiting job asks for what is listed: for models by the words that they have there, and
        for no offer of a provider that it shuns.
        """
        anew: dict[str, Request | Gang] = {}
        for name in self._understood.misread(
            (name, (self._gangs.get(name, (spec,)), avoid, spent))
            for name, (spec, _, avoid, spent) in self._waiting.items()
        ):
            spec, account, avoid, spent = self._waiting[name]
            if members := self._gangs.get(name):
                anew[name] = gangs.wanted(members, gangs.asked(self._listings, members, account))
            else:
                anew[name] = self.request(spec, account, avoid, spent)
        self.queue.amend(anew)

    # ---- room for higher priorities -------------------------------------------------------------

    def urgent(self) -> list[str]:
        """Waiting jobs that may ask for room, the highest priority first, then the oldest."""
        ranked = [(-s.policy.priority, job) for job, (s, *_) in self._waiting.items()]
        return [job for rank, job in sorted(ranked) if rank and job not in self._gangs]

    def make_room(
        self, job: str, now: int, notice_ms: int, ranks: Mapping[str, int], spared: Container[str]
    ) -> tuple[Match, tuple[str, ...]] | None:
        """Where the waiting *job* would go, and the leases to be given notice for it; nothing is
        held yet.

        *ranks*: priority by lease, 0 where it is not named. Never a lease in *spared*, nor one
        whose account has less than its fair share; the job's own account may always make way for
        it.
        """
        spec, account, avoid, spent = self._waiting[job]
        blocks = self._listings.blocks(spec, account, avoid, spent)
        lease_at: dict[int, str] = {}
        among: list[Placement] = []
        for lease, name in self._placed.items():
            placed = self.queue.placement(name)
            if placed is not None and lease not in spared:
                lease_at[placed.id] = lease
                among.append(placed)
        fair = self.queue.fair_share()

        def may(placed: Placement, ended: Sequence[Placement]) -> bool:
            owner = placed.request.owner
            return owner == account or self.queue.share_after(owner, ended) >= fair

        plan = plan_preemption(
            self.matchmaker, gangs.whole(blocks), now, notice_ms, among,
            lambda placed: ranks.get(lease_at[placed.id], 0), may,
        )  # fmt: skip
        if plan is None:
            return None
        match = self._listings.named(spec, blocks, Placement(0, plan.host, plan.gpus, plan.request))
        return match, tuple(lease_at[victim.id] for victim in plan.victims)

    def keep_room(
        self, job: str, offer_id: str, devices: Sequence[str], block: int, victims: Sequence[str]
    ) -> bool:
        """Begin to hold room for a waiting *job*; False while it does not wait or the offer is not
        listed.
        """
        listed, waiting = self._listings.get(offer_id), self._waiting.get(job)
        if listed is None or waiting is None or job in self.reservations:
            return job in self.reservations
        index = {g.uuid: i for i, g in enumerate(listed.slots)}
        if not all(uuid in index for uuid in devices):
            return False
        labels = self.matchmaker.fleet.at(self.matchmaker.fleet.row_of[offer_id]).labels
        for at, plain in self._listings.blocks(*waiting):
            if at == block and plain.labels <= labels:
                plain = replace(plain, gpu_count=len(devices), gpu_count_max=None)
                slots = tuple(sorted(index[uuid] for uuid in devices))
                self.reservations.keep(job, plain, offer_id, slots, frozenset(victims))
                self._rooms[job] = [(block, plain)]
                return True
        return False

    def take_room(self, job: str, now: int, lease: str) -> Match | None:
        """The room of a waiting *job*, held for *lease*; None where it cannot be had any more. The
        room is gone.
        """
        waiting, placed = self._waiting.get(job), self.reservations.take(job, now)
        of_block = self._rooms.pop(job, [])
        if placed is None:
            return None
        if waiting is None:
            self.matchmaker.release(placed)
            return None
        spec, account, *_ = waiting
        match = self._listings.named(spec, of_block, placed)
        self.leave(job)
        self._hold(lease, _Held(match.offer.id, match.offer.provider, match.grant, account))
        self._count(lease, placed)
        return match

    def quote(
        self, spec: JobSpec, account: str, avoid: frozenset[str], now: int
    ) -> Match | NoMatch:
        """Where a job of *spec* would be placed now, or why not; nothing is held."""
        blocks = self._listings.blocks(spec, account, avoid)
        placed = self.matchmaker.quote(gangs.whole(blocks), now)
        return placed if isinstance(placed, NoMatch) else self._listings.named(spec, blocks, placed)

    def others(
        self, spec: JobSpec, account: str, lease: Lease, now: int, limit: int = 3
    ) -> list[dict[str, Any]]:
        """The cheapest other offers that would do for the lease's block, and how they differ."""
        return others(self._listings, self.matchmaker, spec, account, lease, now, limit)

    # ---- holding -----------------------------------------------------------------------------

    def adopt(self, lease: Lease) -> None:
        """A lease from the store: hold what it holds; nothing if it is held already."""
        if lease.id in self._held:
            return
        held = _Held(lease.offer, lease.provider, lease.grant, lease.account)
        self._hold(lease.id, held)
        if lease.offer in self._listings:
            self._place_held(lease.id, held)

    def _place_held(self, lease: str, held: _Held) -> None:
        listed, grant = self._listings[held.offer], held.grant
        index = {g.uuid: i for i, g in enumerate(listed.slots)}
        slots = [index[u] for u in grant.gpus if u in index]
        request = Request(
            cpu_milli=grant.cpu_milli,
            memory_mib=grant.memory_mib,
            disk_mib=grant.disk_mib,
            gpu_count=len(slots),
            gpu_milli=grant.share if slots else WHOLE,
            rents_disk=grant.resource == DISK.name,
            owner=held.account,
        )
        # ValueError: the host shrank under a running lease. Its adapter ends what no longer fits;
        # until then the host has, to us, no room that this lease could be taken from.
        try:
            placed = self.matchmaker.adopt(held.offer, slots, request)
        except ValueError:
            self.matchmaker.drain(held.offer)
            return
        self._count(lease, placed)

    def _count(self, lease: str, placed: Placement) -> None:
        self.queue.adopt(lease, placed, 0)
        self._placed[lease] = lease

    def _give_back(self, lease: str, now: int = 0) -> None:
        name = self._placed.pop(lease, None)
        if name is not None:
            self.queue.finished(name, now)

    def _hold(self, lease: str, held: _Held) -> None:
        self._held[lease] = held
        self.starts.holds(held.provider)

    def release(self, lease: str, now: int) -> bool:
        """Give back what *lease* holds; False when it holds nothing."""
        held = self._held.pop(lease, None)
        if held is None:
            return False
        self.starts.frees(held.provider)
        self._give_back(lease, now)
        self.reservations.grow(held.offer, lease)
        return True

    def holders(self) -> set[str]:
        """The leases that hold something."""
        return set(self._held)
