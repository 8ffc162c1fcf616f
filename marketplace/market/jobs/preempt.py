"""Room for a job of higher priority: notice to whom it will cost the place, then their end, then
the job.

Who may: a priority above 0 is for accounts that the market's operator granted it, up to the granted
one; otherwise anybody could evict everybody for nothing. Only a *waiting* job (``queue: true``)
preempts, once, and not while its account let such room go unused in the last hour. Whom: never
equal or higher priority, never an account with less than its fair share, and only leases that run.
The room is kept for the job by ``matching.reservations`` from the notice on, and given up when it
expires.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from marketplace.domain.errors import TallyError
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.preemption import PREEMPTION, PreemptionEvent, PreemptionState
from marketplace.market.accounts import priority, standing
from marketplace.market.base.errors import OverBudget
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Job, Lease, Preemption
from marketplace.market.context import Market, log
from marketplace.market.core.decide import decide
from marketplace.market.core.ending import LIVE
from marketplace.market.core.inputs import NoticeGiven, NoticeOver, NoticeWithdrawn, RoomBegun
from marketplace.market.lifecycle.change import Step, change_lease, commit
from marketplace.market.placement.matching import propose
from marketplace.market.state.match import Match

OPEN: Final = (PreemptionState.NOTICE, PreemptionState.STOPPING, PreemptionState.TAKEN)
MAKING: Final = OPEN[:2]
WASTE_MS: Final = 3_600_000
"""For how long an account that wasted room gets no more of it."""
LIVING: Final = tuple(state for state in JobState if state is not JobState.ENDED)
UNUSED: Final = (
    EndReason.QUOTE_EXPIRED,
    EndReason.CANCELLED,
    EndReason.CHANNEL_REFUSED,
    EndReason.CEILING,
)
"""Ends before the start that are the consumer's doing."""
AT_ONCE: Final = 8
"""Plans made in one turn: each may look at hundreds of hosts."""
TRIES: Final = 4


async def turn(market: Market) -> None:
    """Carry on with what was begun, then begin for waiting jobs that still lack room."""
    if not market.epoch:
        return
    for plan in await market.store.find(Preemption, state=OPEN, limit=1000):
        try:
            await _carry_on(market, plan)
        except TallyError as error:  # somebody changed a job or a lease meanwhile: next turn
            log.info("preempt", job=plan.job, error=error.line())
    begun = 0
    for job_id in market.directory.urgent():
        if begun == AT_ONCE:
            break
        try:
            begun += await _begin(market, job_id)
        except TallyError as error:
            log.info("preempt", job=job_id, error=error.line())


# ---- to begin ------------------------------------------------------------------------------------


async def _begin(market: Market, job_id: str) -> bool:
    """Plan room for a waiting job and give notice; whether a plan was looked for."""
    if await market.store.get(Preemption, job_id) is not None:
        return False
    job = await market.store.get(Job, job_id)
    if job is None or job.state is not JobState.QUEUED or job.lease or job.needs:
        return False
    if await priority.granted(market, job.account) < job.priority or await _wasteful(
        market, job.account
    ):
        return False
    spared = await _under_notice(market)
    ranks = {
        ranked.lease: ranked.priority
        for ranked in await market.store.find(
            Job, priority__gt=0, state=LIVING, lease__ne="", limit=100_000
        )
    }
    for _ in range(TRIES):
        if not market.directory.waiting(job_id):
            return True
        found = market.directory.make_room(
            job_id, market.now, market.settings.notice_ms, ranks, spared
        )
        if found is None:
            return True
        match, victims = found
        told = await _victims(market, victims)
        still = {lease.id for lease, _ in told}
        if still == set(victims):
            await _give_notice(market, job, match, told)
            return True
        spared |= set(victims) - still  # those are only quoted, or ending already
    return True


async def _wasteful(market: Market, account: str) -> bool:
    return bool(
        await market.store.count(
            Preemption,
            account=account,
            state=PreemptionState.WASTED,
            created_ms__gt=market.now - WASTE_MS,
        )
    )


async def _under_notice(market: Market) -> set[str]:
    making = await market.store.find(Preemption, state=MAKING, limit=1000)
    return {lease for plan in making for lease in plan.victims}


async def _victims(market: Market, leases: tuple[str, ...]) -> list[tuple[Lease, Job]]:
    """Those of *leases* that run, with their jobs."""
    found = await market.store.find(Lease, id=list(leases), state=LIVE, limit=len(leases))
    pairs = [(lease, await market.store.get(Job, lease.job)) for lease in found]
    return [(lease, job) for lease, job in pairs if job is not None and job.lease == lease.id]


