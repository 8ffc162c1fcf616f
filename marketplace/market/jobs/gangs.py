"""Gangs: jobs that are placed all together or not at all, and of which none outlives
another's failure.

Each member is a job of its own, with its own lease, channel, budget and invoice; the gang's record
says what is wanted of all of them (``domain.work.gang``), and the reconciler brings it about. They
are matched at once and asked for in one transaction; until all fit they wait as one and hold
nothing, where their consumer wants that. When a member is declined, lapses, fails or is
stopped, the others are ended: a consumer never pays on for a gang that is not whole. Members that
completed are no failure. Of a cluster what was lost is placed again, as its policy says, while the
others live on: whether they are billed meanwhile is its consumer's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from marketplace.domain.errors import Conflict, Malformed, NotFound
from marketplace.domain.work.gang import GANG, GangState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JOB
from marketplace.domain.work.lease import EndReason
from marketplace.market.accounts import images, priority, standing
from marketplace.market.accounts.access import Caller, audit
from marketplace.market.base.errors import NothingMatches, NotOffered, StoreNone
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ApiKey, Gang, Job, Remembered, Standing
from marketplace.market.context import MATCHER, TRIES, Market
from marketplace.market.core.inputs import Stop
from marketplace.market.core.waiting import NO_MATCH
from marketplace.market.jobs import jobs
from marketplace.market.jobs.fees import fees_told
from marketplace.market.lifecycle.change import change_gang
from marketplace.market.placement import expected, reconciler
from marketplace.market.placement.place_gang import match_gang, no_room
from marketplace.matching import NoMatch

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
    if spec.policy.retry_on and spec.cluster is None:
        raise NotOffered("a gang ends as one, and does not begin again", field="retry")
    members = spec.members()
    for one in {one.role: one for one in members}.values():
        jobs.check_shape(one)
    return members


def _want_store(market: Market, spec: JobSpec) -> None:
    """StoreNone where a cluster's store would be this market's, which keeps none."""
    if spec.store is not None and spec.store.name and market.stores is None:
        raise StoreNone("this market keeps no stores of clusters", field="cluster.store")


# ---- quoting -------------------------------------------------------------------------------------


async def dry_run(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """Each member's price and ceiling, and the sum; nothing is reserved. NothingMatches."""
    members = check(spec)
    _want_store(market, spec)
    await priority.check(market, spec, account)
    await expected.bring(market, spec.image)
    found = market.directory.quote_gang(members, account, market.now)
    if isinstance(found, NoMatch):
        text, why = no_room(market, members, account, found)
        raise NothingMatches(text, explain=why)
    quoted = [jobs.quoted(one, match) for one, match in zip(members, found, strict=True)]
    for told, match in zip(quoted, found, strict=True):
        offer = match.offer
        told["fees"] = await fees_told(market, offer.minimum, offer.asset, opens=True)
        told["expected_start"] = await expected.told(market, spec.image, offer.id, account)
    return {
        "members": quoted,
        "ceiling": sum(one["ceiling"] for one in quoted),
        "offers": len({one["offer"] for one in quoted}),
    }


async def explain(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """A gang's quote, or why not all of it has a place: as data either way; nothing is kept."""
    try:
        quote = await dry_run(market, spec, account)
        return {"matches": True, "quote": quote, "explain": None}
    except NothingMatches as no:
        return {"matches": False, "quote": None, "explain": no.fields["explain"]}


# ---- posting -------------------------------------------------------------------------------------


async def post(market: Market, who: Caller, asked: Posting) -> str:
    """The new gang's id: all members are asked for, or all wait, or nothing was kept. Refusals as
    for a job.
    """
    members = check(asked.spec)
    _want_store(market, asked.spec)
    await images.check(market, asked.spec.image, who.account)
    await priority.check(market, asked.spec, who.account)
    await jobs.may_wait(market, asked.spec, who.account, len(members))
    if len(asked.session_vks) != len(members):
        raise Malformed(f"a gang of {len(members)} needs as many session keys")
    first, *rest = asked.session_vks
    await jobs.fresh_keys(
        market, jobs.Posting(asked.spec, first, asked.consumer_vkh, spares=tuple(rest)), who.account
    )
    async with standing.admitted(market, who, len(members)) as known:
        for _ in range(TRIES):
            try:
                return await _post(market, who, known, asked, members)
            except Conflict:
                if who.key is None:
                    raise
                who = replace(who, key=await market.store.get(ApiKey, who.key.id))
    raise Conflict("the key's budget keeps changing")


async def _post(
    market: Market, who: Caller, known: Standing, asked: Posting, members: Sequence[JobSpec]
) -> str:
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
        change.sets.append(who.commit(budget, now))
        bound: dict[str, object] = {"gang": gang, "amount": budget}
        change.puts.append(audit(market, who, "budget.commit", who.key.id, bound))
    if asked.once is not None:
        key, question = asked.once
        change.puts.append(Remembered(who.account, key, question, 201, {"id": gang}, now))
    record = Gang(gang, who.account, GANG.initial)
    if market.epoch:
        await match_gang(market, record, made, known, change, new=True)
    else:
        await _leave_to_matcher(market, record, made, change)
    return gang


async def _leave_to_matcher(
    market: Market, gang: Gang, made: Sequence[Job], change: Change
) -> None:
    """Another process matches: wait a little for what it says."""
    topics = [f"job:{job.id}" for job in made]
    with market.bus.listening(*topics) as inbox:
        change.puts += [gang, *made]
        change.topics += [MATCHER, *topics]
        await market.store.apply(change)
        with anyio.move_on_after(MATCHED_WITHIN_S):
            while True:
                now, members = await market.gang(gang.id)
                refused = next((job for job in members if job.reason == NO_MATCH), None)
                if refused is not None:
                    raise NothingMatches(refused.message, explain=refused.explain)
                if now.state is not GangState.WANTED:
                    return
                await inbox.wait(1)


# ---- as one --------------------------------------------------------------------------------------


async def owned(market: Market, who: Caller, gang_id: str) -> list[Job]:
    """The members of the caller's gang; NotFound for anybody else's."""
    gang, members = await market.gang(gang_id)
    if gang.account != who.account:
        raise NotFound(f"no gang {gang_id}")
    return members


async def stop(market: Market, who: Caller, gang_id: str) -> None:
    """End every member. Twice is once."""
    await owned(market, who, gang_id)
    await change_gang(market, gang_id, Stop(EndReason.CANCELLED))
    await reconciler.one_gang(market, gang_id)
