"""Ray Data on a cluster of real adapters: a set that no member could hold streams through."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from marketplace.client.sdk.cluster import standing
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.errors import Refusal
from marketplace.domain.work.parts import Range, Resources
from tests.e2e.support.embedded import until_true
from tests.e2e.support.frameworks import Shown, example, running, said, story, until_complete
from tests.requires import need_stack

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(600)]
MEMORY_MIB = 2048
STREAMED = re.compile(
    r"streamed (\d+) MB on 3 members in \d+ s; (\d+) MB of it crossed the mesh; "
    r"waited at most ([\d.]+)%"
)
OTHERWISE_MIB = 64
"""What Ray itself says in that time, three members together."""
HEADERS = 1.13
"""A mesh's packet of 1440 bytes carries 1328 of a stream, and one in two is acknowledged."""
PACKET = 1440


async def repeated(job: Job) -> int:
    """How many packets of its streams the member *job* sent again: its network lost them."""
    told = (await job.execute(["cat", "/proc/net/snmp"]))[1]
    names, values = (line.split() for line in told.splitlines() if line.startswith("Tcp:"))
    return int(dict(zip(names, values, strict=True))["RetransSegs"])


def test_a_set_four_times_a_members_memory_streams_and_crosses_the_mesh_once_at_most(
    tmp_path: Path,
) -> None:
    stack = need_stack()

    async def tell(made: Shown, market: Market) -> None:
        job = example("ray_data", stack, cpu=2000, SET_MB=str(4 * MEMORY_MIB))
        small = Resources(cpu=Range(2000), memory=Range(MEMORY_MIB))
        job = replace(job, spec=replace(job.spec, resources=(small,)))
        async with running(made, market, job) as one:
            head, again = one.gang.members[0], dict[str, int]()
            sent, looks = dict[tuple[int, int], int](), 0

            async def look(whole: bool) -> None:
                """Keep what the mesh carried so far; *whole*: also what its streams repeated."""
                for member in (await standing(market, one.gang.id)).members:
                    for heard in member.hears:
                        pair = member.member, heard.member
                        sent[pair] = max(heard.sent, sent.get(pair, 0))
                for job in one.gang.members if whole else ():
                    with contextlib.suppress(Refusal):  # it has just ended
                        again[job.id] = await repeated(job)

            async def streamed() -> re.Match[str] | None:
                nonlocal looks
                looks += 1
                await look(whole=looks % 20 == 0)
                printed = await said(head)
                seen = STREAMED.search(printed)
                assert seen or (await head.refresh())["state"] != "ENDED", printed
                return seen

            seen = await until_true(streamed, "the end of the stream", 300)
            await look(whole=True)
            await until_complete(one)
            print(await said(head), sent, again)
        size, crossed, waited = int(seen[1]), int(seen[2]), float(seen[3])
        assert size == 4 * MEMORY_MIB
        assert waited <= 20
        carried = (sum(sent.values()) - PACKET * sum(again.values())) / (1 << 20)
        assert len(sent) == 6 and carried >= 0.9 * crossed, "what crossed was seen"
        assert carried <= HEADERS * crossed + OTHERWISE_MIB, (carried, crossed)

    story(tmp_path, stack, 3, tell)
