"""A market over a memory that outlives it, a gang of three and a job alone, and adapters that
obey.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio

from marketplace.domain import canonical
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.parts import Gang as Wish
from marketplace.domain.work.parts import Policy
from marketplace.market.accounts.access import VERBS, Caller
from marketplace.market.base.errors import NothingMatches
from marketplace.market.base.records import (
    ApiKey,
    Gang,
    Job,
    Lease,
    Lock,
    OfferRecord,
    Process,
    Record,
    Standing,
)
from marketplace.market.base.settings import Settings
from marketplace.market.context import MATCHER, Market
from marketplace.market.core.ending import HOLDING
from marketplace.market.core.inputs import (
    Accepted,
    Accounted,
    Declined,
    Exited,
    Input,
    NoticeOver,
    Passed,
    ProviderLost,
    Signed,
    Started,
    Stop,
)
from marketplace.market.core.waiting import AGAIN_MS
from marketplace.market.jobs import gangs, jobs
from marketplace.market.lifecycle.change import change_job, change_lease
from marketplace.market.placement import reconciler
from marketplace.market.upkeep import sweeps
from tests.fakes import FakeClock, FakeIds, offer, seed, spec
from tests.unit.support.memory import Died, Memory

R = TypeVar("R", bound=Record)
MEMBERS = 3
HOSTS = tuple(seed(f"host{at}") for at in range(5))
ME = seed("consumer")
KEY = "key_1"
RULES = Settings(quotes_new=1_000, quotes_address=1_000, starts_new=1_000)
TOGETHER = spec(gang=Wish(MEMBERS, spread=True))
PATIENT = replace(TOGETHER, policy=replace(TOGETHER.policy, queue=True))
CLUSTER = spec(
    gang=Wish(MEMBERS, spread=True, same_region=True),
    cluster=Cluster(least=2, mesh=True),
    policy=Policy(
        max_duration_ms=60_000, retry_on=("provider_lost", "provider_fault"), retry_max=2
    ),
)
ALONE = spec(
    policy=Policy(
        max_duration_ms=60_000, retry_on=("provider_lost", "preempted"), retry_max=2, queue=True
    )
)
SAYS = {
    "declines": Declined("PRICE_BELOW", "no"),
    "is busy": Declined("DEVICE_BUSY", "still clearing up"),
    "starts": Started(),
    "completes": Exited("COMPLETED", "", 0, 40),
    "fails": Exited("FAILED", "", 1, 40),
    "is lost": ProviderLost(40),
}
"""What an adapter, or its silence, tells of a lease."""
DOES = ("accepts", "signs", "lapses", "is preempted", "is stopped", *SAYS)
ENDS = ("declines", "is busy", "completes", "fails", "is lost")


@dataclass
class World:
    """*store* stays; ``market`` is whichever process runs just now."""

    store: Memory = field(default_factory=Memory)
    clock: FakeClock = field(default_factory=FakeClock)
    ids: FakeIds = field(default_factory=FakeIds)
    keys: dict[bytes, Signer] = field(default_factory=dict[bytes, Signer])
    over: set[str] = field(
        default_factory=set[str]
    )  # leases whose adapter knows that they are over
    deaths: int = 0
    sealed: dict[str, bytes] = field(default_factory=dict[str, bytes])  # of each lease
    together: JobSpec = TOGETHER
    market: Market = field(init=False)

    async def begin(self, hosts: int) -> None:
        """*hosts* are listed, and an API key pays for what is posted."""
        for at in range(hosts):
            self.list_host(at)
        account = ME.key_hash.hex()
        self._put(ApiKey(KEY, account, "", "", list(VERBS), 10**9, 0, 2**52))
        self._put(Lock(MATCHER, "p", 0, 0))
        self.store.looked = self.check
        await self.up()

    def list_host(self, at: int, **more: Any) -> None:
        """The host of that number, as the store knows it; a process learns of it by a look."""
        made = offer(HOSTS[at], **{"cluster_free_ms": 180_000, "mesh": True, **more})
        body = canonical.encode(made.to_wire())
        self._put(OfferRecord(made.id, made.provider, OfferState.LISTED, body, 0, 0, "p"))

    async def away(self, lease: Lease, away_ms: int, up_ms: int) -> None:
        """The host of *lease* has been away for *away_ms*, and the market up for *up_ms*: what
        it makes of it.
        """
        self.clock.ms += max(away_ms, up_ms)
        now = self.clock.ms
        self.store.rows[Process, ("p",)] = Process("p", now - up_ms, now)
        record = await self.store.get(OfferRecord, lease.offer)
        assert record is not None
        self.store.rows[OfferRecord, (record.id,)] = replace(record, away_ms=now - away_ms)
        await sweeps.clusters(self.market)

    async def refresh(self) -> None:
        """The process that runs learns what the store knows."""
        await sweeps.refresh(self.market)

    def _put(self, record: ApiKey | Lock | OfferRecord) -> None:
        key = record.name if isinstance(record, Lock) else record.id
        self.store.rows[type(record), (key,)] = record

    async def up(self) -> None:
        """A process that matches, and knows what the store knows."""
        lock = await self.store.get(Lock, MATCHER)
        assert lock is not None
        self._put(Lock(MATCHER, "p", lock.epoch + 1, 0, lock.version))
        self.market = Market(self.store, self.clock, self.ids, "p", RULES)
        await sweeps.refresh(self.market)
        self.market.epoch = lock.epoch + 1

    async def dying(self, work: Awaitable[None], dies: tuple[int, bool] | None) -> None:
        """Do *work*; the process dies as *dies* says, if it comes to that, and another takes
        over.
        """
        self.store.dies = dies
        try:
            with suppress(Refusal):
                await work
        except Died:
            self.deaths += 1
            await self.up()
        self.store.dies = None

    # ---- what happens ------------------------------------------------------------------------

    def _fresh(self, count: int) -> tuple[bytes, ...]:
        made = [Signer(self.ids.new("seed")[-16:].encode() * 2) for _ in range(count)]
        self.keys.update({one.verify_key: one for one in made})
        return tuple(one.verify_key for one in made)

    async def post(self, *, elsewhere: bool = False) -> None:
        """A gang and a job alone; *elsewhere*: through a process that does not match."""
        for wish in (self.together, ALONE):
            key = await self.store.get(ApiKey, KEY)
            who = Caller(ME.key_hash.hex(), frozenset(VERBS), key)
            if wish is ALONE:
                vk, *spares = self._fresh(3)
                asked = jobs.Posting(ALONE, vk, ME.key_hash, spares=tuple(spares))
                await jobs.post(self.market, who, asked)
            elif elsewhere:
                await self._elsewhere(who)
            else:
                vks = self._fresh(MEMBERS)
                with suppress(NothingMatches):
                    await gangs.post(self.market, who, gangs.Posting(wish, vks, ME.key_hash))

    async def post_cluster(self, wish: JobSpec = CLUSTER) -> None:
        """A cluster alone, in the market that matches."""
        key = await self.store.get(ApiKey, KEY)
        who = Caller(ME.key_hash.hex(), frozenset(VERBS), key)
        posting = gangs.Posting(wish, self._fresh(MEMBERS), ME.key_hash)
        await gangs.post(self.market, who, posting)

    async def bring_keys(self) -> None:
        """A fresh key for each job that waits for one."""
        who = Caller(ME.key_hash.hex(), frozenset(VERBS))
        for job in await self.store.find(Job):
            if job.needs:
                await jobs.resume(self.market, who, job.id, *self._fresh(1))

    async def _elsewhere(self, who: Caller) -> None:
        other = Market(self.store, self.clock, self.ids, "q", RULES)
        posting = gangs.Posting(self.together, self._fresh(MEMBERS), ME.key_hash)
        with anyio.move_on_after(0.02):  # its consumer does not wait for the matcher
            await gangs.post(other, who, posting)

    async def happens(self, does: str, at: int) -> None:
        """*does* to the job that comes *at* that place."""
        found = await self.store.find(Job)
        if not found:
            return
        job = found[at % len(found)]
        lease = await self.store.get(Lease, job.lease) if job.lease else None
        if lease is not None and does in ENDS:
            self.over.add(lease.id)
        if does == "is stopped":
            await change_job(self.market, job.id, Stop(EndReason.CANCELLED))
        elif lease is not None:
            await change_lease(self.market, lease.id, self._asked(does, lease))

    async def happening(self, does: str, at: int) -> None:
        """The same; what is refused does not happen."""
        with suppress(Refusal):
            await self.happens(does, at)

    def _asked(self, does: str, lease: Lease) -> Input:
        if does == "accepts":
            host = next(h for h in HOSTS if h.verify_key.hex() == lease.provider)
            return Accepted(lease.terms, host.sign(lease.terms))
        if does == "signs":
            return Signed(self.keys[lease.session_vk].sign(lease.terms), "ab" * 32, self.sealed)
        if does == "lapses":
            self.clock.ms += RULES.quote_ttl_new_ms + 1
            return Passed(RULES, 0)
        return NoticeOver() if does == "is preempted" else SAYS[does]

    async def stop_gang(self) -> None:
        """Its consumer wants none of it any more."""
        for gang in await self.store.find(Gang):
            who = Caller(ME.key_hash.hex(), frozenset(VERBS))
            await gangs.stop(self.market, who, gang.id)

    async def look(self) -> None:
        """The market looks what is lacking, as it does all the time."""
        await reconciler.gangs(self.market)
        await reconciler.jobs(self.market)

    async def settle(self) -> None:
        """Nothing new happens: the market looks, adapters do as they were told, what is due is
        settled.
        """
        for _ in range(4):
            await self.look()
            self.clock.ms += AGAIN_MS
            asked = {m.lease for _, m in self.store.outbox if isinstance(m, wire.StopAsked)}
            for lease in await self.store.find(Lease, state=LeaseState.ENDING):
                if lease.id in asked and not lease.finished_ms:
                    await change_lease(self.market, lease.id, Exited("STOPPED", "", 143, 40))
                settled = Accounted(RULES, lease.owed, 0, None, None)
                await change_lease(self.market, lease.id, settled)

    # ---- what must hold ----------------------------------------------------------------------

    def all(self, kind: type[R]) -> list[R]:
        """Every record of *kind*."""
        return [one for one in self.store.rows.values() if isinstance(one, kind)]

    def members(self, gang: Gang) -> list[Job]:
        return [job for job in self.all(Job) if job.gang == gang.id]

    def check(self) -> None:
        """After each commit: whole or not at all, and the books agree."""
        leased = {lease.job for lease in self.all(Lease)}
        for gang in self.all(Gang):
            members = self.members(gang)
            placed = len([job for job in members if job.id in leased])
            assert len(members) == MEMBERS and placed in (0, MEMBERS), "half placed"
            assert placed == 0 or gang.state not in (GangState.WANTED, GangState.WAITING)
            assert placed or gang.state is not GangState.WHOLE
        assert all(job.gang in {gang.id for gang in self.all(Gang)} | {""} for job in self.all(Job))
        self._check_books()

    def _check_books(self) -> None:
        owed = {lease.id: lease.owed for lease in self.all(Lease)}
        bound = sum(
            job.parsed.price.budget
            if job.state is not JobState.ENDED
            else job.spent_before + owed.get(job.lease, 0)
            for job in self.all(Job)
        )
        [key] = self.all(ApiKey)
        assert key.committed == bound, "a job's end was counted twice, or not at all"
        lapsed = [x for x in self.all(Lease) if "did not start it" in x.message]
        struck = {
            s.name: s.strikes for s in self.all(Standing) if not s.name.startswith("letdown.")
        }
        assert sum(struck.values()) == len(lapsed), "a start that lapsed, and nobody remembers"

    def check_settled(self) -> None:
        """When nothing happens any more: as wanted, nothing held for what is over, all were
        told.
        """
        for gang in self.all(Gang):
            members = self.members(gang)
            fell = any(
                job.state in (JobState.ENDING, JobState.ENDED) and job.reason != "COMPLETED"
                for job in members
            )
            if fell:
                assert all(job.state is JobState.ENDED for job in members), "one outlives another"
                assert gang.state is GangState.ENDED
            elif gang.state is GangState.WAITING:
                assert self.market.directory.waiting(gang.id), "a gang that nobody looks for"
                assert {job.state for job in members} == {JobState.QUEUED}
            else:
                assert all(job.lease for job in members) and gang.state is not GangState.WANTED
        for job in self.all(Job):
            placed = job.lease or job.needs or job.state is JobState.ENDED
            waits = self.market.directory.waiting(job.gang or job.id)
            assert placed or waits, "a job that nobody looks for"
            assert not job.gang or not self.market.directory.waiting(job.id), "a member by itself"
        leases = self.all(Lease)
        holding = {lease.id for lease in leases if lease.state in HOLDING}
        assert self.market.directory.holders() == holding
        ends = (wire.StopAsked, wire.LeaseCancelled)
        told = {m.lease for _, m in self.store.outbox if isinstance(m, ends)}
        gone = {lease.id for lease in leases if lease.id not in holding}
        assert gone <= told | self.over, "an adapter that nobody told"
