"""The members of a gang are given their places all together, or none of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marketplace.domain.work.job import JobSpec
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Gang, Job, Standing
from marketplace.market.context import Market
from marketplace.market.core.gang import decide_gang
from marketplace.market.core.inputs import AllMatched, GangInput, Unmatched
from marketplace.market.lifecycle.change import Step, commit
from marketplace.market.placement import expected
from marketplace.market.placement.matching import matched
from marketplace.market.state.match import explained
from marketplace.matching import NoMatch


async def match_gang(
    market: Market,
    gang: Gang,
    members: Sequence[Job],
    known: Standing,
    change: Change,
    *,
    new: bool = False,
) -> None:
    """Plan for all members on this process's view, and ask all their providers in one change.
    *known*: the standing of the gang's account, as it was just read.

    NothingMatches for a *new* gang, of which nothing is kept then; OverBudget, Conflict.
    """
    spec, leases = members[0].parsed, [market.ids.new("lease") for _ in members]
    await expected.bring(market, spec.image)
    found = market.directory.place_gang(spec, gang.account, market.now, leases)
    if isinstance(found, NoMatch):
        text, explain = no_room(market, spec, gang.account, found)
        asked = Unmatched(text, explain, posting=new)
        await _decided(market, gang, members, asked, change, new)
        return
    try:
        places = [
            matched(market, known, match, lease) for match, lease in zip(found, leases, strict=True)
        ]
        await _decided(market, gang, members, AllMatched(tuple(places)), change, new)
    except BaseException:
        for lease in leases:
            market.directory.release(lease, market.now)
        raise


async def _decided(
    market: Market, gang: Gang, members: Sequence[Job], asked: GangInput, change: Change, new: bool
) -> None:
    out = decide_gang(gang, members, asked, market.now)
    (change.puts if new else change.sets).append(out.gang)
    steps = [
        Step(None if new else job, None, one) for job, one in zip(members, out.members, strict=True)
    ]
    await commit(market, steps, change)


def no_room(market: Market, spec: JobSpec, account: str, no: NoMatch) -> tuple[str, dict[str, Any]]:
    """Why not all members fit, and how many would: in words and as data."""
    count = len(spec.members())
    fit = 0
    for fewer in range(count - 1, 0, -1):
        if not isinstance(market.directory.quote_gang(spec, account, market.now, fewer), NoMatch):
            fit = fewer
            break
    text = f"{fit} of {count} members fit, so none is placed; for the next: {no}"
    return text, {**explained(no), "text": text, "members": fit}
