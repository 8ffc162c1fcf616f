"""A member's store at its adapter: who takes one, what the workload gets of it, and what becomes of a
mount whose lease ends, whose program dies, or whose workload does not stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio
import pytest

from adapter.core.admission import workload
from adapter.core.events import LinkUp
from adapter.core.state import Lease, Limits, Own
from adapter.core.wish import Wish
from adapter.core.workload import Handle
from adapter.daemon.stores import LATE_S, Stores
from adapter.runtime.stores.mounts import StoreFault
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_store import PASSWORD, USER, Store, StorePlace
from marketplace.domain.work.job import JobSpec
from marketplace.rclone import Source, StoreRefused
from tests.requires import need_rclone
from tests.unit.support.adapter import ADAPTER, Bench, member_job, offer

MINE = Store(url="https://dav.example/run")
OPENS = {USER: "me", PASSWORD: "word"}


def stored(store: Store, secrets: tuple[str, ...] = ()) -> JobSpec:
    job = member_job(secrets=secrets)
    assert job.cluster is not None
    return replace(job, cluster=replace(job.cluster, store=store))


def bench(**changes: object) -> Bench:
    return Bench(Own(offer(**changes), ADAPTER, Limits(cluster_free_ms=180_000)))


@pytest.mark.parametrize(
    ("shows", "job", "code"),
    [
        (False, member_job(), "ACCEPTED"),
        (False, stored(Store("run")), "STORES_REFUSED"),
        (False, stored(MINE, (USER, PASSWORD)), "STORES_REFUSED"),
        (True, stored(Store("run")), "ACCEPTED"),
        (True, stored(MINE, (USER, PASSWORD)), "ACCEPTED"),
    ],
)
def test_only_who_shows_stores_takes_a_member_with_one(
    shows: bool, job: JobSpec, code: str
) -> None:
    at = bench(store=shows)
    at.do(LinkUp(orders=True))
    at.propose(job)
    codes = [m.code for m in at.sent() if isinstance(m, wire.LeaseDeclined)] or ["ACCEPTED"]
    assert codes == [code]


def test_its_workload_finds_the_folder_and_nothing_that_opens_it() -> None:
    at = bench(store=True).running(stored(MINE, (USER, PASSWORD, "TOKEN")))
    lease = at.lease()
    given = {**OPENS, "TOKEN": "t"}
    spec = workload(at.own, lease.terms, lease.job, lease.grant, secrets=lambda: dict(given))
    assert spec.store and spec.env["TALLY_STORE"] == "/store" and spec.secrets == {"TOKEN": "t"}
    bare = workload(at.own, lease.terms, member_job(), lease.grant, secrets=lambda: dict(given))
    assert not bare.store and "TALLY_STORE" not in bare.env and bare.secrets == given


@dataclass
class Paper:
    """Mounts on paper."""

    up_for: dict[str, Source] = field(default_factory=dict[str, Source])
    dead: set[str] = field(default_factory=set[str])
    lost: list[str] = field(default_factory=list[str])

    def held(self) -> list[str]:
        return sorted(self.up_for)

    def stands(self, lease: str) -> bool:
        return lease in self.up_for and lease not in self.dead

    def up(self, lease: str, source: Source, owner: tuple[int, int]) -> None:
        assert owner == (10001, 10001)
        self.up_for[lease] = source

    def down(self, lease: str) -> None:
        self.up_for.pop(lease, None)

    def note_loss(self, lease: str) -> None:
        self.lost.append(lease)


@dataclass
class Host:
    """What the daemon is to it: a lease, and a runtime that stops workloads."""

    now: Lease | None
    stopped: list[str] = field(default_factory=list[str])
    alarms: list[str] = field(default_factory=list[str])

    def lease(self, id_: str) -> Lease | None:
        return self.now

    def adopted(self, id_: str) -> Handle | None:
        return None

    def runtime(self, lease: Lease) -> Any:
        return self

    async def stop(self, handle: Handle, grace_ms: int) -> None:
        self.stopped.append(handle.lease)

    def raise_alarm(self, code: str, message: str) -> None:
        self.alarms.append(code)


def made(
    job: JobSpec, paper: Paper | None, secrets: Mapping[str, str] = OPENS
) -> tuple[Host, Stores, list[wire.Message]]:
    host = Host(bench(store=True).running(job).lease())
    sent: list[wire.Message] = []
    stores = Stores(cast(Any, host), paper, sent.append, lambda _: dict(secrets))
    return host, stores, sent


async def kept(stores: Stores) -> None:
    async with anyio.create_task_group() as group:
        await stores.keep(group)


def test_it_is_mounted_before_a_start_and_goes_with_its_lease_or_its_workload() -> None:
    async def go(ends: str) -> None:
        paper = Paper()
        host, stores, _ = made(stored(MINE, (USER, PASSWORD)), paper)
        lease = host.now
        assert lease is not None
        await stores.up(lease)
        assert paper.up_for["lease_1"].own
        await kept(stores)
        assert paper.held() == ["lease_1"] and not host.alarms
        host.now = None if ends == "lease" else replace(lease, exited=True)
        await kept(stores)
        assert paper.held() == [] and not host.stopped

    anyio.run(go, "lease")
    anyio.run(go, "workload")


def test_what_an_earlier_run_left_goes_and_what_still_runs_stays() -> None:
    async def go() -> None:
        paper = Paper({"lease_1": cast(Any, None)})
        host, stores, _ = made(stored(MINE, (USER, PASSWORD)), paper)
        await kept(stores)
        assert paper.held() == ["lease_1"]
        host.now = None
        await kept(stores)
        assert paper.held() == []

    anyio.run(go)


def test_a_mount_that_died_ends_its_workload_as_the_providers_fault() -> None:
    async def go() -> None:
        paper = Paper()
        host, stores, _ = made(stored(MINE, (USER, PASSWORD)), paper)
        assert host.now is not None
        await stores.up(host.now)
        paper.dead.add("lease_1")
        await kept(stores)
        assert (paper.lost, host.stopped, host.alarms) == (["lease_1"], ["lease_1"], ["STORE_LOST"])
        assert paper.held() == []

    anyio.run(go)


def test_a_workload_that_does_not_stop_in_its_time_loses_its_mount() -> None:
    """It may wait for a store that is away, where no signal reaches it."""

    async def go() -> None:
        paper = Paper()
        host, stores, _ = made(stored(MINE, (USER, PASSWORD)), paper)
        stores.grace_ms = 100
        assert host.now is not None
        await stores.up(host.now)
        host.now = replace(host.now, wish=Wish.STOP)
        await kept(stores)
        assert paper.held() == ["lease_1"], "a last checkpoint within the grace is its right"
        await anyio.sleep(0.1 + LATE_S + 0.1)
        await kept(stores)
        assert paper.held() == []

    anyio.run(go)


def test_the_markets_leave_is_asked_for_and_only_what_was_asked_for_is_taken() -> None:
    place = StorePlace("https://stores.example", bytes(32))
    key = {"STORE_KEY": "k" * 64}

    async def go() -> None:
        paper = Paper()
        host, stores, told = made(stored(Store("run")), paper, key)
        stores.given_s = 0.2
        lease = host.now
        assert lease is not None
        stores.given("lease_1", place.give("one", "run", "lease_1"))
        with pytest.raises(StoreFault, match="no leave"):
            await stores.up(lease)
        assert paper.held() == []
        given = place.give("one", "run", "lease_1")
        async with anyio.create_task_group() as group:
            group.start_soon(stores.up, lease)
            await anyio.sleep(0.05)
            stores.given("lease_2", place.give("one", "run", "lease_2"))
            stores.given("lease_1", given)
        assert paper.up_for["lease_1"].at == ("stores.example", 443)
        assert given.token in paper.up_for["lease_1"].environment.values()
        assert told == [wire.StoreAsked("lease_1")] * 2

    need_rclone()
    anyio.run(go)


def test_nothing_is_mounted_without_what_opens_it_or_where_no_store_is_shown() -> None:
    async def go() -> None:
        paper = Paper()
        host, stores, _ = made(stored(MINE, (USER, PASSWORD)), paper, {USER: "me"})
        assert host.now is not None
        with pytest.raises(StoreRefused):
            await stores.up(host.now)
        none, bare, _ = made(stored(MINE, (USER, PASSWORD)), None)
        assert none.now is not None
        with pytest.raises(StoreRefused):
            await bare.up(none.now)
        other, plain, _ = made(member_job(), Paper())
        assert other.now is not None
        await plain.up(other.now)

    anyio.run(go)
