"""Which ports of the host a lease has, from its terms to its end, and what its consumer is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.config import ConfigRefused, parse
from adapter.core.decide import wake
from adapter.core.events import PortsOpened
from adapter.core.state import Direct, Limits, Own
from adapter.journal.codec import lease_fixed, lease_from, lease_moving
from adapter.offering import check_direct
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.domain.work.direct_port import STAGE, DirectPorts
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Port
from tests.unit.support.adapter import ADAPTER, OTHER_SESSION, Bench, gpu_job, offer

WHERE = Direct("203.0.113.7", 30_000, 3, "127.0.0.1")


def bench(where: Direct | None = WHERE) -> Bench:
    supply = offer(direct_ports=0 if where is None else where.count)
    return Bench(Own(supply, ADAPTER, Limits(direct=where)))


def job(*ports: int) -> JobSpec:
    return gpu_job(ports=(Port(9), *(Port(port, direct=True) for port in ports)))


def answers(at: Bench) -> list[str]:
    """To each proposal."""
    told = [m for m in at.sent() if isinstance(m, (wire.LeaseDeclined, wire.LeaseAccepted))]
    return [m.code if isinstance(m, wire.LeaseDeclined) else "ACCEPTED" for m in told]


def words(at: Bench) -> list[DirectPorts]:
    """What the consumer was told."""
    told = [m for m in at.sent() if isinstance(m, wire.LeaseProgress) and m.stage == STAGE]
    return [DirectPorts.from_story(m.lease, m.detail) for m in told]


def test_a_lease_has_the_lowest_that_are_free_and_leaves_them_at_its_end() -> None:
    at = bench().running(job(3001, 3002))
    assert at.lease().direct == ((3001, 30_000), (3002, 30_001))
    assert at.state.leases["lease_1"].job.direct_ports == (3001, 3002)  # the other one has none
    at.propose(job(3001, 3002), "lease_2", OTHER_SESSION)
    at.exit()
    at.clear()
    at.propose(job(3001), "lease_3", OTHER_SESSION)
    assert at.lease("lease_3").direct == ((3001, 30_000),)
    assert answers(at) == ["ACCEPTED", "DIRECT_PORTS_TAKEN", "ACCEPTED"]


@pytest.mark.parametrize(
    ("where", "asked", "answer"),
    [
        (None, (), "ACCEPTED"),
        (None, (3001,), "DIRECT_PORTS_REFUSED"),
        (WHERE, (), "ACCEPTED"),
        (WHERE, (1, 2, 3), "ACCEPTED"),
        (WHERE, (1, 2, 3, 4), "DIRECT_PORTS_TAKEN"),
    ],
)
def test_who_says_where_opens_as_many_as_he_said(
    where: Direct | None, asked: tuple[int, ...], answer: str
) -> None:
    at = bench(where)
    at.propose(job(*asked))
    assert answers(at) == [answer]


def test_its_consumer_is_told_once_for_each_address_and_signed() -> None:
    at = bench().running(job(3001))
    assert words(at) == []  # nobody listens yet
    for _ in range(3):
        at.do(PortsOpened("lease_1"))
    (told,) = words(at)
    told.verify(ADAPTER.verify_key)
    assert (told.address, told.ports, told.at_ms) == (
        WHERE.address,
        ((3001, 30_000),),
        at.now.wall_ms,
    )
    at.tick()
    moved = replace(WHERE, address="relay.example", first=40_000)
    at.own = replace(at.own, limits=Limits(direct=moved))
    at.do(PortsOpened("lease_1"))
    newer = words(at)[-1]
    newer.verify(ADAPTER.verify_key)
    assert newer.address == "relay.example" and newer.at_ms > told.at_ms
    assert newer.ports == told.ports  # what its peers know stays good


@pytest.mark.parametrize("where", [None, WHERE])
def test_one_that_is_over_or_closed_to_the_world_is_told_nothing(where: Direct | None) -> None:
    at = bench().running(job(3001))
    if where is None:
        at.own = replace(at.own, limits=Limits())
    else:
        at.exit()
    at.do(PortsOpened("lease_1"))
    assert words(at) == []


def test_its_ports_and_what_was_told_outlive_the_adapter() -> None:
    at = bench().running(job(3001))
    at.do(PortsOpened("lease_1"))
    assert at.outcomes[-1].durable
    held = at.lease()
    again = lease_from("lease_1", lease_fixed(held), lease_moving(held))
    assert (again.direct, again.direct_at) == (((3001, 30_000),), WHERE.address)
    at.state = wake(at.state.with_lease(again), at.now)
    at.do(PortsOpened("lease_1"))
    assert len(words(at)) == 1


def test_a_lease_without_any_has_the_row_of_before() -> None:
    plain = bench().running(gpu_job()).lease()
    assert b"direct" not in lease_moving(plain)
    assert lease_from("lease_1", lease_fixed(plain), lease_moving(plain)).direct == ()


def test_the_owner_says_where() -> None:
    said = parse({"direct": {"address": "relays.example", "ports": "30000-30099"}}).direct
    assert said == Direct("relays.example", 30_000, 100, "0.0.0.0")
    bound = {"address": "203.0.113.7", "ports": "30000-30000", "bind": "::"}
    assert parse({"direct": bound}).direct == Direct("203.0.113.7", 30_000, 1, "::")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"address": "x"},
        {"ports": "30000-30001"},
        {"address": "x", "ports": "30001-30000"},
        {"address": "x", "ports": "80-90"},
        {"address": "x", "ports": "30000"},
        {"address": "x", "ports": "30000-65536"},
        {"address": "x", "ports": "30000-40000"},
        {"address": "x:1", "ports": "30000-30001"},
        {"address": "x", "ports": "30000-30001", "bind": "eth0"},
        {"address": "x", "ports": "30000-30001", "port": 1},
    ],
)
def test_what_is_no_place_is_refused_by_its_key(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigRefused, match="direct"):
        parse({"direct": wrong})


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("203.0.113.7", False),  # of documentation
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("100.64.0.1", False),  # behind a carrier's NAT
        ("::1", False),
        ("localhost", False),
        ("relay.local", False),
        ("1.1.1.1", True),
        ("2606:4700::1", True),
        ("relay.example", True),
    ],
)
def test_on_a_public_network_it_is_an_address_that_others_reach(
    address: str, reached: bool
) -> None:
    config = parse({"direct": {"address": address, "ports": "30000-30001"}})
    check_direct(config, DEVNET_MAGIC)
    if reached:
        check_direct(config, 1)
    else:
        with pytest.raises(ConfigRefused, match="nobody outside"):
            check_direct(config, 1)
