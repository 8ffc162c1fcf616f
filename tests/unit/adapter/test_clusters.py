"""A cluster's member at its adapter: who may order it, what it is billed, and what is borne."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from adapter.core.admission import workload
from adapter.core.debt import waits_ms
from adapter.core.events import Alarm, LinkDown, LinkUp, Measured, Outcome, Passed, Started
from adapter.core.lifecycle import phase_of
from adapter.core.state import Limits, Own, PauseCause
from adapter.core.wish import Wish
from marketplace.domain.keys import Signer
from marketplace.domain.metering.reading import Cause, Phase
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.parts import Policy
from tests.unit.support.adapter import (
    ADAPTER,
    OTHER_SESSION,
    SESSION,
    Bench,
    core_job,
    gpu_job,
    handle,
    member_job,
    offer,
)

MARKET = Signer(b"\x09" * 32)


def bench(free_ms: int = 180_000, **changes: object) -> Bench:
    return Bench(Own(offer(**changes), ADAPTER, Limits(cluster_free_ms=free_ms)))


def assembling(job: JobSpec | None = None) -> Bench:
    """A member whose workload runs, before its first order."""
    return bench().running(job or member_job())


def working(job: JobSpec | None = None) -> Bench:
    """One that was ordered to run and has paid for a second."""
    at = assembling(job)
    at.order(Verb.RUN)
    at.measure(tick=False)
    at.tick()
    assert at.lease().owed > 0
    return at


def billed_ms(at: Bench, lease: str = "lease_1") -> int:
    return max(meter.delivered_ms for meter in at.lease(lease).meters)


def lost(at: Bench, lease: str = "lease_1") -> dict[Cause, int]:
    (meter,) = at.lease(lease).meters
    return meter.lost_ms()


def until_it_ends(at: Bench) -> Iterator[None]:
    """So long, and no longer than an hour of seconds."""
    for _ in range(3600):
        if at.lease().reason is not None:
            return
        yield
    raise AssertionError("it never ended")


def alarms(outcome: Outcome) -> list[str]:
    return [effect.code for effect in outcome.effects if isinstance(effect, Alarm)]


def taken(at: Bench) -> list[tuple[object, object]]:
    told = [one for one in at.sent() if isinstance(one, wire.LeaseProgress)]
    return [(m.detail["verb"], m.detail["version"]) for m in told if m.stage == "ORDERED"]


# ---- whose orders are taken ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "forged",
    [
        SignedOrder.sign(MARKET, ClusterOrder("lease_1", 9, Verb.MEET)),
        SignedOrder.sign(SESSION, ClusterOrder("lease_2", 9, Verb.MEET)),
        SignedOrder.sign(SESSION, ClusterOrder("lease_1", 4, Verb.MEET)),
        SignedOrder.sign(SESSION, ClusterOrder("lease_1", 5, Verb.HOLD)),
        SignedOrder(
            ClusterOrder("lease_1", 9, Verb.HOLD).encode(),
            SignedOrder.sign(SESSION, ClusterOrder("lease_1", 9, Verb.RUN)).signature,
        ),
    ],
    ids=["another key", "another lease", "older", "same version, other order", "altered"],
)
def test_what_its_consumer_did_not_sign_now_changes_nothing(forged: SignedOrder) -> None:
    at = assembling()
    at.order(Verb.RUN, version=5)
    before = at.lease()
    outcome = at.hear(wire.OrderSent("lease_1", forged))
    assert at.lease() is before and alarms(outcome) == ["ORDER_REFUSED"]
    assert taken(at) == [("RUN", 5)]


def test_the_order_that_is_held_may_come_again_and_again() -> None:
    """The market says it after every welcome."""
    at = assembling()
    at.order(Verb.HOLD, version=5)
    before, outcome = at.lease(), at.order(Verb.HOLD, version=5)
    assert at.lease() is before and not outcome.effects


def test_an_order_is_on_disk_before_anything_follows_from_it() -> None:
    at = working()
    outcome = at.order(Verb.HOLD)
    assert outcome.durable and outcome.state.leases["lease_1"].member.verb is Verb.HOLD


def test_no_order_is_for_what_is_no_member_or_not_there() -> None:
    at = bench().running(core_job())
    assert alarms(at.order(Verb.HOLD)) == ["ORDER_REFUSED"]
    assert at.lease().state is LeaseState.ACTIVE
    stray = SignedOrder.sign(SESSION, ClusterOrder("lease_9", 1, Verb.RUN))
    assert not at.hear(wire.OrderSent("lease_9", stray)).effects


def test_what_ends_takes_no_order_any_more() -> None:
    at = working()
    at.hear(wire.StopAsked("lease_1", "CANCELLED"))
    before = at.lease()
    assert not at.order(Verb.RUN).effects
    assert at.lease() is before


# ---- what is taken in ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free_ms", "mesh", "job", "code"),
    [
        (180_000, False, member_job(), "ACCEPTED"),
        (179_999, False, member_job(), "CLUSTERS_REFUSED"),
        (0, False, member_job(assemble_ms=1, hold_ms=1), "CLUSTERS_REFUSED"),
        (0, False, core_job(), "ACCEPTED"),
        (180_000, False, member_job(mesh=True), "MESH_REFUSED"),
        (180_000, True, member_job(mesh=True), "ACCEPTED"),
    ],
)
def test_only_who_bears_the_waiting_takes_a_member(
    free_ms: int, mesh: bool, job: JobSpec, code: str
) -> None:
    at = bench(free_ms, mesh=mesh)
    at.do(LinkUp(orders=True))
    at.propose(job)
    codes = [m.code for m in at.sent() if isinstance(m, wire.LeaseDeclined)] or ["ACCEPTED"]
    assert codes == [code]


def test_a_market_that_passes_no_orders_on_gets_no_member_in() -> None:
    at = bench()
    at.do(LinkUp())
    at.propose(member_job())
    assert [m.code for m in at.sent() if isinstance(m, wire.LeaseDeclined)] == ["CLUSTERS_REFUSED"]


def test_a_member_is_told_its_address_by_its_adapter_alone() -> None:
    """Whatever its job says of it."""
    job = member_job(1, mesh=True, env={"TALLY_MESH_ADDRESS": "10.0.0.1"})
    at = bench(mesh=True).running(job)
    spec = workload(at.own, at.lease().terms, job, at.lease().grant)
    assert spec.env["TALLY_MESH_ADDRESS"] == job.mesh_address != "10.0.0.1"
    plain = member_job(1)
    assert (
        "TALLY_MESH_ADDRESS" not in workload(at.own, at.lease().terms, plain, at.lease().grant).env
    )


# ---- what is billed ------------------------------------------------------------------------------


def test_nothing_is_billed_and_no_voucher_awaited_before_the_first_order_to_run() -> None:
    at = assembling()
    for _ in range(50):
        at.tick(pay=False)
    assert at.lease().state is LeaseState.ACTIVE and at.lease().unpaid == ()
    assert at.receipts() == [] and lost(at) == {Cause.ASSEMBLING: 50_000}


@pytest.mark.parametrize(
    ("verbs", "phase", "wish", "state"),
    [
        ((), Phase.ASSEMBLING, Wish.RUN, LeaseState.ACTIVE),
        (("MEET",), Phase.ASSEMBLING, Wish.RUN, LeaseState.ACTIVE),
        (("RUN",), Phase.RUNNING, Wish.RUN, LeaseState.ACTIVE),
        (("HOLD",), Phase.STALLED, Wish.FREEZE, LeaseState.PAUSED),
        (("RUN", "HOLD"), Phase.STALLED, Wish.FREEZE, LeaseState.PAUSED),
        (("RUN", "HOLD", "HOLD"), Phase.STALLED, Wish.FREEZE, LeaseState.PAUSED),
        (("RUN", "HOLD", "RUN"), Phase.RUNNING, Wish.RUN, LeaseState.ACTIVE),
        (("RUN", "HOLD", "MEET"), Phase.ASSEMBLING, Wish.RUN, LeaseState.ACTIVE),
        (("RUN", "MEET"), Phase.ASSEMBLING, Wish.RUN, LeaseState.ACTIVE),
        (("RUN", "RUN"), Phase.RUNNING, Wish.RUN, LeaseState.ACTIVE),
    ],
)
@pytest.mark.parametrize("early", [True, False], ids=["before it started", "while it ran"])
def test_a_member_is_where_its_newest_order_says(
    verbs: tuple[str, ...], phase: Phase, wish: Wish, state: LeaseState, early: bool
) -> None:
    at = bench()
    at.do(LinkUp(orders=True))
    at.propose(member_job())
    at.sign()
    at.sight()
    if not early:
        at.start()
    for verb in verbs:
        at.order(Verb(verb))
    if early:
        at.do(Started("lease_1", handle("lease_1", at.now.wall_ms)))
    lease = at.lease()
    assert (phase_of(lease, True), lease.wish, lease.state) == (phase, wish, state)
    assert lease.pause is (PauseCause.HELD if state is LeaseState.PAUSED else None)
    assert taken(at) == [(verb, number) for number, verb in enumerate(verbs, 1)]


@pytest.mark.parametrize("verb", [Verb.HOLD, Verb.MEET])
def test_what_was_delivered_is_stated_before_the_order_is_answered_and_nothing_after(
    verb: Verb,
) -> None:
    """Though a tick is not over, and a reading is under way that was taken before it."""
    at = working()
    at.boot_ms += 400
    at.measure(tick=False)
    under_way = at.reading("lease_1")
    outcome = at.order(verb)
    kinds = [type(m).__name__ for m in at.sent()[-len(outcome.effects) :]]
    assert kinds.index("ReceiptSent") < kinds.index("LeaseProgress")
    stated = at.receipts()[-1]
    assert stated.unit_ms_total == 2 * billed_ms(at) == 2 * 1400
    at.do(Measured("lease_1", (under_way,), True))
    for _ in range(5):
        at.tick()
    at.exit()
    last = at.receipts()[-1]
    assert last.final and last.unit_ms_total == stated.unit_ms_total


def test_what_fits_only_after_a_hold_is_a_gift() -> None:
    """A channel that grows deeper meanwhile must not let a receipt grow that may not."""
    at = bench().running(member_job())
    at.order(Verb.RUN)
    at.measure(tick=False)
    at.sight(limit=at.lease().terms.tick_owed() // 2)
    at.tick()
    at.order(Verb.HOLD)
    stated = at.receipts()[-1].unit_ms_total
    assert 0 < stated < 2 * billed_ms(at)
    at.sight()
    at.tick()
    at.hear(wire.StopAsked("lease_1", "CANCELLED"))
    at.exit()
    assert at.receipts()[-1].final and at.receipts()[-1].unit_ms_total == stated


def test_orders_to_and_fro_between_two_readings_get_nothing_for_nothing() -> None:
    """Each moment that is not billed is one that is borne, and those are counted."""
    at = working(member_job(hold_ms=20_000))
    free = 0
    for _ in until_it_ends(at):
        at.order(Verb.RUN)
        at.boot_ms += 900
        at.order(Verb.HOLD)
        at.measure()
        at.pay()
        free += 900
    assert at.lease().reason is EndReason.GROUP_STALLED
    assert free <= 22_000


# ---- two causes to pause -------------------------------------------------------------------------


def unpaid() -> Bench:
    """One that is paused, for it did not pay two ticks."""
    at = working()
    while at.lease().pause is None:
        at.tick(pay=False)
    return at


def test_a_hold_and_a_debt_are_two_causes_and_it_goes_on_without_both() -> None:
    for first in ("voucher", "order"):
        at = unpaid()
        at.order(Verb.HOLD)
        assert at.lease().pause is PauseCause.UNPAID and phase_of(at.lease(), True) is Phase.STALLED
        at.pay() if first == "voucher" else at.order(Verb.RUN)
        assert at.lease().wish is Wish.FREEZE
        assert at.lease().pause is (PauseCause.HELD if first == "voucher" else PauseCause.UNPAID)
        at.order(Verb.RUN) if first == "voucher" else at.pay()
        assert at.lease().wish is Wish.RUN and at.lease().pause is None


def test_who_owes_and_holds_has_no_longer_to_pay_than_who_owes() -> None:
    at = unpaid()
    at.order(Verb.HOLD)
    for _ in until_it_ends(at):
        at.boot_ms += 1000
        at.measure()
        at.do(Passed())
    assert at.lease().reason is EndReason.UNPAID


def test_a_held_member_is_no_debtor() -> None:
    """Nor is its hold pause time of a debt, nor a part of the time that it may run."""
    at = working()
    at.order(Verb.HOLD)
    at.pay()
    for _ in range(100):
        at.boot_ms += 1000
        at.measure()
        at.do(Passed())
    at.order(Verb.RUN)
    at.measure(tick=False)
    assert (at.lease().paused_ms, at.lease().frozen_ms) == (0, 0)
    assert at.lease().reason is None and at.lease().wish is Wish.RUN


def test_waiting_takes_nothing_of_the_agreed_time() -> None:
    at = assembling(member_job(policy=Policy(max_duration_ms=30_000)))
    for _ in range(50):
        at.tick()
    at.order(Verb.RUN)
    at.measure(tick=False)
    for _ in until_it_ends(at):
        at.tick()
    assert at.lease().reason is EndReason.MAX_DURATION
    assert 27_000 <= billed_ms(at) <= 30_000


def test_a_market_that_is_away_makes_no_debt_of_a_hold() -> None:
    at = working()
    at.order(Verb.HOLD)
    at.do(LinkDown())
    at.do(LinkUp(orders=True))
    assert at.lease().pause is PauseCause.HELD


def test_an_idle_device_is_no_reason_to_end_what_waits() -> None:
    policy = Policy(max_duration_ms=600_000, idle_gpu_below=95, idle_for_ms=5_000)
    gpu = gpu_job(policy=policy)
    job = replace(member_job(), image=gpu.image, resources=gpu.resources, policy=policy,
                  placement=gpu.placement)  # fmt: skip
    at = assembling(job)
    for _ in range(20):
        at.tick()
    assert at.lease().reason is None
    at.order(Verb.RUN)
    for _ in range(10):
        at.tick()
    assert at.lease().reason is EndReason.IDLE


# ---- what is borne -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verbs", "most_ms"),
    [((), 20_000), (("MEET",), 20_000), (("RUN", "MEET"), 20_000), (("HOLD",), 40_000)],
)
def test_who_waits_for_longer_than_agreed_ends(verbs: tuple[str, ...], most_ms: int) -> None:
    at = assembling(member_job(assemble_ms=20_000, hold_ms=40_000))
    for verb in verbs:
        at.order(Verb(verb))
    waited = 0
    for _ in until_it_ends(at):
        at.tick()
        waited += 1000
    assert at.lease().reason is EndReason.GROUP_STALLED
    assert most_ms <= waited <= most_ms + 1000
    assert at.lease().wish is Wish.STOP


def test_all_holds_count_together_and_so_does_all_assembling() -> None:
    at = assembling(member_job(assemble_ms=20_000, hold_ms=40_000))
    waited = {Verb.MEET: 0, Verb.HOLD: 0}
    for _ in until_it_ends(at):
        for verb in (Verb.HOLD, Verb.RUN, Verb.MEET, Verb.RUN):
            at.order(verb)
            for _ in range(3):
                if at.lease().reason is None:
                    at.tick()
                    waited[verb] = waited.get(verb, 0) + 1000
    assert at.lease().reason is EndReason.GROUP_STALLED
    assert waited[Verb.MEET] <= 21_000 and waited[Verb.HOLD] <= 41_000


def test_time_before_the_workload_ran_and_time_that_is_billed_are_not_waiting() -> None:
    at = bench()
    at.do(LinkUp(orders=True))
    at.propose(member_job(assemble_ms=2_000))
    at.sign()
    at.sight()
    at.boot_ms += 40_000  # it pulls
    at.start()
    at.order(Verb.RUN)
    for _ in range(60):
        at.tick()
    assert at.lease().reason is None


def ended_after(waited_s: int, worked_s: int, reason: str) -> Bench:
    """One that ends for *reason* after so many seconds."""
    at = assembling()
    for _ in range(waited_s):
        at.tick()
    at.order(Verb.RUN)
    at.measure(tick=False)
    for _ in range(worked_s):
        at.tick()
    at.hear(wire.StopAsked("lease_1", reason))
    at.exit()
    return at


@pytest.mark.parametrize(
    ("waited_s", "worked_s", "reason", "counts"),
    [
        (40, 0, "CANCELLED", True),
        (40, 5, "MEMBER_ENDED", True),
        (29, 0, "CANCELLED", False),
        (40, 15, "CANCELLED", False),
        (40, 0, "PREEMPTED", False),
        (40, 0, "PROVIDER_LOST", False),
        (40, 0, "PROVIDER_FAULT", False),
    ],
)
def test_who_had_a_machine_for_nothing_waits_before_the_next(
    waited_s: int, worked_s: int, reason: str, counts: bool
) -> None:
    at = ended_after(waited_s, worked_s, reason)
    assert (waits_ms(at.state, b"\x14" * 28, at.now) > 0) is counts
    at.clear()
    at.propose(core_job(), "lease_2", OTHER_SESSION)
    codes = [m.code for m in at.sent() if isinstance(m, wire.LeaseDeclined)]
    assert codes == (["UNPAID_WAIT"] if counts else [])


def test_several_members_that_end_together_count_once() -> None:
    at = members(3)
    for _ in range(40):
        at.boot_ms += 1000
        for lease in at.state.leases:
            at.measure(lease)
    for lease in list(at.state.leases):
        at.hear(wire.StopAsked(lease, "CANCELLED"))
        at.exit(lease)
    (debtor,) = at.state.debtors.values()
    assert debtor.strikes == 1


# ---- many members at one adapter -----------------------------------------------------------------


def session(at: int) -> Signer:
    return Signer(bytes([0x20 + at]) * 32)


def sign_up(at: Bench, lease: str, key: Signer, job: JobSpec) -> None:
    """A signed lease on a channel of its own, which is there."""
    at.propose(job, lease, key)
    at.sign(lease, key, key.verify_key.hex())
    at.sight(key)


def members(count: int) -> Bench:
    """So many members of one cluster, of a consumer that never paid."""
    at = bench()
    at.do(LinkUp(orders=True))
    for number in range(count):
        lease = f"lease_{number + 1}"
        sign_up(at, lease, session(number), small(number))
        assert at.lease(lease).wish is Wish.RUN
        at.do(Started(lease, handle(lease, at.now.wall_ms)))
        at.measure(lease, tick=False)
    return at


def small(member: int, name: str = "job") -> JobSpec:
    return member_job(member, members=4, name=name)


def test_members_of_one_cluster_begin_beside_each_other() -> None:
    """None of them can pay before all may run."""
    at = members(3)
    assert [one.state for one in at.state.leases.values()] == [LeaseState.ACTIVE] * 3
    for number in range(3):
        at.order(Verb.RUN, lease=f"lease_{number + 1}", session=session(number))
    for _ in range(5):
        at.boot_ms += 1000
        for number in range(3):
            at.measure(f"lease_{number + 1}")
        for number in range(3):
            at.pay(session=session(number))
    assert [one.pause for one in at.state.leases.values()] == [None] * 3


@pytest.mark.parametrize("other", [small(0), small(1, "another")], ids=["posted twice", "another"])
def test_a_second_cluster_of_who_never_paid_does_not_begin_beside_the_first(other: JobSpec) -> None:
    at = members(1)
    sign_up(at, "lease_9", OTHER_SESSION, other)
    at.do(Passed())
    assert at.lease("lease_9").wish is Wish.WAIT


def test_a_member_that_waits_lends_no_credit_to_what_runs() -> None:
    """Two ticks of what is billed may be owed, those of a member that is over among them, and none
    of what waits beside it.
    """
    at = members(3)
    at.order(Verb.RUN, lease="lease_1", session=session(0))
    at.measure("lease_1", tick=False)
    for _ in range(2):
        at.boot_ms += 1000
        at.measure("lease_1")
    at.exit("lease_1")
    at.order(Verb.RUN, lease="lease_2", session=session(1))
    at.measure("lease_2")
    assert at.lease("lease_2").pause is PauseCause.UNPAID


def test_a_member_that_waits_is_not_paused_for_what_another_owes() -> None:
    at = members(2)
    at.order(Verb.RUN, lease="lease_1", session=session(0))
    at.measure("lease_1", tick=False)
    for _ in range(5):
        at.boot_ms += 1000
        for lease in ("lease_1", "lease_2"):
            at.measure(lease)
    assert at.lease("lease_1").pause is PauseCause.UNPAID
    assert at.lease("lease_2").pause is None


# ---- whatever comes ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_between_an_order_to_wait_and_one_to_run_no_bill_grows(seed: int) -> None:
    """Whatever else happens meanwhile, in whatever order, and the time has its cause."""
    dice = random.Random(seed)
    at = assembling(member_job(assemble_ms=60_000, hold_ms=120_000))
    cause = {Verb.MEET: Cause.ASSEMBLING, Verb.HOLD: Cause.GROUP_STALLED}
    waited = 0
    for _ in range(200):
        verb = at.lease().member.verb
        before = (billed_ms(at), at.lease().owed, lost(at), at.boot_ms)
        acts = ["read", "read", "tick", "tick", "pay", "order", "depth", "age", "link", "late"]
        match dice.choice(acts):
            case "read":
                at.boot_ms += dice.choice([0, 100, 1000])
                at.measure(tick=False)
            case "tick":
                at.tick(ms=1000, pay=dice.random() < 0.7)
            case "late":
                seen = at.reading("lease_1", dice.choice([Phase.RUNNING, Phase.PAUSED]))
                if verb in cause and dice.random() < 0.5:  # one that was taken before the order
                    at.do(Measured("lease_1", (seen,), True))
            case "pay":
                at.pay()
            case "order":
                at.order(dice.choice(list(Verb)))
                if at.lease().member.verb is Verb.RUN or verb is Verb.RUN:
                    continue
            case "depth":
                at.sight(limit=dice.choice([None, 0, 50_000]))
            case "age":
                at.do(Passed())
            case _:
                at.do(dice.choice([LinkDown(), LinkUp(orders=True)]))
        if at.lease().reason is not None:
            break
        if verb in cause:
            assert (billed_ms(at), at.lease().owed) == before[:2]
            grown = {c: ms - before[2].get(c, 0) for c, ms in lost(at).items()}
            fresh = {c for c, ms in grown.items() if ms > 0}
            assert fresh <= set(cause.values())
            waited += sum(grown.values())
    at.exit()
    assert waited > 0 and at.receipts()[-1].unit_ms_total <= 2 * billed_ms(at)
