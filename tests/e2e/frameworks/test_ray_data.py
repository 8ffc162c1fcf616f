"""Ray Data on a cluster of real adapters: a set that no member could hold streams through."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from marketplace.client.sdk.cluster import standing
from marketplace.client.sdk.market import Market
from marketplace.domain.work.parts import Range, Resources
from tests.e2e.support.embedded import until_true
from tests.e2e.support.frameworks import Shown, example, running, said, story, until_complete
from tests.requires import need_stack

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
MEMORY_MIB = 2048
STREAMED = re.compile(
    r"streamed (\d+) MB on 3 members in \d+ s; (\d+) MB of it crossed the mesh; "
    r"waited at most ([\d.]+)%"
)
OTHERWISE_MIB = 64
"""What Ray itself says in that time, three members together."""


def test_a_set_four_times_a_members_memory_streams_and_crosses_the_mesh_once_at_most(
    tmp_path: Path,
) -> None:
    stack = need_stack("ray")

    async def tell(made: Shown, market: Market) -> None:
        job = example("ray_data", stack, cpu=2000, SET_MB=str(4 * MEMORY_MIB))
        small = Resources(cpu=Range(2000), memory=Range(MEMORY_MIB))
        job = replace(job, spec=replace(job.spec, resources=(small,)))
        async with running(made, market, job) as one:
            head, sent = one.gang.members[0], dict[tuple[int, int], int]()

            async def look() -> None:
                """Keep what the mesh carried so far."""
                for member in (await standing(market, one.gang.id)).members:
                    for heard in member.hears:
                        pair = member.member, heard.member
                        sent[pair] = max(heard.sent, sent.get(pair, 0))

            async def streamed() -> re.Match[str] | None:
                await look()
                printed = await said(head)
                seen = STREAMED.search(printed)
                assert seen or (await head.refresh())["state"] != "ENDED", printed
                return seen

            seen = await until_true(streamed, "the end of the stream", 300)
            await look()
            await until_complete(one)
            print(await said(head), sent)
        size, crossed, waited = int(seen[1]), int(seen[2]), float(seen[3])
        assert size == 4 * MEMORY_MIB
        assert waited <= 20
        carried = sum(sent.values()) / (1 << 20)
        assert len(sent) == 6 and carried >= 0.9 * crossed, "what crossed was seen"
        assert carried <= 1.1 * crossed + OTHERWISE_MIB, (carried, crossed)

    story(tmp_path, stack, 3, tell)
