"""Services: one address for what several jobs of an account serve.

The account says which of its jobs are in rotation; requests are balanced over them by the gateway.
Nothing is started or stopped here: a replica is a job like any other, posted, agreed to and paid by
whoever wants it (``client/services``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.app_origin import SERVICE_NAME, Place
from marketplace.domain.errors import Conflict, Malformed, NotFound
from marketplace.domain.work.job_machine import JobState
from marketplace.market.accounts import access, ports
from marketplace.market.accounts.access import Caller
from marketplace.market.base.errors import TooManyServices
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Job, PortLink, Replica, Service, ServiceLoad
from marketplace.market.context import TRIES, Market
from marketplace.market.jobs.jobs import owned_job

MOST_SERVICES: Final = 50  # of one account
MOST_REPLICAS: Final = 64
HOLD_MOST_MS: Final = 300_000
FRESH_MS: Final = 5_000
"""What a process said longer ago of requests under way is believed no more: it may be dead."""


@dataclass(frozen=True)
class Wanted:
    """How a service is to be: see :class:`Service`."""

    auth: str
    sticky: bool
    hold_ms: int


async def put(market: Market, who: Caller, name: str, wanted: Wanted) -> Service:
    """The caller's service *name*, made or changed. Malformed, TooManyServices."""
    if SERVICE_NAME.fullmatch(name) is None:
        raise Malformed(
            "a service's name is of small letters, digits and `-`, at most 36, and begins with a "
            "letter"
        )
    for _ in range(TRIES):
        mine = await of_account(market, who.account)
        known = next((one for one in mine if one.name == name), None)
        try:
            return await _written(market, who, name, wanted, known, len(mine))
        except Conflict:
            continue
    raise Conflict(f"service {name} keeps changing")


async def _written(
    market: Market, who: Caller, name: str, wanted: Wanted, known: Service | None, count: int
) -> Service:
    if known is None:
        if count >= MOST_SERVICES:
            raise TooManyServices(f"an account has at most {MOST_SERVICES} services")
        made = Service(
            market.ids.new("svc"), who.account, name, wanted.auth, wanted.sticky, wanted.hold_ms,
            market.now,
        )  # fmt: skip
        note = access.audit(market, who, "service.new", made.id, {"name": name})
        await market.store.apply(Change(puts=[made, note]))
        return made
    new = replace(known, auth=wanted.auth, sticky=wanted.sticky, hold_ms=wanted.hold_ms)
    if new != known:
        said: dict[str, object] = {"name": name, "auth": new.auth}
        note = access.audit(market, who, "service.changed", new.id, said)
        await market.store.apply(Change(sets=[new], puts=[note]))
    return new


async def owned(market: Market, who: Caller, name: str) -> Service:
    """The caller's service; NotFound."""
    found = await market.store.find(Service, account=who.account, name=name, limit=1)
    if not found:
        raise NotFound(f"no service {name[:80]}")
    return found[0]


async def of_account(market: Market, account: str) -> list[Service]:
    """All of an account's, by name."""
    found = await market.store.find(Service, account=account, limit=MOST_SERVICES + 1)
    return sorted(found, key=lambda one: one.name)


async def at(market: Market, place: Place) -> Service:
    """What is at an address; NotFound. The name is a part of it: an id under another name would let
    a stranger's page stand at an address that reads as yours.
    """
    found = await market.store.get(Service, place.job)
    if found is None or found.name != place.name:
        raise NotFound("no workload has this address")
    return found


async def end(market: Market, who: Caller, name: str) -> Service:
    """Its address ends at once, with the links to it; its jobs run on."""
    service = await owned(market, who, name)
    drops: list[Replica | ServiceLoad | PortLink | Service] = [service]
    drops += await market.store.find(Replica, service=service.id, limit=MOST_REPLICAS + 1)
    drops += await market.store.find(ServiceLoad, service=service.id, limit=1000)
    drops += await market.store.find(PortLink, job=service.id, limit=ports.MOST_LINKS + 1)
    note = access.audit(market, who, "service.end", service.id, {"name": name})
    topics = [topic_of(service.id)]
    await market.store.apply(Change(drops=[*drops], puts=[note], topics=topics))
    return service


# ---- replicas -----------------------------------------------------------------------------------


async def rotation(market: Market, service: str) -> list[Replica]:
    """All of its replicas, also those that get nothing new."""
    return await market.store.find(Replica, service=service, limit=MOST_REPLICAS)


