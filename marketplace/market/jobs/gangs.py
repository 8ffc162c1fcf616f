"""Gangs: equal jobs that are placed all together or not at all, and of which none outlives another's failure.

Each member is a job of its own, with its own lease, channel, budget and invoice; they share a gang's id. They are
matched at once and asked for in one transaction. When a member is declined, lapses, fails or is stopped, the
others are ended: a consumer never pays on for a gang that is not whole. Members that completed are no failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import anyio

from marketplace.domain.errors import Conflict, Malformed, NotFound, TallyError
from marketplace.domain.work.job import JOB, JobSpec, JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.accounts import priority, standing
from marketplace.market.accounts.access import Caller, audit
from marketplace.market.base.errors import NothingMatches, NotOffered
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ApiKey, Job, Remembered
from marketplace.market.context import MATCHER, TRIES, Market, log
from marketplace.market.core.inputs import Unmatched
from marketplace.market.core.waiting import NO_MATCH
from marketplace.market.jobs import jobs
from marketplace.market.lifecycle.change import Step, change_job, commit
from marketplace.market.placement.matching import proposed
from marketplace.market.state.directory import explained
from marketplace.matching import NoMatch

LIVING: Final = tuple(state for state in JobState if state is not JobState.ENDED)
MATCHED_WITHIN_S: Final = 6


@dataclass(frozen=True)
class Posting:
    """A gang's job, and a fresh session key for each member."""

    spec: JobSpec
    session_vks: tuple[bytes, ...]
    consumer_vkh: bytes
    once: tuple[str, str] | None = None  # idempotency key and the hash of the question


def check(spec: JobSpec) -> tuple[JobSpec, ...]:
    """What each member runs; a refusal for what no gang can be."""
    if spec.gang is None:
        raise Malformed("this job has no gang: POST /v1/jobs")
    if spec.policy.queue or spec.policy.retry_on:
        field = "queue" if spec.policy.queue else "retry"
        raise NotOffered("a gang is placed at once and ends as one", field=field)
    members = spec.members()
    jobs.check_shape(members[0])
    return members


# ---- quoting -------------------------------------------------------------------------------------


