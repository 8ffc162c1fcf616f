"""What a gang's members ask of the listed offers, all together, and the matches that answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marketplace.domain.work.job import JobSpec
from marketplace.market.state.listings import Listings
from marketplace.market.state.match import Match
from marketplace.matching import Gang, Placement, Request

Blocks = list[tuple[int, Request]]
Asked = dict[str, Blocks]
"""By role: members of one ask the same."""


def whole(blocks: Blocks) -> Request:
    """One request of a job's alternatives."""
    first, *rest = [plain for _, plain in blocks]
    return replace(first, any_of=tuple(rest)) if rest else first


def asked(listings: Listings, members: Sequence[JobSpec], account: str) -> Asked:
    """What each role asks."""
    found = Asked()
    for one in members:
        if one.role not in found:
            found[one.role] = listings.blocks(one, account, frozenset())
    return found


def wanted(members: Sequence[JobSpec], by_role: Asked) -> Gang:
    """All of them, in their order."""
    gang = members[0].gang
    assert gang is not None, "asked for jobs with a gang only"
    return Gang(
        tuple(whole(by_role[one.role]) for one in members), gang.spread, gang.same_region
    )  # fmt: skip


def named(
    listings: Listings, members: Sequence[JobSpec], by_role: Asked, placed: Sequence[Placement]
) -> list[Match]:
    """The offers of what was *placed* for each of *members*."""
    matched: list[Match] = []
    for spec, one in zip(members, placed, strict=True):
        blocks = by_role[spec.role]
        # The matchmaker narrows regions and hosts from member to member; the blocks do not know.
        plain = replace(one.request, regions=blocks[0][1].regions, avoid=blocks[0][1].avoid)
        match = listings.named(spec, blocks, replace(one, request=plain))
        matched.append(replace(match, placement=one))
    return matched