async def put_replica(
    market: Market, who: Caller, name: str, job_id: str, port: int, serving: bool
) -> Replica:
    """The caller's job into the rotation of his service, or out of it. NotFound, Malformed,
    Conflict, TooManyServices.
    """
    service, job = await owned(market, who, name), await owned_job(market, who, job_id)
    ports.declared(job, port)
    if job.state is JobState.ENDED and serving:
        raise Conflict(f"{job_id} has ended")
    for _ in range(TRIES):
        known = await market.store.get(Replica, job_id)
        if known is not None and known.service != service.id:
            raise Conflict(f"{job_id} is a replica of another service")
        try:
            return await _put_replica(market, service, Replica(job_id, service.id, port, serving),
                                      known)  # fmt: skip
        except Conflict:
            continue
    raise Conflict(f"{job_id} keeps changing")


async def _put_replica(
    market: Market, service: Service, wanted: Replica, known: Replica | None
) -> Replica:
    topics = [topic_of(service.id)]
    if known is not None:
        wanted = replace(wanted, version=known.version)
        if wanted != known:
            await market.store.apply(Change(sets=[wanted], topics=topics))
        return wanted
    others = await rotation(market, service.id)
    over = await _over(market, others) if len(others) >= MOST_REPLICAS else []
    if len(others) - len(over) >= MOST_REPLICAS:
        raise TooManyServices(f"a service has at most {MOST_REPLICAS} replicas")
    await market.store.apply(Change(puts=[wanted], drops=[*over], topics=topics))
    return wanted


async def _over(market: Market, replicas: Sequence[Replica]) -> list[Replica]:
    names = [one.job for one in replicas]
    found = await market.store.find(Job, id=names, state=JobState.ENDED, limit=MOST_REPLICAS)
    ended = {job.id for job in found}
    return [one for one in replicas if one.job in ended]


async def drop_replica(market: Market, who: Caller, name: str, job_id: str) -> None:
    """The job is no replica any more; it runs on. Twice is once; NotFound where it never was."""
    service = await owned(market, who, name)
    known = await market.store.get(Replica, job_id)
    if known is not None and known.service == service.id:
        await market.store.apply(Change(drops=[known], topics=[topic_of(service.id)]))
        return
    await owned_job(market, who, job_id)


# ---- load ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadNow:
    """Of all processes together: see :class:`ServiceLoad`."""

    busy: int
    held: int
    requests: int
    failed: int
    by_job: dict[str, int]


async def tell_load(market: Market) -> None:
    """Write down what passes through this process."""
    for name in market.loads.untold():
        await tell_load_of(market, name)


async def tell_load_of(market: Market, service: str) -> None:
    """The same of one service; who waits for a replica is told of at once."""
    load = market.loads.of(service)
    async with load.telling:
        said = ServiceLoad(
            service, market.process, market.now, load.busy, load.held, load.requests, load.failed,
            dict(load.asked),
        )  # fmt: skip
        load.untold = False
        topics = [topic_of(service)] if load.held else []
        known = await market.store.get(ServiceLoad, service, market.process)
        try:
            if known is None:
                await market.store.apply(Change(puts=[said], topics=topics))
            else:
                new = replace(said, version=known.version)
                await market.store.apply(Change(sets=[new], topics=topics))
        except Conflict:  # it was forgotten just then, with its service or for its age
            load.untold = True


async def load_now(market: Market, service: str) -> LoadNow:
    """What passes to it."""
    said = await market.store.find(ServiceLoad, service=service, limit=1000)
    fresh = [one for one in said if one.at_ms > market.now - FRESH_MS]
    by_job: dict[str, int] = {}
    for one in fresh:
        for job, count in one.by_job.items():
            by_job[job] = by_job.get(job, 0) + count
    return LoadNow(
        sum(one.busy for one in fresh), sum(one.held for one in fresh),
        sum(one.requests for one in said), sum(one.failed for one in said), by_job,
    )  # fmt: skip


async def load_soon(market: Market, service: str, seconds: float) -> LoadNow:
    """As soon as somebody waits for a replica that does not come, else after *seconds*."""
    with market.bus.listening(topic_of(service)) as inbox:
        until = market.now + int(seconds * 1000)
        while True:
            now = await load_now(market, service)
            left = until - market.now
            if now.held or left <= 0:
                return now
            await inbox.wait(left / 1000)


def topic_of(service: str) -> str:
    """Its replicas changed, or somebody waits for one."""
    return f"service:{service}"
