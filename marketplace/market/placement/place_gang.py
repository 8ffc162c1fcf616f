"""The members of a gang are given their places all together, or none of them is; what a cluster
lost is given another beside the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Gang, Job, Lease, OfferRecord, Standing
from marketplace.market.context import Market
from marketplace.market.core.gang import decide_gang
from marketplace.market.core.inputs import AllMatched, GangInput, Unmatched
from marketplace.market.lifecycle.change import Step, commit
from marketplace.market.placement import expected
from marketplace.market.placement.matching import match, matched
from marketplace.market.state.match import Match, explained
from marketplace.matching import NoMatch

Place = tuple[str, Match]
"""What is held for a lease."""


async def match_gang(
    market: Market,
    gang: Gang,
    members: Sequence[Job],
    known: Standing,
    change: Change,
    *,
    new: bool = False,
) -> None:
    """Plan for all members on this process's view, and ask all their providers in one change; or
    let the gang wait, as its policy says. *known*: the standing of its account, as it was just
    read.

    NothingMatches for a *new* gang that does not wait, of which nothing is kept then; OverBudget,
    Conflict.
    """
    specs = [one.parsed for one in members]
    leases = [market.ids.new("lease") for _ in members]
    await expected.bring(market, specs[0].image)
    found = market.directory.place_gang(specs, gang.account, market.now, leases)
    if isinstance(found, NoMatch):
        text, explain = no_room(market, specs, gang.account, found)
        asked = Unmatched(text, explain, posting=new)
        now = await _decided(market, gang, members, asked, change, new)
        if now.state is GangState.WAITING:
            await wait_gang(market, now, members)
        return
    places = list(zip(leases, found, strict=True))
    await place_all(market, gang, members, known, places, change, new=new)


async def place_all(
    market: Market,
    gang: Gang,
    members: Sequence[Job],
    known: Standing,
    places: Sequence[Place],
    change: Change,
    *,
    new: bool = False,
) -> None:
    """Ask the providers of all *places* in one change; what they hold is given back where that
    fails. OverBudget, Conflict.
    """
    try:
        asked = tuple(matched(market, known, match, lease) for lease, match in places)
        await _decided(market, gang, members, AllMatched(asked), change, new)
    except BaseException:
        release(market, places)
        raise


def release(market: Market, places: Sequence[Place]) -> None:
    """Nothing of them is held any more."""
    for lease, _ in places:
        market.directory.release(lease, market.now)


async def wait_gang(market: Market, gang: Gang, members: Sequence[Job]) -> None:
    """It stands in the fair queue as one; nothing if it does already."""
    if not market.directory.waiting(gang.id):
        specs = [one.parsed for one in members]
        await expected.bring(market, specs[0].image)
        market.directory.wait_gang(gang.id, specs, gang.account, members[0].created_ms)


async def _decided(
    market: Market, gang: Gang, members: Sequence[Job], asked: GangInput, change: Change, new: bool
) -> Gang:
    out = decide_gang(gang, members, asked, market.now)
    (change.puts if new else change.sets).append(out.gang)
    steps = [
        Step(None if new else job, None, one) for job, one in zip(members, out.members, strict=True)
    ]
    await commit(market, steps, change)
    return out.gang


async def replace_member(market: Market, job: Job, members: Sequence[Job], known: Standing) -> None:
    """Another place for *job*, which its cluster lost, or the wait for one: apart from the other
    *members* and in their region, where its gang says so. *known*: the standing of its account.

    OverBudget, Conflict.
    """
    await match(market, job, await _beside(market, job.parsed, members), known, Change())


async def _beside(market: Market, spec: JobSpec, members: Sequence[Job]) -> JobSpec:
    """*spec* as it is to be looked for, by where the living *members* are."""
    gang = spec.gang
    assert gang is not None, "asked for members of a gang only"
    held = [one.lease for one in members if one.lease]
    leases = await market.store.find(Lease, id=held) if held else []
    there = [lease for lease in leases if lease.state is not LeaseState.ENDED]
    place = spec.placement
    if gang.spread:
        taken = {lease.provider for lease in there} - set(place.not_providers)
        place = replace(place, not_providers=(*place.not_providers, *sorted(taken)))
    offers = [await market.store.get(OfferRecord, lease.offer) for lease in there]
    regions = {one.offer.region or one.offer.host.region for one in offers if one is not None}
    if gang.same_region and regions:
        place = replace(place, regions=tuple(sorted(regions)))
    return replace(spec, placement=place)


def no_room(
    market: Market, members: Sequence[JobSpec], account: str, no: NoMatch
) -> tuple[str, dict[str, Any]]:
    """Why not all *members* fit, and how many would: in words and as data."""
    fit: list[JobSpec] = []
    full: set[str] = set()
    for one in members:
        if one.role in full:
            continue
        found = market.directory.quote_gang([*fit, one], account, market.now)
        if isinstance(found, NoMatch):
            full.add(one.role)
        else:
            fit.append(one)
    text = f"{len(fit)} of {len(members)} members fit{_by_role(members, fit)}"
    text += f", so none is placed; for the next: {no}"
    return text, {**explained(no), "text": text, "members": len(fit)}


def _by_role(members: Sequence[JobSpec], fit: Sequence[JobSpec]) -> str:
    """`` (head 1 of 1, worker 2 of 3)``; nothing where members are equal."""
    wanted, there = Counter(one.role for one in members), Counter(one.role for one in fit)
    told = ", ".join(f"{role} {there[role]} of {count}" for role, count in wanted.items() if role)
    return f" ({told})" if told else ""
