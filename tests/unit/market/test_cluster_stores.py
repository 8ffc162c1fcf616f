"""Leave to use the market's own stores: for the adapter of a lease that lives and names one, and told
to their server for no longer than it lives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from marketplace.domain.errors import Fault, Forbidden, Malformed, NotFound
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_store import KEY, Leave, Store, StorePlace, id_of
from marketplace.market.accounts import stores as owned
from marketplace.market.accounts.access import Caller
from marketplace.market.base.errors import NothingMatches, StoreInUse, StoreNone
from marketplace.market.base.ports import StoreHeld
from marketplace.market.base.records import Audit, KeptStore, Lease
from marketplace.market.leases import clusters, stores
from marketplace.market.leases.stores import InUse
from tests.unit.support.gangs import CLUSTER, ME, MEMBERS, World

SECRET = b"s" * 32
PLACE = StorePlace("https://stores.example", SECRET)
assert CLUSTER.cluster is not None
STORED = replace(CLUSTER, cluster=replace(CLUSTER.cluster, store=Store("run-1")))


class Told:
    """What the market tells adapters."""

    def __init__(self) -> None:
        self.said: list[tuple[str, wire.Message]] = []

    def tell(self, provider: str, message: wire.Message) -> None:
        self.said.append((provider, message))

    def able(self, *_: Any) -> bool:
        return True


async def world(wish: Any = STORED, store: bool = True, keeps: bool = True) -> tuple[World, Told]:
    made, told = World(), Told()
    await made.begin(0)
    for at in range(MEMBERS + 1):
        made.list_host(at, store=store)
    await made.refresh()
    made.market.stores = PLACE if keeps else None
    made.market.providers = told  # pyright: ignore[reportAttributeAccessIssue]
    made.sealed = dict.fromkeys(wish.sealed, b"sealed")
    await made.post_cluster(wish)
    for does in ("accepts", "signs", "starts"):
        for at in range(MEMBERS):
            await made.happens(does, at)
    return made, told


def leases(made: World) -> list[Lease]:
    return sorted(made.all(Lease), key=lambda one: one.id)


def test_the_adapter_of_a_living_lease_is_told_where_and_given_a_token_of_it() -> None:
    async def go() -> None:
        made, told = await world()
        one, two, _ = leases(made)
        for lease in (one, two):
            await clusters.heard(made.market, lease.provider, wire.StoreAsked(lease.id))
        sent = [(to, said) for to, said in told.said if isinstance(said, wire.StoreGiven)]
        store = id_of(ME.key_hash.hex(), "run-1")
        assert [(to, said.lease) for to, said in sent] == [(x.provider, x.id) for x in (one, two)]
        for (_, said), lease in zip(sent, (one, two), strict=True):
            assert said.given.url == f"https://stores.example/{store}/"
            assert Leave.opened(SECRET, said.given.token) == Leave("member", store, lease.id)
        assert all(lease.secrets == {} for lease in leases(made)), "sealed, and gone at the start"

    anyio.run(go)


def test_nobody_else_is() -> None:
    """Another provider, of no lease, of one that is over, of a cluster whose store is its own."""

    async def go() -> None:
        made, told = await world()
        one, two, three = leases(made)
        asks = [(two.provider, one.id), (one.provider, "lease_none")]
        for provider, lease in asks:
            with pytest.raises(NotFound):
                await stores.asked(made.market, provider, wire.StoreAsked(lease))
        await made.happens("is lost", 2)
        over = next(x for x in leases(made) if x.state.name not in ("ACTIVE", "FUNDED"))
        with pytest.raises(NotFound):
            await stores.asked(made.market, over.provider, wire.StoreAsked(over.id))
        bare, told_bare = await world(CLUSTER)
        lease = leases(bare)[0]
        with pytest.raises(Malformed):
            await stores.asked(bare.market, lease.provider, wire.StoreAsked(lease.id))
        said = [one for _, one in (*told.said, *told_bare.said)]
        assert not any(isinstance(one, wire.StoreGiven) for one in said)
        assert three.id

    anyio.run(go)


def test_a_lease_is_among_the_living_from_its_asking_to_its_end_in_any_process() -> None:
    async def go() -> None:
        made, _ = await world()
        use = InUse(made.market)
        assert await use.look() == {}
        store, asked = id_of(ME.key_hash.hex(), "run-1"), leases(made)
        for lease in asked:
            await stores.asked(made.market, lease.provider, wire.StoreAsked(lease.id))
            await stores.asked(made.market, lease.provider, wire.StoreAsked(lease.id))
        assert await use.look() == dict.fromkeys([one.id for one in asked], store)
        await made.happens("is lost", 1)
        left = await use.look()
        assert len(left) == MEMBERS - 1 and set(left) < {one.id for one in asked}
        assert await use.look() == left == await InUse(made.market).look()

    anyio.run(go)


def test_a_store_is_refused_where_there_is_none() -> None:
    """By a market that keeps none, before a member is placed; and by hosts that show none."""

    async def go() -> None:
        with pytest.raises(StoreNone) as refused:
            await world(keeps=False)
        assert refused.value.code == "STORE_NONE"
        with pytest.raises(NothingMatches) as nowhere:
            await world(store=False)
        assert "show no cluster's store" in nowhere.value.message
        assert CLUSTER.cluster is not None
        own = Store(url="s3://bucket/run")
        other = replace(
            CLUSTER, secrets=("STORE_PASSWORD", "STORE_USER"),
            cluster=replace(CLUSTER.cluster, store=own),
        )  # fmt: skip
        await world(other, keeps=False)

    anyio.run(go)


def test_it_is_signed_with_its_key_sealed_and_nothing_else() -> None:
    async def go() -> None:
        wrong: list[dict[str, bytes]] = [{}, {KEY: b"sealed", "MORE": b"sealed"}]
        for sealed in wrong:
            made = World(sealed=sealed)
            await made.begin(0)
            for at in range(MEMBERS):
                made.list_host(at, store=True)
            await made.refresh()
            made.market.stores = PLACE
            await made.post_cluster(STORED)
            for at in range(MEMBERS):
                await made.happens("accepts", at)
            with pytest.raises(Malformed, match=KEY):
                await made.happens("signs", 0)

    anyio.run(go)


class Server:
    """The stores' server: what is in each, and which are in use."""

    def __init__(self, *there: str) -> None:
        self.there, self.used = dict.fromkeys(there, StoreHeld(5, 2, 90_000)), set[str]()

    async def held(self, store: str) -> StoreHeld | None:
        return self.there.get(store)

    async def remove(self, store: str) -> bool:
        if store in self.used:
            raise StoreInUse("used")
        return self.there.pop(store, None) is not None


