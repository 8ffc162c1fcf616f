"""The one place where a decision about jobs and leases is written and performed.

Load, decide, write the records and what the effects say of the store in one transaction, and only
then perform the rest. Where somebody else was faster it is read again and decided anew; so an input
must not hold what the records say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.errors import Conflict, IllegalTransition, NotFound, TallyError
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.months import month_of
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ApiKey, Gang, Job, Lease
from marketplace.market.context import MATCHER, TRIES, Market, log
from marketplace.market.core.decide import decide
from marketplace.market.core.gang import decide_gang
from marketplace.market.core.inputs import Input, Looked, Stop
from marketplace.market.core.outcome import (
    Effect,
    Enqueue,
    FreeBudget,
    HoldQuote,
    Keep,
    LeaveQueue,
    Outcome,
    Release,
    Rematch,
    Remember,
    Say,
    Story,
    Tell,
    WakeMatcher,
)
from marketplace.market.lifecycle.remember import Remembered
from marketplace.market.state.open_quotes import unfunded

_WAKES: Final = (Release, Rematch, WakeMatcher)
Extra = Callable[[Outcome], Change]
Load = Callable[[], Awaitable[tuple[Job, Lease | None]]]


@dataclass(frozen=True)
class Step:
    """An outcome, and what it was decided from: *job* is None where it is new, *lease* where there
    was none.
    """

    job: Job | None
    lease: Lease | None
    out: Outcome

    @property
    def changes(self) -> bool:
        """Whether a record differs."""
        return self.out.job != self.job or self.out.lease != self.lease


async def change_lease(
    market: Market, lease_id: str, asked: Input, extra: Extra | None = None
) -> Outcome:
    """Let *asked* happen to a lease and its job. Refusals as :func:`decide` has them; NotFound,
    Conflict.

    What *extra* gives is written in the same transaction, if anything changes.
    """

    async def load() -> tuple[Job, Lease | None]:
        lease, job = await market.lease(lease_id)
        return job, lease

    return await _settle(market, load, asked, extra)


async def change_job(
    market: Market, job_id: str, asked: Input, extra: Extra | None = None
) -> Outcome:
    """Let *asked* happen to a job and the lease that it has now, if any."""

    async def load() -> tuple[Job, Lease | None]:
        job = await market.store.get(Job, job_id)
        if job is None:
            raise NotFound(f"no job {job_id}")
        return job, await market.store.get(Lease, job.lease) if job.lease else None

    return await _settle(market, load, asked, extra)


async def change_gang(market: Market, gang_id: str, asked: Looked | Stop) -> tuple[Gang, list[Job]]:
    """Let *asked* happen to a gang; it, and its members, which stay as they are. NotFound,
    Conflict.
    """
    for _ in range(TRIES):
        gang, members = await market.gang(gang_id)
        now = decide_gang(gang, members, asked, market.now).gang
        if now == gang:
            return gang, members
        try:
            await commit(market, [], Change(sets=[now]))
        except Conflict:
            continue
        log.info("gang", gang=gang_id, state=now.state.name, reason=now.reason)
        return now, members
    raise Conflict("the gang keeps changing")


async def _settle(market: Market, load: Load, asked: Input, extra: Extra | None) -> Outcome:
    refused: tuple[Job, Lease | None] | None = None
    for left in reversed(range(TRIES)):
        job, lease = await load()
        try:
            out = decide(job, lease, asked, market.now)
        except IllegalTransition:
            if refused == (job, lease) or not left:
                raise
            refused = job, lease
            continue
        step = Step(job, lease, out)
        if not step.changes and not out.effects:
            return out
        change = extra(out) if extra is not None and step.changes else Change()
        try:
            await commit(market, [step], change)
        except Conflict:
            if not left:
                raise
            continue
        return out
    raise Conflict("the job keeps changing")


async def commit(market: Market, steps: Sequence[Step], change: Change) -> None:
    """Write all *steps* with *change* in one transaction, or nothing; then perform their effects.
    Conflict.
    """
    known = Remembered(market)
    for step in steps:
        await _fill(market, change, step, known)
    known.write(change)
    if change.puts or change.sets or change.sends or change.drops or change.raises:
        await market.store.apply(change)
    known.show()
    for step in steps:
        _perform(market, step)
        await _tell_router(market, step)


async def _tell_router(market: Market, step: Step) -> None:
    """A routed lease that is over keeps nothing of a hop; ``lifecycle.routes`` says it again."""
    lease, router = step.out.lease, market.router
    if lease is None or not lease.hop or router is None or lease.state is not LeaseState.ENDED:
        return
    try:
        await (router.over if lease.session_signature else router.drop)(lease.id)
    except TallyError as error:
        log.warning("route", lease=lease.id, error=error.line())


async def _fill(market: Market, change: Change, step: Step, known: Remembered) -> None:
    job, lease = step.out.job, step.out.lease
    if job != step.job:
        (change.puts if step.job is None else change.sets).append(job)
    if lease is not None and lease != step.lease:
        (change.puts if step.lease is None else change.sets).append(lease)
    for effect in step.out.effects:
        await _write(market, change, effect, step.out, known)
    change.topics.append(f"job:{job.id}")
    if step.lease is not None:
        change.topics.append(f"lease:{step.lease.id}")
    elif lease is not None:  # something is leased
        change.fence = market.fence


async def _write(
    market: Market, change: Change, effect: Effect, out: Outcome, known: Remembered
) -> None:
    """What *effect* says of the store."""
    match effect:
        case Tell(provider, message):
            change.sends.append((f"adapter:{provider}", message))
        case Story(kind, detail):
            lease = out.lease.id if out.lease is not None else ""
            change.puts.append(market.event(out.job, kind, dict(detail), lease))
        case Keep(record):
            change.puts.append(record)
        case Remember(lapse):
            assert out.lease is not None, "a lapse is one of a lease"
            await known.count(lapse, out.lease)
        case FreeBudget(spent):
            await _free_budget(market, change, out.job, spent)
        case _:
            pass
    if isinstance(effect, _WAKES) and MATCHER not in change.topics:
        change.topics.append(MATCHER)


async def _free_budget(market: Market, change: Change, job: Job, spent: int) -> None:
    """Into *change*: what the job did not spend goes back to its API key, audited. Jobs that end
    together may be one key's, which is written once.
    """
    written = [one for one in change.sets if isinstance(one, ApiKey) and one.id == job.api_key]
    key = written[0] if written else None
    if key is not None:
        change.sets.remove(key)
    elif job.api_key:
        key = await market.store.get(ApiKey, job.api_key)
    if key is None:
        return
    unspent = max(job.parsed.price.budget - spent, 0)
    # A month that is over counts no more: what is left of its jobs' budgets helps no other month.
    same = key.month == month_of(job.created_ms)
    left = max(key.month_committed - unspent, 0) if same else key.month_committed
    freed = max(key.committed - unspent, 0)
    change.sets.append(replace(key, committed=freed, month_committed=left))
    change.puts.append(market.note("market", "budget.free", key.id, job=job.id, amount=unspent))


def _perform(market: Market, step: Step) -> None:
    job, lease = step.out.job, step.out.lease
    for effect in step.out.effects:
        match effect:
            case Say(provider, message):
                market.providers.tell(provider, message)
            case Release(held):
                market.directory.release(held, market.now)
            case HoldQuote(address) if lease is not None:
                market.open_quotes.add(lease.id, lease.account, address)
            case Enqueue(spent):
                avoid = frozenset(job.avoid)
                market.directory.wait(job.id, job.parsed, job.account, avoid, market.now, spent)
            case LeaveQueue():
                market.directory.leave(job.gang or job.id)
            case _:
                pass
    if lease is not None and not unfunded(lease):
        market.open_quotes.drop(lease.id)
    if step.changes:
        what = [effect.kind for effect in step.out.effects if isinstance(effect, Story)]
        log.info(
            "lease" if lease is not None else "job", job=job.id, job_state=job.state.name,
            lease=lease.id if lease is not None else "",
            state=lease.state.name if lease is not None else "", what=" ".join(what),
        )  # fmt: skip
