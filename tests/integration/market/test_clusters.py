"""Clusters over real sockets: who may order a member, what passes of its mesh, and what becomes of
one that is lost.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import Heard, MeshPlace, MeshSight, SignedMesh, public
from marketplace.domain.work.mesh_net import FIRST_GUEST, MOST_GUESTS
from marketplace.domain.work.mesh_relay import RelayPlace, Ticket
from marketplace.domain.work.parts import Policy
from marketplace.market.context import NoProviders
from tests.fakes import FakeAdapter, seed, until
from tests.integration.market.test_faults import adapter, at_market
from tests.integration.market.test_gangs import CARDS, of, posted, run_all, team, whole
from tests.integration.market.test_spine import quoted, sign, state
from tests.integration.support.market import fast, sign_in

FREE = {"cluster_free_ms": 180_000, "mesh": True, "gpus": CARDS}
RULES = fast(cluster_lost_ms=400, redial_ms=0, resume_window_ms=60_000)
EACH = Policy(max_duration_ms=60_000, retry_on=("provider_lost", "provider_fault"), retry_max=2)


def crew(members: int = 2, least: int = 2, **more: Any) -> JobSpec:
    mesh = more.pop("mesh", True)
    return team(members, cluster=Cluster(least, mesh=mesh), policy=more.pop("policy", EACH), **more)


def hosts(*names: str, **more: Any):
    return [adapter(name, **{**FREE, **more}) for name in names]


def order(session: Signer, lease: str, version: int, verb: Verb = Verb.RUN) -> dict[str, str]:
    signed = SignedOrder.sign(session, ClusterOrder(lease, version, verb))
    return {"body": signed.body.hex(), "signature": signed.signature.hex()}


@asynccontextmanager
async def running(tmp_path: Any, *fakes: Any, members: int = 2, job: JobSpec | None = None):
    """A cluster of which all members are up: (client, market, gang's id, leases, keys, fakes)."""
    async with at_market(tmp_path, *fakes, settings=RULES) as (client, run, _, *made):
        view, keys = await posted(client, job or crew(members))
        view = await whole(client, view["id"], "QUOTED")
        leases = await run_all(client, view, keys, *made)
        yield client, run, view["id"], leases, keys, tuple(made)


async def ordered(client: httpx.AsyncClient, lease: str, body: dict[str, str]) -> Any:
    answer = await client.post(f"/v1/leases/{lease}/order", json=body)
    return answer.status_code, answer.json()


def told(host: FakeAdapter) -> list[int]:
    """The versions of the orders that *host* was sent, in the order of their coming."""
    return [m.order.order.version for m in host.asked if isinstance(m, wire.OrderSent)]


async def cluster(client: httpx.AsyncClient, gang: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/gangs/{gang}/cluster")
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---- orders --------------------------------------------------------------------------------------


def test_an_order_is_its_sessions_alone_and_none_comes_back(tmp_path) -> None:
    async def go() -> None:
        async with running(tmp_path, *hosts("a", "b")) as (client, _, gang, leases, keys, fakes):
            first, second = leases
            host = of(fakes, first)
            good = order(keys[0], first, 5)
            flipped = good["body"][:-2] + f"{int(good['body'][-2:], 16) ^ 1:02x}"
            lies = [
                order(keys[1], first, 5),  # another member's session
                order(host.signer, first, 5),  # its provider's
                order(keys[0], second, 5),  # of another lease
                {**good, "signature": "00" * 64},
                {**good, "body": flipped},
                {**good, "body": order(keys[0], first, 9)["body"]},
            ]
            for lie in lies:
                status, refused = await ordered(client, first, lie)
                assert (status, refused["code"]) == (422, "ORDER_REFUSED"), lie
            for junk in ({"body": "", "signature": "00" * 64}, {"body": "00", "signature": "0"}):
                status, refused = await ordered(client, first, junk)
                assert (status, refused["code"]) == (422, "MALFORMED")
            signed = keys[0].sign(b"\x80").hex()
            status, refused = await ordered(client, first, {"body": "80", "signature": signed})
            assert (status, refused["code"]) == (422, "MALFORMED")
            assert not told(host)
            members = (await cluster(client, gang))["members"]
            assert [one["order"] for one in members] == [None, None]

            assert await ordered(client, first, good) == (200, {"lease": first, "version": 5})
            await until(lambda: told(host) == [5])
            # Again after a lost answer: taken and told again. Another one of that version is not.
            assert (await ordered(client, first, good))[0] == 200
            await until(lambda: told(host) == [5, 5])
            for old in (order(keys[0], first, 5, Verb.HOLD), order(keys[0], first, 4)):
                status, refused = await ordered(client, first, old)
                assert (status, refused["code"], refused["fields"]) == (
                    422, "ORDER_REFUSED", {"version": 5},
                )  # fmt: skip
            newer = order(keys[0], first, 6, Verb.HOLD)
            assert (await ordered(client, first, newer))[0] == 200
            assert (await ordered(client, first, good))[1]["code"] == "ORDER_REFUSED"
            await until(lambda: told(host) == [5, 5, 6])
            members = (await cluster(client, gang))["members"]
            assert [one["order"] for one in members] == [newer, None]
            sent = next(m for m in host.asked if isinstance(m, wire.OrderSent))
            assert sent.order.verify(first, keys[0].verify_key).verb is Verb.RUN

    anyio.run(go)


def test_a_stranger_orders_nothing_and_sees_nothing(tmp_path) -> None:
    async def go() -> None:
        async with running(tmp_path, *hosts("a", "b")) as (client, _, gang, leases, keys, fakes):
            good = order(keys[0], leases[0], 1)
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
                nobody = await other.post(f"/v1/leases/{leases[0]}/order", json=good)
                assert nobody.status_code == 401
                await sign_in(other, seed("stranger"))
                assert (await ordered(other, leases[0], good))[0] == 404
                assert (await other.get(f"/v1/gangs/{gang}/cluster")).status_code == 404
            asked = {"name": "eyes", "verbs": ["read"], "budget": 0, "expires_at_ms": 2**52}
            key = (await client.post("/v1/keys", json=asked)).json()["secret"]
            reads = {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(base_url=client.base_url, headers=reads) as eyes:
                assert (await ordered(eyes, leases[0], good))[0] == 403
                assert (await cluster(eyes, gang))["least"] == 2
            assert not told(of(fakes, leases[0]))

    anyio.run(go)


def test_a_gang_that_is_no_cluster_takes_no_order(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *hosts("a", "b"), settings=RULES) as (client, *_):
            plain, plain_keys = await posted(client, team(2))
            plain = await whole(client, plain["id"], "QUOTED")
            lease = await sign(client, plain["members"][0], plain_keys[0], os.urandom(32).hex())
            status, refused = await ordered(client, lease, order(plain_keys[0], lease, 1))
            assert (status, refused["code"]) == (409, "TAKES_NO_ORDER")
            assert (await client.get(f"/v1/gangs/{plain['id']}/cluster")).status_code == 404

    anyio.run(go)


def test_only_a_lease_that_is_signed_and_not_over_is_ordered(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *hosts("a", "b"), settings=RULES) as (client, _, _, *fakes):
            view, keys = await posted(client, crew())
            view = await whole(client, view["id"], "QUOTED")
            quote = view["members"][0]["quote"]["lease"]
            status, refused = await ordered(client, quote, order(keys[0], quote, 1))
            assert (status, refused["code"]) == (409, "TAKES_NO_ORDER")
            leases = await run_all(client, view, keys, *fakes)
            assert (await ordered(client, leases[0], order(keys[0], leases[0], 1)))[0] == 200
            await of(tuple(fakes), leases[0]).finish(leases[0], "GROUP_STALLED", 0)
            for at in (0, 1):  # the others end with it
                await state(client, view["members"][at]["id"], "ENDING", "ENDED")
            status, refused = await ordered(client, leases[0], order(keys[0], leases[0], 2))
            assert (status, refused["code"]) == (409, "TAKES_NO_ORDER")
            assert (await cluster(client, view["id"]))["over"]
            jobs = [(await client.get(f"/v1/jobs/{m['id']}")).json() for m in view["members"]]
            assert [job["reason"] for job in jobs] == ["GROUP_STALLED", "MEMBER_ENDED"]

    anyio.run(go)


def test_the_newest_order_is_told_again_at_every_welcome(tmp_path) -> None:
    async def go() -> None:
        async with running(tmp_path, *hosts("a", "b")) as (client, _, _, leases, keys, fakes):
            host = of(fakes, leases[0])
            for version, verb in ((1, Verb.MEET), (2, Verb.RUN)):
                body = order(keys[0], leases[0], version, verb)
                assert (await ordered(client, leases[0], body))[0] == 200
            await until(lambda: told(host) == [1, 2])
            host.asked.clear()
            assert host.socket.live is not None
            await host.socket.live.close()
            await until(lambda: told(host) == [2])
            assert not told(of(fakes, leases[1]))

    anyio.run(go)


def test_an_order_that_came_to_another_process_reaches_the_adapter(tmp_path) -> None:
    async def go() -> None:
        async with running(tmp_path, *hosts("a", "b")) as (client, run, _, leases, keys, fakes):
            host = of(fakes, leases[0])
            here = run.market.providers
            run.market.providers = NoProviders()  # as at a process that no adapter has dialled
            assert (await ordered(client, leases[0], order(keys[0], leases[0], 1)))[0] == 200
            run.market.providers = here
            await anyio.sleep(0.1)
            assert not told(host)
            run.market.bus.tell([f"order:{leases[0]}"], remote=True)
            await until(lambda: told(host) == [1])

    anyio.run(go)


# ---- the mesh ------------------------------------------------------------------------------------


def place(lease: str, port: int = 51_820, key: bytes = b"\x07" * 32) -> MeshPlace:
    return MeshPlace(lease, key, public("192.0.2.7", port))


def sight(lease: str, number: int, *heard: int) -> MeshSight:
    return MeshSight(lease, 1, number, tuple(Heard(one, 400, 9, 9) for one in heard))


def test_what_is_said_of_a_mesh_is_shown_if_its_leases_adapter_signed_it(tmp_path) -> None:
    async def go() -> None:
        async with running(tmp_path, *hosts("a", "b")) as (client, _, gang, leases, keys, fakes):
            mine, theirs = leases
            host, other = of(fakes, mine), of(fakes, theirs)

            async def shown(name: str) -> Any:
                return (await cluster(client, gang))["members"][0][name]

            lies = [
                wire.MeshPlaced(mine, SignedMesh.sign(other.signer, place(mine))),
                wire.MeshPlaced(mine, SignedMesh.sign(keys[0], place(mine))),
                wire.MeshPlaced(mine, SignedMesh.sign(host.signer, place(theirs))),
                wire.MeshSeen(mine, SignedMesh.sign(other.signer, sight(mine, 1, 1))),
                wire.MeshSeen(mine, SignedMesh.sign(host.signer, sight(theirs, 1, 1))),
            ]
            for lie in lies:
                await host.send(lie)
            swapped = wire.MeshPlaced(mine, SignedMesh.sign(host.signer, place(mine)))
            await other.send(swapped)  # another adapter says what is true
            mixed = wire.MeshSeen(mine, SignedMesh.sign(host.signer, place(mine)))
            await host.send(mixed)
            await until(lambda: len(host.socket.rejected) == 6 and other.socket.rejected)
            codes = [one.code for one in host.socket.rejected]
            assert codes == ["MESH_UNPROVEN"] * 5 + ["MALFORMED"]
            assert other.socket.rejected[0].code == "NOT_FOUND"
            assert (await shown("place"), await shown("sight")) == (None, None)

            for port in (1, 2):
                said = SignedMesh.sign(host.signer, place(mine, port))
                await host.send(wire.MeshPlaced(mine, said))
            wanted = {"body": said.body.hex(), "signature": said.signature.hex()}

            async def newest() -> bool:
                return await shown("place") == wanted

            await until(newest)
            for number in (4, 9, 8):  # an old one again is not the newest
                said = SignedMesh.sign(host.signer, sight(mine, number, 1))
                await host.send(wire.MeshSeen(mine, said))

            async def seen() -> Any:
                found = await shown("sight")
                return found and MeshSight.decode(bytes.fromhex(found["body"])).number

            async def nine() -> bool:
                return await seen() == 9

            await until(nine)
            await host.progress(mine, "ORDERED", verb="RUN", version=1)
            await state(client, (await cluster(client, gang))["members"][0]["job"], "RUNNING")
            assert await seen() == 9
            assert (await cluster(client, gang))["members"][1]["place"] is None

    anyio.run(go)


def test_a_cluster_without_a_mesh_keeps_nothing_of_one(tmp_path) -> None:
    async def go() -> None:
        job = crew(mesh=False)
        made = hosts("a", "b", mesh=False)
        async with running(tmp_path, *made, job=job) as (client, _, gang, leases, _, fakes):
            host = of(fakes, leases[0])
            said = SignedMesh.sign(host.signer, place(leases[0]))
            await host.send(wire.MeshPlaced(leases[0], said))
            await until(lambda: host.socket.rejected)
            assert host.socket.rejected[0].code == "MALFORMED"
            view = await cluster(client, gang)
            assert (view["mesh"], view["members"][0]["place"]) == (False, None)

    anyio.run(go)


# ---- guests --------------------------------------------------------------------------------------


def test_only_its_owner_has_leave_for_a_guest_at_no_members_port_while_a_member_lives(
    tmp_path,
) -> None:
    async def go() -> None:
        async with running(tmp_path, *hosts("a", "b")) as (client, run, gang, leases, _, fakes):
            path, asked = f"/v1/gangs/{gang}/guest", {"number": FIRST_GUEST}
            answer = await client.post(path, json=asked)
            assert (answer.status_code, answer.json()["code"]) == (409, "NO_GUEST_RELAY")
            run.market.mesh_relay = RelayPlace("203.0.113.5", 42_000, 3, b"s" * 32)
            given = (await client.post(path, json=asked)).json()
            ticket = Ticket.from_bytes(bytes.fromhex(given["ticket"]))
            assert (ticket.member, ticket.guest, given["number"]) == (2, True, 2)
            assert ticket.key(b"s" * 32).hex() == given["key"]
            for number, status, code in (
                (FIRST_GUEST + 1, 409, "NO_GUEST_RELAY"),  # its port would be member 1's
                (1, 422, "MALFORMED"),
                (FIRST_GUEST + MOST_GUESTS, 422, "MALFORMED"),
            ):
                refused = await client.post(path, json={"number": number})
                assert (refused.status_code, refused.json()["code"]) == (status, code)
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
                assert (await other.post(path, json=asked)).status_code == 401
                await sign_in(other, seed("stranger"))
                assert (await other.post(path, json=asked)).status_code == 404
            assert (await cluster(client, gang))["members"][0]["order"] is None, "nobody is let in"
            await client.post(f"/v1/gangs/{gang}/stop")

            async def over() -> bool:
                return (await client.post(path, json=asked)).status_code == 409

            for fake in fakes:
                for lease in leases:
                    if lease in fake.leases:
                        await fake.finish(lease, "CONSUMER_STOP", 0)
            await until(over)

    anyio.run(go)


# ---- places --------------------------------------------------------------------------------------


def test_who_bears_too_little_or_hears_no_orders_gets_no_member(tmp_path) -> None:
    async def go() -> None:
        short, bare = hosts("a", cluster_free_ms=1_000), hosts("b", mesh=False)
        before = hosts("c")[0]

        def older(url: str) -> FakeAdapter:
            made = before(url)
            made.socket.client.older = True  # it states no capabilities
            return made

        fakes = (*short, *bare, older, *hosts("d"))
        async with at_market(tmp_path, *fakes, settings=RULES) as (client, *_):
            answer = await client.post("/v1/explain", json={"spec": crew().to_wire()})
            told = answer.json()
            assert not told["matches"], told
            assert (told["explain"]["members"], told["explain"]["hosts"]) == (1, 4)
            reasons = told["explain"]["reasons"]
            assert (reasons["cluster"], reasons["mesh"]) == (2, 1), reasons
            plain = await client.post("/v1/explain", json={"spec": team(4).to_wire()})
            assert plain.json()["matches"]
            listed = {
                one["provider"]: (one["cluster_free_ms"], one["mesh"])
                for one in (await client.get("/v1/offers")).json()["items"]
            }
            assert listed[seed("c").verify_key.hex()] == (0, False)
            assert listed[seed("d").verify_key.hex()] == (180_000, True)

    anyio.run(go)


def test_a_lost_member_is_replaced_apart_and_the_others_live_on(tmp_path) -> None:
    async def go() -> None:
        three = hosts("a", "b", "c")
        async with running(tmp_path, *three) as (client, _, gang, leases, keys, fakes):
            gone, stays = of(fakes, leases[0]), of(fakes, leases[1])
            spare = next(fake for fake in fakes if fake not in (gone, stays))
            gone.socket.stopped = True
            assert gone.socket.live is not None
            await gone.socket.live.close()

            async def needs() -> Any:
                member = (await cluster(client, gang))["members"][0]
                return member if member["needs"] else None

            member = await until(needs)
            assert (member["lease"], member["state"], member["lost"]) == (None, None, True)
            fresh = Signer(blake2b_256(b"fresh"))
            answer = await client.post(
                f"/v1/jobs/{member['job']}/resume", json={"session_vk": fresh.verify_key.hex()}
            )
            assert answer.status_code == 200, answer.text
            view = await quoted(client, member["job"])
            assert view["provider"] == spare.signer.verify_key.hex()
            lease = await sign(client, view, fresh, os.urandom(32).hex())
            await until(lambda: spare.leases[lease].signed)
            await spare.progress(lease, "STARTED")
            await state(client, member["job"], "RUNNING")
            member = (await cluster(client, gang))["members"][0]
            assert (member["lease"], member["started"], member["lost"]) == (lease, True, False)
            # The key that is gone orders nothing here, and the fresh one does.
            assert (await ordered(client, lease, order(keys[0], lease, 1)))[0] == 422
            assert (await ordered(client, lease, order(fresh, lease, 1)))[0] == 200
            await until(lambda: told(spare) == [1])
            assert not stays.stops and not stays.cancelled
            assert (await cluster(client, gang))["members"][1]["started"]

    anyio.run(go)


def test_only_members_of_clusters_are_lost_so_soon(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *hosts("a", "b"), settings=RULES) as (client, _, _, *fakes):
            view, keys = await posted(client, team(2))
            view = await whole(client, view["id"], "QUOTED")
            leases = await run_all(client, view, keys, *fakes)
            host = of(tuple(fakes), leases[0])
            host.socket.stopped = True
            assert host.socket.live is not None
            await host.socket.live.close()
            await anyio.sleep(2.5)  # a sweep is every second
            now = (await client.get(f"/v1/gangs/{view['id']}")).json()
            assert {member["state"] for member in now["members"]} == {"RUNNING"}

    anyio.run(go)