class StoresAway(Fault):
    """Its server does not answer."""


class Away:
    """A server that does not."""

    async def held(self, store: str) -> StoreHeld | None:
        raise StoresAway(store)

    async def remove(self, store: str) -> bool:
        raise StoresAway(store)


ACCOUNT = ME.key_hash.hex()
ALL = Caller(ACCOUNT, frozenset({"read", "jobs", "blobs"}), None)


def test_an_account_finds_what_its_clusters_named_and_reaches_it_for_an_hour() -> None:
    async def go() -> None:
        made, _ = await world()
        server = Server(id_of(ACCOUNT, "run-1"))
        made.market.own_stores = server
        lease = leases(made)[0]
        assert await owned.known(made.market, ALL, None, 10) == [], "nobody asked for it yet"
        with pytest.raises(NotFound):
            await owned.lend(made.market, ALL, "run-1")
        await stores.asked(made.market, lease.provider, wire.StoreAsked(lease.id))
        known = await owned.known(made.market, ALL, None, 10)
        assert [one.name for one in known] == ["run-1"]
        assert await owned.held(made.market, known) == [(known[0], StoreHeld(5, 2, 90_000))]
        given, until_ms = await owned.lend(made.market, ALL, "run-1")
        until_s = (made.market.now + 3_600_000) // 1000
        assert until_ms == until_s * 1000
        said = Leave.opened(SECRET, given.token)
        assert said == Leave("owner", id_of(ACCOUNT, "run-1"), until_s=until_s)
        server.there.clear()
        assert await owned.held(made.market, known) == [], "its server removed it"

    anyio.run(go)


def test_nobody_else_reaches_or_removes_it_and_nobody_while_it_is_used() -> None:
    async def go() -> None:
        made, _ = await world()
        store = id_of(ACCOUNT, "run-1")
        server = Server(store, id_of("another", "run-1"))
        made.market.own_stores = server
        lease = leases(made)[0]
        await stores.asked(made.market, lease.provider, wire.StoreAsked(lease.id))
        another = Caller("another", ALL.verbs, None)
        only_jobs = Caller(ACCOUNT, frozenset({"read", "jobs"}), None)
        for who, refused in ((another, NotFound), (only_jobs, Forbidden)):
            with pytest.raises(refused):
                await owned.lend(made.market, who, "run-1")
            with pytest.raises(refused):
                await owned.remove(made.market, who, "run-1")
        assert await owned.known(made.market, another, None, 10) == []
        server.used.add(store)
        for _ in range(2):  # it asked so lately that its server may not know; then that does
            with pytest.raises(StoreInUse):
                await owned.remove(made.market, ALL, "run-1")
            made.clock.ms += 60_000
        assert made.all(KeptStore) and len(server.there) == 2
        server.used.clear()
        with pytest.raises(StoresAway):
            made.market.own_stores = Away()
            await owned.remove(made.market, ALL, "run-1")
        assert made.all(KeptStore), "what did not go is listed still"
        made.market.own_stores = server
        await owned.remove(made.market, ALL, "run-1")
        assert not made.all(KeptStore) and store not in server.there and len(server.there) == 1
        assert [one.action for one in made.all(Audit) if one.action == "store.remove"]
        with pytest.raises(NotFound):
            await owned.lend(made.market, ALL, "run-1")
        made.market.stores = made.market.own_stores = None
        with pytest.raises(StoreNone):
            await owned.known(made.market, ALL, None, 10)

    anyio.run(go)


def test_a_store_that_a_cluster_begins_to_use_while_it_goes_is_listed_still() -> None:
    async def go() -> None:
        made, _ = await world()
        lease = leases(made)[0]

        class Slow(Server):
            async def remove(self, store: str) -> bool:
                made.clock.ms += 1
                await stores.asked(made.market, lease.provider, wire.StoreAsked(lease.id))
                return await super().remove(store)

        made.market.own_stores = Slow(id_of(ACCOUNT, "run-1"))
        await stores.asked(made.market, lease.provider, wire.StoreAsked(lease.id))
        made.clock.ms += 60_000
        await owned.remove(made.market, ALL, "run-1")
        assert [one.name for one in made.all(KeptStore)] == ["run-1"]

    anyio.run(go)


def test_what_its_server_removed_already_is_removed() -> None:
    """So one that is asked twice, since the first answer was lost, says the same."""

    async def go() -> None:
        made, _ = await world()
        lease = leases(made)[0]
        made.market.own_stores = Server()
        await stores.asked(made.market, lease.provider, wire.StoreAsked(lease.id))
        made.clock.ms += 60_000
        await owned.remove(made.market, ALL, "run-1")
        assert not made.all(KeptStore)

    anyio.run(go)
