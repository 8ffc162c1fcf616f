"""What the adapter runs and what it declines: one healthy proposal, and one change for each
code.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core.admission import workload
from adapter.core.state import Limits, Own
from adapter.core.wish import Wish
from marketplace.domain import canonical
from marketplace.domain.isolation import Isolation
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.supply.grant import of_block
from marketplace.domain.supply.hardware import Health, Sharing
from marketplace.domain.supply.offer import Offer, OfferState, Window
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import FileIn, GpuNeed, Placement, Port, Range, Resources
from marketplace.domain.work.workload import Egress, EgressMode
from marketplace.market.base.records import OfferRecord
from marketplace.market.state.directory import Directory
from marketplace.matching import NoMatch
from tests.unit.support.adapter import (
    ADAPTER,
    GPU,
    IMAGE,
    OTHER_SESSION,
    RATE,
    SESSION,
    WALL,
    Bench,
    core_job,
    gpu_job,
    offer,
)


def answer(bench: Bench, job: JobSpec | None = None, **changes: object) -> str:
    """ACCEPTED, or the code with which the proposal is declined."""
    outcome = bench.propose(job, **changes)  # pyright: ignore[reportArgumentType]
    messages = [getattr(effect, "message", None) for effect in outcome.effects]
    declined = [m for m in messages if isinstance(m, wire.LeaseDeclined)]
    if declined:
        return declined[-1].code
    assert any(isinstance(m, wire.LeaseAccepted) for m in messages)
    return "ACCEPTED"


def with_offer(supply: Offer, limits: Limits | None = None) -> Bench:
    return Bench(own=Own(supply, ADAPTER, limits or Limits()))


def test_a_healthy_proposal_is_signed() -> None:
    bench = Bench()
    assert answer(bench) == "ACCEPTED"
    sent = bench.sent()[-1]
    assert isinstance(sent, wire.LeaseAccepted)
    assert sent.terms.verify_adapter().lease == "lease_1"
    assert bench.lease().devices == (GPU,)


def test_more_ways_to_choose_than_can_be_looked_at_are_declined_at_once() -> None:
    """Seven of 56 slices are 231,917,400 ways: an adapter that tried them would meter nothing
    else.
    """
    base = offer()
    slices = tuple(replace(base.host.gpus[0], uuid=f"MIG-{n:02d}") for n in range(56))
    supply = replace(base, host=replace(base.host, gpus=slices))
    job = gpu_job(resources=(Resources(gpu=GpuNeed(count=Range(7, 7))),))
    changes = {"units_milli": 7000, "devices": b"\x00" * 32, "ceiling": 8_000_000}
    assert answer(with_offer(supply), job, **changes) == "DEVICES_UNKNOWN"
    first = of_block(job, 0, tuple(gpu.uuid for gpu in slices[:7])).hash
    assert answer(with_offer(supply), job, **{**changes, "devices": first}) == "ACCEPTED"


def test_a_better_price_than_the_offer_is_accepted() -> None:
    assert answer(Bench(), rate_micro=RATE + 1) == "ACCEPTED"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"magic": 1}, "WRONG_NETWORK"),
        ({"adapter_vk": b"\x09" * 32}, "NOT_OURS"),
        ({"adapter_vkh": b"\x09" * 28}, "NOT_OURS"),
        ({"payout": b"\x09" * 28}, "PAYOUT_DIFFERS"),
        ({"work": b"\x09" * 32}, "WORK_DIFFERS"),
        ({"expires_at_ms": WALL}, "QUOTE_EXPIRED"),
        ({"tick_ms": 2000}, "TERMS_DIFFER"),
        ({"grace_ms": 1}, "TERMS_DIFFER"),
        ({"pause_limit_ms": 10**9}, "TERMS_DIFFER"),
        ({"close_period_ms": 1}, "TERMS_DIFFER"),
        ({"fee_bps": 100}, "TERMS_DIFFER"),
        ({"asset": "ab" * 28}, "TERMS_DIFFER"),
        ({"ceiling": 1}, "CEILING_ODD"),
        ({"ceiling": 10**12}, "CEILING_ODD"),
        ({"max_duration_ms": 31 * 86_400_000}, "TOO_LONG"),
        ({"devices": b"\x09" * 32}, "DEVICES_UNKNOWN"),
        ({"units_milli": 2000}, "DEVICES_UNKNOWN"),
        ({"rate_micro": RATE - 1}, "PRICE_BELOW"),
    ],
)
def test_each_change_of_the_terms_has_its_code(changes: dict[str, object], code: str) -> None:
    assert answer(Bench(), None, **changes) == code


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (gpu_job(image="ghcr.io/acme/train:latest"), "IMAGE_NOT_PINNED"),
        (gpu_job(placement=Placement(isolation=Isolation.VM)), "ISOLATION"),
        (gpu_job(placement=Placement(isolation=Isolation.PROCESS)), "ISOLATION"),
        (gpu_job(image=""), "ISOLATION"),
        (core_job(placement=Placement()), "ISOLATION"),
        (core_job(command=()), "ISOLATION"),
        (gpu_job(env={"LD_PRELOAD": "x"}), "WORKLOAD_REFUSED"),
        (gpu_job(files=(FileIn("../etc/passwd", "0" * 64, 1),)), "WORKLOAD_REFUSED"),
        (core_job(ports=(Port(80),)), "PORTS_REFUSED"),
        (gpu_job(resources=(Resources(memory=Range(10**6), gpu=GpuNeed()),)), "NO_ROOM"),
        (core_job(resources=(Resources(cpu=Range(9000, 9000)),)), "NO_ROOM"),
    ],
)
def test_each_kind_of_job_that_is_not_run_has_its_code(job: JobSpec, code: str) -> None:
    assert answer(Bench(), job) == code


OPEN, NAMED = Egress(EgressMode.OPEN), Egress(EgressMode.LIST, ("pypi.org:443",))


@pytest.mark.parametrize(
    ("job", "allowed", "shared", "code"),
    [
        (gpu_job(), False, False, "ACCEPTED"),
        (gpu_job(egress=OPEN), False, True, "EGRESS_REFUSED"),
        (gpu_job(egress=OPEN), True, False, "ACCEPTED"),
        (gpu_job(egress=NAMED), False, True, "EGRESS_REFUSED"),
        (gpu_job(egress=NAMED), True, False, "ACCEPTED"),
        (core_job(egress=OPEN), True, False, "EGRESS_REFUSED"),
        (core_job(egress=OPEN), False, True, "EGRESS_REFUSED"),
        (core_job(egress=OPEN), True, True, "ACCEPTED"),
        (core_job(egress=NAMED), True, True, "EGRESS_REFUSED"),
        (core_job(ports=(Port(80),)), True, True, "PORTS_REFUSED"),
        (core_job(ports=(Port(80),), egress=OPEN), True, True, "ACCEPTED"),
    ],
)
def test_what_connects_out_has_asked_and_is_allowed_to(
    job: JobSpec, allowed: bool, shared: bool, code: str
) -> None:
    bench = with_offer(offer(egress=allowed), Limits(host_network=shared))
    assert answer(bench, job) == code


@pytest.mark.parametrize("asked", [Egress(), OPEN, NAMED])
def test_the_runtime_is_asked_for_what_the_job_asked_for_and_no_more(asked: Egress) -> None:
    job = gpu_job(egress=asked)
    bench = with_offer(offer(egress=True))
    assert answer(bench, job) == "ACCEPTED"
    lease = bench.lease()
    assert workload(bench.own, lease.terms, lease.job, lease.grant).egress == asked


def test_the_owners_list_of_images_holds() -> None:
    listed = with_offer(offer(), Limits(images=("docker.io/library/*",)))
    assert answer(listed) == "IMAGE_REFUSED"
    wide = with_offer(offer(), Limits(images=("ghcr.io/acme/",)))
    assert answer(wide) == "ACCEPTED"
    exact = with_offer(offer(), Limits(images=(IMAGE.partition("@")[0],)))
    assert answer(exact) == "ACCEPTED"


def test_no_new_work_while_draining_full_or_before_maintenance() -> None:
    draining = Bench()
    draining.state = replace(draining.state, draining=True)
    assert answer(draining) == "DRAINING"
    assert answer(with_offer(offer(), Limits(max_leases=0))) == "FULL"
    soon = Window(WALL + 300_000, WALL + 900_000, "new power supply")
    assert answer(with_offer(offer(windows=(soon,)))) == "MAINTENANCE"
    later = Window(WALL + 3_600_000, WALL + 7_200_000)
    assert answer(with_offer(offer(windows=(later,)))) == "ACCEPTED"


@pytest.mark.parametrize("health", [Health.LOST, Health.QUARANTINED])
def test_a_sick_device_is_not_leased(health: Health) -> None:
    host = offer().host
    sick = replace(host, gpus=(host.gpus[0].with_health(health),))
    assert answer(with_offer(offer(host=sick))) == "DEVICE_UNHEALTHY"


def test_a_device_without_a_price_and_cores_not_offered() -> None:
    assert answer(with_offer(offer(gpu_rates={}))) == "PRICE_MISSING"
    bench = with_offer(offer(core_rate=0))
    assert answer(bench, core_job()) == "CORES_NOT_OFFERED"


def test_a_device_that_is_held_is_busy_until_it_is_free() -> None:
    bench = Bench().running()
    assert answer(bench, lease="lease_2", session=OTHER_SESSION) == "DEVICE_BUSY"
    bench.exit()
    assert answer(bench, lease="lease_3", session=OTHER_SESSION) == "DEVICE_BUSY"
    bench.clear()
    assert answer(bench, lease="lease_4", session=OTHER_SESSION) == "ACCEPTED"


@pytest.mark.parametrize("kind", Sharing)
def test_a_device_is_shared_by_one_owners_jobs_and_market_and_adapter_agree(kind: Sharing) -> None:
    """Nothing holds a workload to its share: a stranger on the same device could take all of it.
    That goes for a MIG slice as well, which is a device of its own.
    """
    host = offer().host
    bench = with_offer(offer(host=replace(host, gpus=(replace(host.gpus[0], sharing=kind),))))
    half = gpu_job(resources=(Resources(gpu=GpuNeed(share=400)),))
    terms = {"units_milli": 400, "devices": of_block(half, 0, (GPU,)).hash, "ceiling": 480_000}
    market, supply = Directory(), bench.own.offer
    body = canonical.encode(supply.to_wire())
    market.set_offer(OfferRecord(supply.id, supply.provider, OfferState.LISTED, body, 0, 0, "p"))
    asked = [
        ("ada", True),
        ("bob", False),  # a stranger never
        ("ada", True),
        ("ada", False),  # 1200 of 1000
    ]
    for number, (owner, fits) in enumerate(asked):
        found = market.place(half, owner, frozenset(), WALL, f"lease_{number}")
        assert isinstance(found, NoMatch) is not fits, (number, owner)
        key = {"consumer_vkh": owner.encode() * 9 + b"!"}
        said = answer(bench, half, lease=f"lease_{number}", session=OTHER_SESSION, **terms, **key)
        assert said == ("ACCEPTED" if fits else "DEVICE_BUSY"), (number, owner)


def test_a_session_key_of_a_channel_that_is_over_is_refused() -> None:
    bench = Bench().running()
    bench.tick()
    bench.hear(wire.EndSent(End.sign(SESSION, 0)))
    bench.exit()
    bench.pay()
    bench.clear()
    assert answer(bench, lease="lease_2") == "CHANNEL_OVER"


def test_a_job_that_cannot_pay_for_its_channels_end_is_declined() -> None:
    def bench() -> Bench:
        return Bench(Own(offer(minimum=1_000_000), ADAPTER, Limits()))

    assert answer(bench(), ceiling=999_999) == "BELOW_MINIMUM"
    assert answer(bench(), ceiling=1_000_000) == "ACCEPTED"


def test_only_what_a_channel_brought_counts_towards_its_minimum() -> None:
    """A consumer may sign far ahead: what was not delivered is no income."""
    bench = Bench().running()
    bench.tick(pay=False)
    brought = bench.state.channels[SESSION.verify_key].owed
    bench.own = Own(offer(minimum=brought + 5000), ADAPTER, Limits())
    small = core_job()
    assert answer(bench, small, lease="lease_2", ceiling=5000) == "BELOW_MINIMUM"
    bench.pay(brought + 1_000_000)
    assert answer(bench, small, lease="lease_3", ceiling=4999) == "BELOW_MINIMUM"
    assert answer(bench, small, lease="lease_4", ceiling=5000) == "ACCEPTED"


def test_a_reused_channel_may_be_short_until_its_consumer_signs() -> None:
    bench = Bench(capacity=1_200_100).running()
    assert answer(bench, core_job(), lease="lease_2") == "ACCEPTED"
    bench.sign("lease_2", tx="")
    assert (bench.lease("lease_2").wish, bench.lease("lease_2").awaits_money) == (Wish.WAIT, True)


def test_a_reused_channel_keeps_its_constants() -> None:
    bench = Bench().running()
    other = {"consumer_vkh": b"\x55" * 28}
    assert answer(bench, core_job(), lease="lease_2", **other) == "CHANNEL_DIFFERS"


def test_the_market_may_ask_twice() -> None:
    bench = Bench()
    assert answer(bench) == "ACCEPTED"
    assert answer(bench) == "ACCEPTED"
    accepted = [m for m in bench.sent() if isinstance(m, wire.LeaseAccepted)]
    assert accepted[0] == accepted[1]