async def dry_run(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """Each member's price and ceiling, and the sum; nothing is reserved. NothingMatches."""
    members = check(spec)
    await priority.check(market, spec, account)
    found = market.directory.quote_gang(spec, account, market.now, len(members))
    if isinstance(found, NoMatch):
        raise _no_room(market, spec, account, found)
    quoted = [jobs.quoted(one, match) for one, match in zip(members, found, strict=True)]
    return {
        "members": quoted,
        "ceiling": sum(one["ceiling"] for one in quoted),
        "offers": len({one["offer"] for one in quoted}),
    }


async def explain(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """The same as data, whichever way it goes."""
    try:
        quote = await dry_run(market, spec, account)
        return {"matches": True, "quote": quote, "explain": None}
    except NothingMatches as no:
        return {"matches": False, "quote": None, "explain": no.fields["explain"]}


def _no_room(market: Market, spec: JobSpec, account: str, no: NoMatch) -> NothingMatches:
    """Why not all members fit, and how many would."""
    count = len(spec.members())
    fit = 0
    for fewer in range(count - 1, 0, -1):
        if not isinstance(market.directory.quote_gang(spec, account, market.now, fewer), NoMatch):
            fit = fewer
            break
    text = f"{fit} of {count} members fit, so none is placed; for the next: {no}"
    return NothingMatches(text, explain={**explained(no), "text": text, "members": fit})


# ---- posting -------------------------------------------------------------------------------------


async def post(market: Market, who: Caller, asked: Posting) -> str:
    """The new gang's id: all members are asked for, or nothing was. Refusals as for a job."""
    members = check(asked.spec)
    await priority.check(market, asked.spec, who.account)
    if len(asked.session_vks) != len(members):
        raise Malformed(f"a gang of {len(members)} needs as many session keys")
    first, *rest = asked.session_vks
    await jobs.fresh_keys(
        market, jobs.Posting(asked.spec, first, asked.consumer_vkh, spares=tuple(rest)), who.account
    )
    async with standing.admitted(market, who, len(members)):
        for _ in range(TRIES):
            try:
                return await _post(market, who, asked, members)
            except Conflict:
                if who.key is None:
                    raise
                who = replace(who, key=await market.store.get(ApiKey, who.key.id))
    raise Conflict("the key's budget keeps changing")


async def _post(market: Market, who: Caller, asked: Posting, members: Sequence[JobSpec]) -> str:
    gang, now = market.ids.new("gang"), market.now
    made = [
        Job(
            id=market.ids.new("job"),
            account=who.account,
            api_key=who.key.id if who.key is not None else "",
            name=f"{spec.name[:72]}-{at}",
            kind=spec.kind,
            spec=spec.to_wire(),
            consumer_vkh=asked.consumer_vkh,
            channels=[],
            state=JOB.initial,
            created_ms=now,
            updated_ms=now,
            session_vk=session_vk,
            priority=spec.policy.priority,
            gang=gang,
        )
        for at, (spec, session_vk) in enumerate(zip(members, asked.session_vks, strict=True))
    ]
    change = Change(puts=[market.event(job, "POSTED", {"gang": gang}) for job in made])
    if who.key is not None:
        budget = sum(spec.price.budget for spec in members)
        change.sets.append(who.commit(budget))
        bound: dict[str, object] = {"gang": gang, "amount": budget}
        change.puts.append(audit(market, who, "budget.commit", who.key.id, bound))
    if asked.once is not None:
        key, question = asked.once
        change.puts.append(Remembered(who.account, key, question, 201, {"id": gang}, now))
    if market.epoch:
        await _match(market, made, asked.spec, change, new=True)
    else:
        await _leave_to_matcher(market, gang, made, change)
    return gang


async def _match(
    market: Market, made: Sequence[Job], spec: JobSpec, change: Change, *, new: bool
) -> None:
    """Plan for all members on this process's view, and ask all their providers in one change."""
    leases, account = [market.ids.new("lease") for _ in made], made[0].account
    found = market.directory.place_gang(spec, account, market.now, leases)
    if isinstance(found, NoMatch):
        raise _no_room(market, spec, account, found)
    try:
        steps = [
            Step(None if new else job, None, await proposed(market, job, match, lease_id))
            for job, match, lease_id in zip(made, found, leases, strict=True)
        ]
        await commit(market, steps, change)
    except BaseException:
        for lease_id in leases:
            market.directory.release(lease_id, market.now)
        raise


async def _leave_to_matcher(market: Market, gang: str, made: Sequence[Job], change: Change) -> None:
    """Another process matches: wait a little for what it says."""
    topics = [f"job:{job.id}" for job in made]
    with market.bus.listening(*topics) as inbox:
        change.puts += made
        change.topics += [MATCHER, *topics]
        await market.store.apply(change)
        with anyio.move_on_after(MATCHED_WITHIN_S):
            while True:
                now = await members_of(market, gang)
                refused = next((job for job in now if job.reason == NO_MATCH), None)
                if refused is not None:
                    raise NothingMatches(refused.message, explain=refused.explain)
                if all(job.lease or job.state is not JobState.POSTED for job in now):
                    return
                await inbox.wait(1)


# ---- one for all ---------------------------------------------------------------------------------


async def members_of(market: Market, gang: str) -> list[Job]:
    """The members' jobs, in their order."""
    return await market.store.find(Job, gang=gang, order=("id",), limit=1000)


async def owned(market: Market, who: Caller, gang: str) -> list[Job]:
    """The members of the caller's gang; NotFound for anybody else's."""
    found = await members_of(market, gang) if gang else []
    if not found or found[0].account != who.account:
        raise NotFound(f"no gang {gang}")
    return found


async def stop(market: Market, who: Caller, gang: str) -> None:
    """End every member. Twice is once."""
    for job in await owned(market, who, gang):
        await jobs.stop_job(market, job, EndReason.CANCELLED)


Verdict = Literal["match", "end", ""]


def verdict(members: Sequence[Job]) -> Verdict:
    """What is to be done with a gang: place it, end what is left of it, or nothing."""
    if all(_unplaced(job) and not job.avoid for job in members):
        return "match"
    return "end" if any(map(_failed, members)) else ""


def _unplaced(job: Job) -> bool:
    return job.state is JobState.POSTED and not job.lease


def _failed(job: Job) -> bool:
    over = job.state in (JobState.ENDING, JobState.ENDED)
    return (over and job.reason != EndReason.COMPLETED) or _unplaced(job)


async def turn(market: Market) -> None:
    """Place what another process posted; end the gangs that are not whole any more."""
    if not market.epoch:
        return
    living = await market.store.find(Job, gang__gt="", state=LIVING, limit=10_000)
    for gang in sorted({job.gang for job in living}):
        members = await members_of(market, gang)
        try:
            match verdict(members):
                case "match":
                    await _place(market, members)
                case "end":
                    await _end(market, members)
                case _:
                    pass
        except TallyError as error:
            log.info("gang", gang=gang, error=error.line())


async def _place(market: Market, members: Sequence[Job]) -> None:
    try:
        await _match(market, members, members[0].parsed, Change(), new=False)
    except NothingMatches as no:
        explain = cast("dict[str, Any]", no.fields["explain"])
        for job in members:
            await change_job(market, job.id, Unmatched(no.message, explain))


async def _end(market: Market, members: Sequence[Job]) -> None:
    for job in members:
        if job.state not in (JobState.ENDING, JobState.ENDED):
            declined = _unplaced(job) and job.avoid
            reason = EndReason.DECLINED if declined else EndReason.MEMBER_ENDED
            await jobs.stop_job(market, job, reason)