async def _give_notice(
    market: Market, job: Job, match: Match, told: list[tuple[Lease, Job]]
) -> None:
    """The plan and every notice in one change; the room is held from here on."""
    now, settings = market.now, market.settings
    deadline = now + settings.notice_ms
    plan = Preemption(
        job=job.id,
        account=job.account,
        state=PREEMPTION.initial,
        offer=match.offer.id,
        gpus=list(match.grant.gpus),
        block=match.block,
        victims=[lease.id for lease, _ in told],
        created_ms=now,
        deadline_ms=deadline,
        expires_ms=deadline + settings.room_ttl_ms,
    )
    detail = {"offer": plan.offer, "deadline_ms": deadline, "leases": len(told)}
    steps = [Step(job, None, decide(job, None, RoomBegun(detail), now))]
    for lease, of in told:
        steps.append(Step(of, lease, decide(of, lease, NoticeGiven(deadline), now)))
    change = Change(puts=[plan], fence=market.fence)
    change.puts.append(
        market.note("market", "preempt", job.id, account=job.account, leases=plan.victims)
    )
    if not _keep(market, plan):
        return
    try:
        await commit(market, steps, change)
    except BaseException:
        market.directory.reservations.drop(job.id)
        raise
    log.info("preempt", job=job.id, offer=plan.offer, leases=len(told), deadline_ms=deadline)


def _keep(market: Market, plan: Preemption) -> bool:
    return market.directory.keep_room(plan.job, plan.offer, plan.gpus, plan.block, plan.victims)


# ---- to carry on ---------------------------------------------------------------------------------


async def _carry_on(market: Market, plan: Preemption) -> None:
    job = await market.store.get(Job, plan.job)
    if job is None:
        return
    if plan.state is PreemptionState.TAKEN:
        await _watch(market, plan, job)
        return
    if job.state is not JobState.QUEUED or job.lease or job.needs:
        await _give_up(market, plan, job)
        return
    kept = _keep(market, plan)  # again, where this process has just begun to match
    victims = await market.store.find(Lease, id=plan.victims, limit=len(plan.victims))
    noticed = plan.state is PreemptionState.NOTICE  # so nobody has been asked to end yet
    if market.now >= plan.expires_ms:
        await _end(market, plan, PreemptionEvent.LOSE)
    elif not kept:  # its offer is away, or this process has not taken up the queue yet
        return
    elif market.directory.reservations.complete(plan.job) and (noticed or all(map(_over, victims))):
        await _take(market, plan, job)
    elif noticed and market.now >= plan.deadline_ms:
        for lease in victims:
            await change_lease(market, lease.id, NoticeOver())
        await _set(market, plan, PreemptionEvent.ELAPSED)


def _over(lease: Lease) -> bool:
    return bool(lease.finished_ms) or lease.state is LeaseState.ENDED


async def _take(market: Market, plan: Preemption, job: Job) -> None:
    """There is room: ask the provider, as for any match; who still runs may stay."""
    known, lease_id = await standing.of(market, job.account), market.ids.new("lease")
    match = market.directory.take_room(plan.job, market.now, lease_id)
    if match is None:
        await _end(market, plan, PreemptionEvent.LOSE)
        return
    state = PREEMPTION.step(plan.state, PreemptionEvent.FREED)
    change = Change(sets=[replace(plan, state=state)])
    try:
        await propose(market, job, known, match, lease_id, change)
    except OverBudget:
        await _end(market, plan, PreemptionEvent.LOSE)
        return
    if plan.state is PreemptionState.NOTICE:
        await _take_back(market, plan)


async def _watch(market: Market, plan: Preemption, job: Job) -> None:
    """What came of the room."""
    if job.state in (JobState.RUNNING, JobState.PAUSED) or await _ran(market, plan):
        await _set(market, plan, PreemptionEvent.STARTED)
    elif job.state is JobState.ENDED:
        theirs = job.reason in UNUSED
        await _set(market, plan, PreemptionEvent.UNUSED if theirs else PreemptionEvent.LOSE)
    elif not job.lease:
        await _set(market, plan, PreemptionEvent.LOSE)


async def _ran(market: Market, plan: Preemption) -> bool:
    return bool(await market.store.count(Lease, job=plan.job, offer=plan.offer, started_ms__gt=0))


async def _give_up(market: Market, plan: Preemption, job: Job) -> None:
    """The job was placed elsewhere or is over."""
    stopping = plan.state is PreemptionState.STOPPING
    wasted = stopping and job.state is JobState.ENDED
    await _end(market, plan, PreemptionEvent.UNUSED if wasted else PreemptionEvent.WITHDRAW)


async def _end(market: Market, plan: Preemption, event: PreemptionEvent) -> None:
    """No room any more: the notices are taken back, as far as they can be."""
    market.directory.reservations.drop(plan.job)
    await _set(market, plan, event)
    await _take_back(market, plan)


async def _take_back(market: Market, plan: Preemption) -> None:
    for lease in plan.victims:
        try:
            await change_lease(market, lease, NoticeWithdrawn())
        except TallyError as error:
            log.info("preempt", lease=lease, error=error.line())


async def _set(market: Market, plan: Preemption, event: PreemptionEvent) -> None:
    state = PREEMPTION.step(plan.state, event)
    await market.store.apply(Change(sets=[replace(plan, state=state)], topics=[f"job:{plan.job}"]))
    log.info("preempt", job=plan.job, state=state.name)
