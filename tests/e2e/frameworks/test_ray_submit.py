"""`tally job forward` into a member of a cluster: a job that `ray job submit` sends to a port of
this machine runs on the cluster's nodes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.sdk.market import Market
from marketplace.domain.isolation import Isolation
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.frameworks import DASHBOARD, Framework, launched
from marketplace.domain.work.parts import Gang, Placement, Port, Range, Resources
from tests.e2e.support.clusters import spec
from tests.e2e.support.embedded import command, until_true
from tests.e2e.support.frameworks import (
    SOON_S,
    Shown,
    running,
    story,
    until_complete,
    until_printed,
)
from tests.requires import need_stack

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(600)]
WAITS: Final = """
import os, time
print("ready", flush=True)
while not os.path.exists("/workspace/done"):
    time.sleep(0.2)
"""
SUBMITTED: Final = """
import os, ray
ray.init(log_to_driver=False)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

@ray.remote(num_cpus=0)
def where():
    return "member-" + os.environ["TALLY_MEMBER"]

nodes = [On(one["NodeID"], soft=False) for one in ray.nodes() if one["Alive"]]
asked = [where.options(scheduling_strategy=one).remote() for one in nodes]
print("ran on", *sorted(ray.get(asked)))
"""


def cluster(stack: Path) -> LoadedJob:
    """Two members, whose head's command waits to be told that it is done."""
    base = spec("submit", 2, least=2)
    run = launched(Framework.RAY, ("python3", "-u", "-c", WAITS), 2, 2, [DASHBOARD])
    small = Resources(cpu=Range(1000), memory=Range(2048))
    return LoadedJob(
        replace(
            base, command=run, env={"PATH": f"{stack / 'bin'}:/usr/bin:/bin"}, resources=(small,),
            gang=Gang(2, spread=True), cluster=Cluster(2, mesh=True), ports=(Port(DASHBOARD),),
            placement=Placement(isolation=Isolation.PROCESS),
        ),
        {},
    )  # fmt: skip


def test_ray_job_submit_reaches_the_head_through_the_market(tmp_path: Path) -> None:
    stack = need_stack()

    async def tell(made: Shown, market: Market) -> None:
        async with running(made, market, cluster(stack)) as one:
            head = one.gang.members[0]
            await until_printed(head, "ready")
            asked = ("job", "forward", one.gang.id, str(DASHBOARD), "--local", "0", "--json")
            async with command(*asked, env=made.environment) as forward:
                await forward.until(lambda said: bool(said.out))
                assert forward.last["job"] == head.id
                address = f"http://{forward.last['local']}"
                submit = (str(stack / "bin" / "ray"), "job", "submit", "--address", address)
                line = ("--", "python3", "-c", SUBMITTED)
                bare = {"RAY_ADDRESS": "", "PATH": f"{stack / 'bin'}:/usr/bin:/bin"}

                async with command(*submit[1:], *line, env=bare, program=submit[:1]) as job:
                    assert await job.ended(SOON_S) == 0, str(job)
                    assert "ran on member-0 member-1" in "\n".join(job.out), str(job)

            async def done() -> bool:
                return (await head.execute(["touch", "/workspace/done"]))[0] == 0

            await until_true(done, "the head to hear that it is done", SOON_S)
            await until_complete(one)

    story(tmp_path, stack, 2, tell)
