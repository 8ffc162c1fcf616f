"""A cluster whose members differ, from its job file onto offers of two kinds: each member has what
its own role needs, also the one that takes a lost one's place.
"""

from __future__ import annotations

from typing import Any

import anyio

from marketplace.client.jobs import jobfiles
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import Signer
from marketplace.domain.work.job import JobSpec
from marketplace.market.base.records import Job
from tests.fakes import until
from tests.integration.market.test_clusters import cluster, hosts, running
from tests.integration.market.test_faults import at_market
from tests.integration.market.test_gangs import CARDS, fresh, gang_body, of, posted, whole
from tests.integration.market.test_spine import quoted

FILE = """\
version: 1
image: docker.io/library/python@sha256:{digest}
command: [python, train.py]
env: {{EPOCHS: "3"}}
price: {{budget: 40 ADA}}
policy: {{max_duration: 1m}}
cluster:
  spread: true
  roles:
    head: {{resources: {{cpu: 4, memory: 2GB}}, budget: 10 ADA}}
    worker: {{members: {workers}, resources: {{gpu: {{model: T4}}}}, command: [python, worker.py]}}
"""


def job(workers: int = 2) -> JobSpec:
    return jobfiles.loads(FILE.format(digest="ab" * 32, workers=workers)).spec()


def plain(*names: str) -> list[Any]:
    return hosts(*names, gpus=())


def cards(*names: str) -> list[Any]:
    return hosts(*names, gpus=CARDS[:1])


def test_each_member_is_placed_by_what_its_role_needs(tmp_path) -> None:
    async def go() -> None:
        fakes = [*plain("p1"), *cards("c1", "c2")]
        async with at_market(tmp_path, *fakes) as (client, _, _, *made):
            asked = job()
            quote = await client.post("/v1/quotes", json={"spec": asked.to_wire()})
            assert quote.status_code == 200, quote.text
            kinds = [one["resource"] for one in quote.json()["members"]]
            assert (len(set(kinds)), kinds[1]) == (2, kinds[2])
            assert quote.json()["offers"] == 3

            view, _ = await posted(client, asked)
            view = await whole(client, view["id"], "QUOTED")
            head, *workers = view["members"]
            assert head["provider"] == made[0].signer.verify_key.hex()
            assert {one["provider"] for one in workers} == {
                one.signer.verify_key.hex() for one in made[1:]
            }
            told = [one["spec"]["env"]["TALLY_ROLE"] for one in view["members"]]
            assert told == ["head", "worker", "worker"]
            assert [one["spec"]["command"][-1] for one in view["members"]] == [
                "train.py", "worker.py", "worker.py",
            ]  # fmt: skip
            budgets = [one["spec"]["price"]["budget"] for one in view["members"]]
            assert budgets == [10_000_000, 15_000_000, 15_000_000]
            assert view["budget"] == 40_000_000
            # Both sides sign what their own member runs, and know of the others by their hashes.
            for one, mine in zip(view["members"], asked.members(), strict=True):
                assert JobSpec.from_wire(one["spec"]) == mine
            for fake in made:
                [lease] = fake.leases.values()
                assert lease.job in asked.members() and lease.terms.work == lease.job.hash

    anyio.run(go)


def test_nothing_is_asked_for_where_a_role_has_no_room_and_each_is_told(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *plain("p1"), *cards("c1", "c2")) as (client, run, *_):
            for path, body in (
                ("/v1/quotes", {"spec": job(3).to_wire()}),
                ("/v1/gangs", gang_body(job(3), fresh(4))),
            ):
                answer = await client.post(path, json=body)
                assert (answer.status_code, answer.json()["code"]) == (422, "NO_MATCH")
                assert answer.json()["fields"]["explain"]["members"] == 3
                assert "3 of 4 members fit (head 1 of 1, worker 2 of 3)" in answer.text
            assert await run.market.store.count(Job) == 0

    anyio.run(go)


def test_roles_that_contradict_themselves_are_refused_with_what_to_do(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *plain("p1")) as (client, run, *_):
            for broken in (
                {"roles": []},
                {"roles": [{**one, "members": 2} for one in job().to_wire()["roles"]]},
                {"roles": [{**one, "budget": 30_000_000} for one in job().to_wire()["roles"]]},
                {"roles": [one.to_wire() for one in job().members()[0].roles]},
                {"cluster": None},
            ):
                wire = {k: v for k, v in (job().to_wire() | broken).items() if v is not None}
                body = gang_body(job(), fresh(3)) | {"spec": wire}
                answer = await client.post("/v1/gangs", json=body)
                assert (answer.status_code, answer.json()["code"]) == (422, "MALFORMED"), wire
                assert answer.json()["remedy"]
            for roles in ("command", "resources"):
                wire = job().to_wire()
                wire["roles"][1][roles] = []
                wire["image"] = wire["image"] if roles == "resources" else ""
                wire["placement"]["isolation"] = "process" if roles == "command" else "container"
                body = gang_body(job(), fresh(3)) | {"spec": wire}
                answer = await client.post("/v1/gangs", json=body)
                assert answer.status_code == 422, answer.text
            assert await run.market.store.count(Job) == 0

    anyio.run(go)


def test_who_takes_a_lost_members_place_has_what_its_role_needs(tmp_path) -> None:
    async def go() -> None:
        fakes = [*plain("p1", "p2", "p3"), *cards("c1", "c2")]
        async with running(tmp_path, *fakes, job=job(1)) as (client, _, gang, leases, _, made):
            gone = of(made, leases[1])
            spare = next(one for one in made[3:] if one is not gone)
            gone.socket.stopped = True
            assert gone.socket.live is not None
            await gone.socket.live.close()

            async def needs() -> Any:
                member = (await cluster(client, gang))["members"][1]
                return member if member["needs"] else None

            member = await until(needs)
            key = Signer(blake2b_256(b"fresh")).verify_key.hex()
            answer = await client.post(f"/v1/jobs/{member['job']}/resume", json={"session_vk": key})
            assert answer.status_code == 200, answer.text
            view = await quoted(client, member["job"])
            assert view["provider"] == spare.signer.verify_key.hex()
            assert JobSpec.from_wire(view["spec"]) == job(1).members()[1]

    anyio.run(go)
