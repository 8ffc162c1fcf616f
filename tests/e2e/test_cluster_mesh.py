"""A cluster whose members have a network of their own, of real adapters end to end: they reach each
other by name under an order to run, and a replaced one is reached by its name in place of the one
that was lost.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from marketplace.cli.embedded.product import Embedded
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.isolation import Isolation
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Placement, Range, Resources
from marketplace.domain.work.roles import Part, Role
from tests.e2e.support.clusters import SOON_S, Processes, Watched, shown, spec, ticked, world
from tests.e2e.support.embedded import PURSE, embedded, until_true
from tests.requires import need_bubblewrap, need_devnet, need_docker, need_holder, need_mesh

pytestmark = [pytest.mark.prove, pytest.mark.timeout(200)]
WORK: Final = """
import json, os, socket, threading, time
own, count = int(os.environ["TALLY_MEMBER"]), int(os.environ["TALLY_MEMBERS"])
door = socket.create_server((os.environ["TALLY_MESH_ADDRESS"], 9000))
def serve():
    while True:
        caller, _ = door.accept()
        with caller:
            caller.sendall(os.environ["TALLY_LEASE"].encode())
threading.Thread(target=serve, daemon=True).start()
met = {}
while not os.path.exists("done"):
    for member in set(range(count)) - {own}:
        try:
            with socket.create_connection((f"member-{member}", 9000), timeout=1) as way:
                met[member] = way.recv(99).decode()
        except OSError:
            met.pop(member, None)
    with open("met.new", "w") as file:
        json.dump(met, file)
    os.replace("met.new", "met")
    time.sleep(0.1)
"""
TELLS: Final = """
import os, socket
own, at = os.environ["TALLY_ROLE"], os.environ["TALLY_MESH_ADDRESS"]
print(own, at, socket.gethostbyname("head"), socket.gethostbyname("worker"))
"""


def part(cpu_milli: int) -> Part:
    """What a role's members run, with so much of a core."""
    needs = Resources(cpu=Range(cpu_milli), memory=Range(128))
    return Part((needs,), ("python3", "-c", WORK), {}, 2_500_000)


def meshed(name: str, members: int, least: int) -> JobSpec:
    base = spec(name, members, least)
    return replace(base, command=("python3", "-c", WORK), cluster=Cluster(least, mesh=True))


async def all_met(jobs: Sequence[Job]) -> None:
    """Until each member reaches every other by its name: the lease that it has now."""
    leases = [str((await job.refresh())["lease"]) for job in jobs]
    for at, job in enumerate(jobs):

        async def reached(at: int = at, job: Job = job) -> bool:
            found = json.loads(await shown(job, "met") or "{}")
            return found == {str(n): one for n, one in enumerate(leases) if n != at}

        await until_true(reached, f"member {at} of {leases}", SOON_S)


def test_members_meet_by_name_and_meet_whoever_replaces_one_of_them(tmp_path: Path) -> None:
    need_bubblewrap()
    need_devnet()
    need_mesh()

    async def tell(made: Processes, market: Market) -> None:
        one = Watched(await market.run_gang(meshed("meshed", 3, least=3)))
        await one.until_said("running")
        jobs = one.gang.members
        await all_met(jobs)
        await ticked(market, jobs, 2)
        lost = jobs[1]
        dies, before = await made.host(lost), (await lost.refresh())["lease"]
        made.signal(dies, signal.SIGKILL)
        await one.until_said("held: 1 of 3 is missing, unbilled")

        async def again() -> bool:
            return one.said.count("running") == 2

        await until_true(again, f"all of it again: {one.said}", SOON_S)
        assert (await lost.refresh())["lease"] != before
        await all_met(jobs)
        await made.start_adapter(dies)
        await one.finish()

    async def main() -> None:
        with anyio.fail_after(150):
            async with world(tmp_path) as there:
                await tell(*there)

    anyio.run(main)


@pytest.mark.docker
def test_members_in_containers_meet_by_name_and_by_role(tmp_path: Path) -> None:
    need_docker()
    need_holder()
    need_mesh()

    async def main() -> None:
        with anyio.fail_after(150):
            async with embedded(tmp_path, Embedded) as made:
                await made.start_adapter("adapter2")
                purse = await made.consumer(PURSE)
                async with Market(
                    made.market_url, wallet=purse, chain_url=made.chain_url, keep=AT_ONCE
                ) as market:
                    job = replace(
                        meshed("contained", 2, least=2),
                        image=made.image, placement=Placement(isolation=Isolation.CONTAINER),
                        roles=(Role.of("head", 1, part(500)), Role.of("worker", 1, part(250))),
                    )  # fmt: skip
                    one = Watched(await market.run_gang(job))
                    await one.until_said("running")
                    await all_met(one.gang.members)
                    for role, member in zip(("head", "worker"), one.gang.members, strict=True):
                        code, told = await member.execute(["python3", "-c", TELLS])
                        own, at, head, worker = told.split()
                        assert (code, own) == (0, role) and head != worker
                        assert at == {"head": head, "worker": worker}[role]
                    await one.finish()

    anyio.run(main)
