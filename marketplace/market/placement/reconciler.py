"""What is wanted of jobs and gangs is brought about: one look, one plan, and its moves.

It is safe to do at any time and as often as one likes, in any process; places are found only by the
one that matches. What was begun and not done, because a process died over it or somebody else was
faster, is found at the next look.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from marketplace.domain.errors import Conflict, Refusal
from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.accounts import standing
from marketplace.market.base.errors import OverBudget
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Gang, Job
from marketplace.market.context import Market, log
from marketplace.market.core.inputs import Exhausted, Looked, Stop
from marketplace.market.core.reconcile import End, Move, Place, Replace, Wait, reconcile, wanted
from marketplace.market.lifecycle.change import change_gang, change_job
from marketplace.market.placement import expected
from marketplace.market.placement.matching import BelowMinimum, match, propose, spent_by
from marketplace.market.placement.place_gang import (
    match_gang,
    place_all,
    release,
    replace_member,
    wait_gang,
)
from marketplace.market.state.match import Begun, Match

LIVING: Final = tuple(state for state in GangState if state is not GangState.ENDED)


async def one_job(market: Market, job_id: str) -> None:
    """What a job alone lacks, if anything. Conflict."""
    async with market.looks.alone(job_id):
        job = await market.store.get(Job, job_id)
        if job is None or job.gang:
            return  # the members of a gang are looked at together: see one_gang
        for move in reconcile(wanted(job), (job,), market.now):
            await _carry_out(market, move)


async def one_gang(market: Market, gang_id: str) -> None:
    """What a gang lacks, if anything. NotFound, Conflict."""
    async with market.looks.alone(gang_id):
        gang, members = await change_gang(market, gang_id, Looked())
        for move in reconcile(wanted(gang), members, market.now):
            await _carry_out(market, move, gang)
        if not wanted(gang).run:  # somebody else may have ended it
            market.directory.leave(gang_id)


async def _carry_out(market: Market, move: Move, gang: Gang | None = None) -> None:
    match move:
        case End(job, reason):
            await change_job(market, job.id, Stop(reason))
        case _ if not market.epoch:
            pass  # whoever matches has heard of it
        case Place(jobs) if gang is not None:
            await _place_gang(market, gang, jobs)
        case Place(jobs):
            await _place(market, jobs[0])
        case Replace(job):
            await _replace(market, job)
        case Wait(jobs) if gang is not None:
            await wait_gang(market, gang, jobs)
        case Wait(jobs):
            await _wait(market, jobs[0])


async def _wait(market: Market, job: Job) -> None:
    if not market.directory.waiting(job.id):
        avoid, spent = frozenset(job.avoid), await spent_by(market, job)
        await expected.bring(market, job.parsed.image)
        market.directory.wait(job.id, job.parsed, job.account, avoid, job.created_ms, spent)


async def _place(market: Market, job: Job) -> None:
    known = await standing.unblocked(market, job.account)
    if known is None:
        return  # the next look may find otherwise
    try:
        await match(market, job, job.parsed, known, Change())
    except OverBudget as over:
        await change_job(market, job.id, Exhausted(over.message))


async def _place_gang(market: Market, gang: Gang, jobs: tuple[Job, ...]) -> None:
    known = await standing.of(market, gang.account)
    try:
        await match_gang(market, gang, jobs, known, Change())
    except OverBudget:  # it would be no other at any later look
        await change_gang(market, gang.id, Stop(EndReason.CEILING))


async def _replace(market: Market, job: Job) -> None:
    """What stands beside it may have changed by the move before."""
    known = await standing.unblocked(market, job.account)
    if known is None:
        return  # the next look may find otherwise
    _, members = await market.gang(job.gang)
    others = [one for one in members if one.id != job.id]
    try:
        await replace_member(market, job, others, known)
    except OverBudget as over:
        await change_job(market, job.id, Exhausted(over.message))


# ---- all of them ---------------------------------------------------------------------------------


async def gangs(market: Market) -> None:
    """Every gang that is not over."""
    if not market.epoch:
        return
    for gang in await market.store.find(Gang, state=LIVING, order=("id",), limit=10_000):
        await _quietly(gang.id, one_gang(market, gang.id))


async def jobs(market: Market) -> None:
    """Jobs that nobody looked for yet, or whose market process died over them; then the queue."""
    if not market.epoch:
        return
    for job in await market.store.find(
        Job, state=JobState.POSTED, gang="", lease="", needs="", order=("id",), limit=1000
    ):
        await _quietly(job.id, one_job(market, job.id))
    for job in await market.store.find(
        Job, state=JobState.QUEUED, gang="", order=("id",), limit=100_000
    ):  # a gang's members stand in it as one: see gangs
        for move in reconcile(wanted(job), (job,), market.now):
            await _carry_out(market, move)
    await queued_round(market)


async def _quietly(name: str, work: Awaitable[None]) -> None:
    try:
        await work
    except Refusal as error:  # somebody was faster: looked at again, and it stops no other
        log.info("reconcile", of=name, error=error.line())


async def queued_round(market: Market) -> int:
    """Try the fair queue; how many jobs and gangs were placed."""
    begun = market.directory.round(market.now, lambda: market.ids.new("lease"))
    for one in begun:
        async with market.looks.alone(one.name):
            if one.gang:
                await _begin_gang(market, one)
                continue
            [(lease_id, found)] = one.places
            await _begin(market, one.name, lease_id, found)
    return len(begun)


async def _begin_gang(market: Market, begun: Begun) -> None:
    """All members of a waiting gang are asked for, or it waits on."""
    found = await market.store.get(Gang, begun.name)
    waits = found is not None and found.state is GangState.WAITING
    known = None
    if found is not None and waits:
        known = await standing.unblocked(market, found.account, len(begun.places))
    if found is None or known is None:
        release(market, begun.places)
        return
    try:
        gang, members = await market.gang(begun.name)
        await place_all(market, gang, members, known, begun.places, Change())
    except OverBudget:
        await change_gang(market, begun.name, Stop(EndReason.CEILING))
    except Conflict as error:  # as for a job alone
        log.info("match", gang=begun.name, error=error.line())


async def _begin(market: Market, job_id: str, lease_id: str, found: Match) -> None:
    job = await market.store.get(Job, job_id)
    waits = job is not None and job.state is JobState.QUEUED
    known = await standing.unblocked(market, job.account) if job is not None and waits else None
    if job is None or known is None:
        market.directory.release(lease_id, market.now)
        return
    try:
        await propose(market, job, known, found, lease_id, Change())
    except BelowMinimum:  # it waits on, for a place that it can have without a route
        spent, avoid = await spent_by(market, job, routed=False), frozenset(job.avoid)
        market.directory.wait(job_id, job.parsed, job.account, avoid, job.created_ms, spent)
    except OverBudget as over:
        await change_job(market, job_id, Exhausted(over.message))
    except Conflict as error:  # somebody changed the job meanwhile; it is put into the queue again
        log.info("match", job=job_id, error=error.line())
