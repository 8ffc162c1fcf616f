"""The adapter's mind: the happy path, pauses, limits and ends, in virtual time.

Over 400 lines: one machine, one file of its cases.
"""

from __future__ import annotations

from dataclasses import replace

from adapter.core.decide import recover
from adapter.core.events import Alarm, Drive, LinkDown, LinkUp, Passed, Settle, Settled, Watch
from adapter.core.state import Limits, PauseCause
from adapter.core.wish import Wish
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import check_next
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import Window
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.parts import Policy
from marketplace.domain.work.workload import ExitReason
from tests.unit.support.adapter import (
    ADAPTER,
    OTHER_SESSION,
    RATE,
    SESSION,
    Bench,
    core_job,
    gpu_job,
)


def finished(bench: Bench) -> wire.LeaseProgress:
    """The FINISHED message, which must be there once."""
    found = [m for m in bench.sent() if isinstance(m, wire.LeaseProgress) and m.stage == "FINISHED"]
    assert len(found) == 1
    return found[0]


def test_a_lease_from_proposal_to_settlement() -> None:
    bench = Bench().running()
    for _ in range(5):
        bench.tick()
    bench.boot_ms += 400
    bench.exit()
    bench.pay()
    bench.clear()
    assert bench.state.leases == {}
    assert bench.stages() == ["CHANNEL_SEEN", "STARTED", "FINISHED"]
    assert finished(bench).detail == {"reason": "COMPLETED", "exit_code": 0}
    last = bench.receipts()[-1]
    assert (last.final, last.unit_ms_total, last.lease_owed) == (True, 5400, 10_800)
    bench.hear(wire.EndSent(End.sign(SESSION, last.channel_owed)))
    assert Settle(SESSION.verify_key) in bench.outcomes[-1].effects
    bench.do(Settled(SESSION.verify_key, "cd" * 32))
    assert bench.stages()[-1] == "SETTLED"
    assert bench.state.channels[SESSION.verify_key].stage is ChannelStage.ENDED


def test_receipts_form_one_verified_chain() -> None:
    bench = Bench().running()
    for _ in range(4):
        bench.tick()
    signed = [m.receipt for m in bench.sent() if isinstance(m, wire.ReceiptSent)]
    before = None
    for one in signed:
        receipt = one.verify(ADAPTER.verify_key)
        check_next(receipt, before, before, RATE)
        before = receipt
    assert len(signed) == 4


def test_the_chain_runs_over_all_leases_of_a_channel() -> None:
    bench = Bench().running(core_job(), ceiling=10_000)
    bench.propose(core_job(), "lease_2", ceiling=10_000)
    bench.sign("lease_2", tx="")
    assert bench.lease("lease_2").awaits_money  # nothing was paid yet: one after the other
    bench.pay(1_000)
    bench.do(Passed())
    assert bench.lease("lease_2").wish is Wish.RUN
    bench.start("lease_2")
    for _ in range(3):
        bench.boot_ms += 1000
        bench.measure("lease_1")
        bench.measure("lease_2")
        bench.pay()
    receipts = bench.receipts()
    assert [r.seq for r in receipts] == list(range(1, 7))
    assert receipts[-1].channel_owed == 2 * 3 * 20  # two cores at 10 lovelace, three seconds each
    before, own = None, dict[str, object]()
    for receipt in receipts:
        check_next(receipt, before, own.get(receipt.lease), 10_000_000)  # pyright: ignore[reportArgumentType]
        before = own[receipt.lease] = receipt


def test_two_ticks_without_a_voucher_pause_it_and_a_voucher_resumes_it() -> None:
    bench = Bench().running()
    bench.tick(pay=False)
    assert bench.lease().state is LeaseState.ACTIVE
    bench.tick(pay=False)
    assert (bench.lease().state, bench.lease().wish) == (LeaseState.PAUSED, Wish.FREEZE)
    assert bench.lease().pause is PauseCause.UNPAID
    for _ in range(5):  # paused time is not billed, and no receipt is made of it
        bench.tick(pay=False)
    assert len(bench.receipts()) == 2
    bench.pay()
    assert (bench.lease().state, bench.lease().wish) == (LeaseState.ACTIVE, Wish.RUN)
    bench.measure(tick=False)
    bench.tick()
    last = bench.receipts()[-1]
    assert last.unit_ms_total == 3000
    assert [(lost.cause, lost.ms) for lost in last.lost] == [("paused", 5000)]


def test_frozen_time_that_nobody_read_is_not_billed() -> None:
    """Killed between the freeze and its reading, then a voucher: no reading ever said PAUSED."""
    bench = Bench().running()
    bench.tick(pay=False)
    bench.tick(pay=False)
    bench.boot_ms += 3000  # frozen, and the adapter away
    bench.pay()
    bench.measure(tick=False)
    bench.tick()
    assert bench.receipts()[-1].unit_ms_total == 3000


def test_pauses_beyond_the_limit_end_it_unpaid() -> None:
    bench = Bench().running()
    bench.tick(pay=False)
    bench.tick(pay=False)
    bench.boot_ms += 60_001
    bench.do(Passed())
    lease = bench.lease()
    assert (lease.wish, lease.reason, lease.hard) == (Wish.STOP, "UNPAID", True)
    bench.exit(reason=ExitReason.STOPPED, code=137)
    assert finished(bench).detail["reason"] == "UNPAID"


def test_the_pause_limit_counts_all_pauses_together() -> None:
    bench = Bench().running()
    for _ in range(3):
        bench.tick(pay=False)
        bench.tick(pay=False)
        bench.boot_ms += 25_000
        bench.do(Passed())
        bench.pay()
        if bench.lease().reason is None:
            bench.measure(tick=False)
    assert bench.lease().reason == "UNPAID"


def test_while_the_market_is_away_nothing_counts_as_unpaid() -> None:
    bench = Bench().running()
    bench.do(LinkDown())
    bench.tick(pay=False)
    bench.tick(pay=False)
    assert bench.lease().pause is PauseCause.OFFLINE
    for _ in range(120):
        bench.boot_ms += 1000
        bench.do(Passed())
    assert bench.lease().state is LeaseState.PAUSED
    bench.do(LinkUp())
    assert bench.lease().pause is PauseCause.UNPAID
    bench.pay()
    assert bench.lease().state is LeaseState.ACTIVE


def test_the_resume_window_ends_it() -> None:
    bench = Bench().running()
    bench.do(LinkDown())
    bench.tick(pay=False)
    bench.tick(pay=False)
    bench.boot_ms += 600_001
    bench.do(Passed())
    assert bench.lease().reason == "PROVIDER_LOST"


def test_the_ceiling_is_never_exceeded() -> None:
    bench = Bench().running(ceiling=7_000)  # three and a half seconds
    while bench.lease().reason is None:
        bench.tick()
    assert bench.lease().reason == "CEILING"
    bench.boot_ms += 1500  # it takes its time to end
    bench.exit(reason=ExitReason.STOPPED, code=143)
    last = bench.receipts()[-1]
    assert last.final and last.lease_owed == 7_000
    assert max(r.lease_owed for r in bench.receipts()) <= 7_000


def test_the_agreed_duration_ends_it() -> None:
    job = gpu_job(policy=Policy(max_duration_ms=10_000))
    bench = Bench().running(job)
    for _ in range(9):
        assert bench.lease().reason is None
        bench.tick()
    assert bench.lease().reason == "MAX_DURATION"


def test_an_idle_gpu_is_given_back() -> None:
    job = gpu_job(policy=Policy(max_duration_ms=600_000, idle_gpu_below=95, idle_for_ms=5000))
    bench = Bench().running(job)
    for _ in range(6):
        bench.tick()
    assert bench.lease().reason == "IDLE"


def test_closing_stops_every_lease_and_finishes_the_channel() -> None:
    bench = Bench().running()
    bench.tick()
    bench.tick(pay=False)
    bench.sight(stage=ChannelStage.CLOSING)
    assert (bench.lease().reason, bench.lease().hard) == ("CHANNEL_CLOSING", True)
    bench.exit(reason=ExitReason.STOPPED, code=137)
    bench.boot_ms += 30_001  # the last voucher does not come
    bench.do(Passed())
    assert any(isinstance(e, Settle) for o in bench.outcomes for e in o.effects)
    channel = bench.state.channels[SESSION.verify_key]
    assert channel.owed - channel.paid <= 2 * 2000 + 2


def test_young_money_is_relied_on_only_as_far_as_its_depth_allows() -> None:
    bench = Bench()
    bench.do(LinkUp())
    bench.propose()
    bench.sign()
    bench.sight(limit=0)
    assert bench.lease().wish is Wish.WAIT
    bench.sight(limit=6000)
    bench.start()
    for _ in range(3):
        bench.tick()
    assert (bench.lease().state, bench.lease().pause) == (LeaseState.PAUSED, PauseCause.DEPTH)
    bench.boot_ms += 300_000
    bench.do(Passed())
    assert bench.lease().reason is None  # waiting for blocks is nobody's fault
    bench.sight()
    assert bench.lease().state is LeaseState.ACTIVE


def test_a_channel_that_a_rollback_took_for_good_frees_the_device() -> None:
    bench = Bench().running()
    bench.tick()
    bench.sight(limit=0)  # the open transaction is in no block any more
    bench.tick(pay=False)
    assert (bench.lease().state, bench.lease().pause) == (LeaseState.PAUSED, PauseCause.DEPTH)
    for _ in range(30):
        bench.boot_ms += 60_000
        bench.do(Passed())
    assert bench.lease().reason is None  # its payer may send it again
    bench.boot_ms += 60_000
    bench.do(Passed())
    assert (bench.lease().wish, bench.lease().reason) == (Wish.STOP, "CHANNEL_REFUSED")


def test_the_last_receipt_is_told_before_the_end() -> None:
    """A retry's ceiling is what the last receipt leaves of the budget: a later one would pass
    it.
    """
    bench = Bench().running()
    bench.tick()
    bench.boot_ms += 700
    bench.exit(reason=ExitReason.PROVIDER_FAULT)
    told = [m for m in bench.sent() if isinstance(m, wire.ReceiptSent | wire.LeaseProgress)]
    assert isinstance(told[-2], wire.ReceiptSent) and told[-2].receipt.receipt.final
    assert isinstance(told[-1], wire.LeaseProgress) and told[-1].stage == "FINISHED"


def test_a_channel_that_never_appears_ends_it_without_a_start() -> None:
    bench = Bench()
    bench.propose()
    bench.sign()
    assert Watch(SESSION.verify_key) in bench.outcomes[-1].effects
    bench.boot_ms += 300_001
    bench.do(Passed())
    assert finished(bench).detail["reason"] == "CHANNEL_REFUSED"
    assert bench.state.leases == {}


def test_a_channel_smaller_than_the_ceiling_is_refused() -> None:
    bench = Bench(capacity=1000)
    bench.propose()
    bench.sign()
    bench.sight()
    assert finished(bench).detail["reason"] == "CHANNEL_REFUSED"


def test_other_terms_than_were_signed_start_nothing() -> None:
    bench = Bench()
    bench.propose()
    held = bench.lease().signed
    forged = replace(held, session_signature=OTHER_SESSION.sign(held.body))
    bench.hear(wire.LeaseSigned("lease_1", forged, "ab" * 32, {}))
    assert bench.lease().state is LeaseState.OFFERED


def test_a_quote_that_nobody_signed_frees_its_device() -> None:
    bench = Bench()
    bench.propose()
    bench.boot_ms += 120_001
    bench.do(Passed())
    assert bench.state.leases == {}


def test_a_stop_asked_for_ends_one_lease_and_keeps_the_channel() -> None:
    bench = Bench().running()
    bench.tick()
    bench.hear(wire.StopAsked("lease_1", "enough"))
    assert bench.lease().wish is Wish.STOP
    assert Drive("lease_1") in bench.outcomes[-1].effects
    bench.exit(reason=ExitReason.STOPPED, code=143)
    bench.pay()
    bench.clear()
    assert finished(bench).detail["reason"] == "CANCELLED"
    assert not any(isinstance(e, Settle) for o in bench.outcomes for e in o.effects)


def test_a_stopping_workload_that_is_not_paid_for_loses_its_grace() -> None:
    bench = Bench().running()
    bench.hear(wire.StopAsked("lease_1", "enough"))
    bench.tick(pay=False)
    assert not bench.lease().hard
    bench.tick(pay=False)
    assert bench.lease().hard


def test_an_end_by_another_key_is_ignored() -> None:
    bench = Bench().running()
    forged = replace(End.sign(OTHER_SESSION, 0), session_vk=SESSION.verify_key)
    bench.hear(wire.EndSent(forged))
    assert bench.lease().reason is None


def test_an_unused_channel_with_money_is_finished_in_the_end() -> None:
    bench = Bench()
    bench.own = replace(bench.own, limits=Limits(linger_ms=10_000))
    bench.running()
    bench.tick()
    bench.exit()
    bench.pay()
    bench.clear()
    bench.do(Passed())
    bench.boot_ms += 10_001
    bench.do(Passed())
    assert Settle(SESSION.verify_key) in bench.outcomes[-1].effects


def test_a_session_key_names_one_channel_for_ever() -> None:
    """Two quotes on one fresh key, both signed, the second for another open transaction or
    refund.
    """
    for tx, changes in (("cd" * 32, {}), ("", {"consumer_vkh": b"\x15" * 28})):
        bench = Bench()
        bench.do(LinkUp())
        bench.propose(core_job(), ceiling=10_000)
        bench.propose(core_job(), "lease_2", SESSION, ceiling=10_000, **changes)
        bench.sign()
        bench.sign("lease_2", tx=tx)
        assert "lease_2" not in bench.state.leases and "lease_1" in bench.state.leases
        (end,) = [
            m
            for m in bench.sent()
            if isinstance(m, wire.LeaseProgress) and m.lease == "lease_2" and m.stage == "FINISHED"
        ]
        assert end.detail["reason"] == "CHANNEL_REFUSED"
        assert bench.state.channels[SESSION.verify_key].origin == "ab" * 32


def test_a_lease_that_is_over_is_not_begun_again() -> None:
    """Its receipts lie in the journal under its name: another one's first would find its place
    taken.
    """
    bench = Bench().running()
    bench.tick()
    bench.exit()
    bench.pay()
    bench.clear()
    bench.propose(session=OTHER_SESSION)
    answer = bench.sent()[-1]
    assert isinstance(answer, wire.LeaseDeclined) and answer.code == "LEASE_CONFLICT"


def test_what_a_paused_lease_may_still_cost_is_not_promised_twice() -> None:
    bench = Bench(capacity=15_000)
    bench.propose(core_job(), ceiling=10_000)
    bench.propose(core_job(), "lease_2", ceiling=10_000)
    bench.sign()
    bench.sight()
    bench.start()
    bench.tick()
    bench.tick(pay=False)
    bench.tick(pay=False)
    assert bench.lease().wish is Wish.FREEZE
    bench.sign("lease_2", tx="")
    assert bench.lease("lease_2").wish is Wish.WAIT
    bench.sight()
    bench.boot_ms += 50_000
    bench.do(Passed())
    assert bench.lease("lease_2").wish is Wish.WAIT


def topping_up(left: int = 9_000) -> Bench:
    """A kept channel with *left* on it, and a second lease of 10 000 signed on it."""
    bench = Bench(capacity=1_200_000 + left).running()
    for _ in range(3):  # who has paid for two ticks of both may run both
        bench.tick()
    bench.propose(core_job(), "lease_2", ceiling=10_000)
    bench.sign("lease_2", tx="")
    assert Watch(SESSION.verify_key) in bench.outcomes[-1].effects
    return bench


def test_a_reused_channel_waits_for_its_top_up_and_starts_with_it() -> None:
    bench = topping_up()
    for capacity in (1_209_000, 1_209_999):  # not there yet, and too little
        bench.capacity = capacity
        bench.sight()
        assert bench.lease("lease_2").awaits_money and "lease_2" not in _driven(bench)
    bench.capacity = 1_210_000
    bench.sight()
    assert bench.lease("lease_2").wish is Wish.RUN and "lease_2" in _driven(bench)
    assert bench.stages("lease_2") == ["CHANNEL_SEEN"]
    assert bench.lease("lease_1").state is LeaseState.ACTIVE


def test_a_top_up_that_never_comes_ends_it_without_a_start() -> None:
    bench = topping_up()
    bench.boot_ms += 299_000
    bench.do(Passed())
    assert bench.lease("lease_2").awaits_money
    bench.boot_ms += 1_001
    bench.do(Passed())
    (end,) = [m for m in bench.sent() if isinstance(m, wire.LeaseProgress) and m.lease == "lease_2"]
    assert (end.stage, end.detail["reason"]) == ("FINISHED", "CHANNEL_REFUSED")
    assert "lease_2" not in _driven(bench) and "lease_2" not in bench.state.leases


def _driven(bench: Bench) -> set[str]:
    return {e.lease for o in bench.outcomes for e in o.effects if isinstance(e, Drive)}


def test_an_end_is_final_once_it_is_deep_and_says_what_was_really_paid() -> None:
    bench = Bench().running()
    bench.tick()
    vk = SESSION.verify_key
    bench.do(Settled(vk, "cd" * 32, 0))  # somebody finished it without our voucher
    channel = bench.state.channels[vk]
    assert (channel.claimed, channel.final) == (0, False)
    assert any(
        isinstance(e, Alarm) and e.code == "VOUCHER_LOST" for e in bench.outcomes[-1].effects
    )
    assert Watch(vk) in recover(bench.state)
    before = len(bench.stages())
    bench.do(Settled(vk, "cd" * 32, 0, True))
    assert bench.state.channels[vk].final and len(bench.stages()) == before
    assert Watch(vk) not in recover(bench.state)


def test_running_tenants_hear_of_maintenance_that_may_meet_them() -> None:
    bench = Bench().running()
    wall = bench.now.wall_ms
    near = Window(wall + 60_000, wall + 120_000, "new disks")
    far = Window(wall + 10**9, wall + 2 * 10**9, "new roof")
    bench.own = replace(bench.own, offer=replace(bench.own.offer, windows=(near, far)))
    bench.do(LinkDown())
    bench.do(LinkUp())
    (told,) = [
        m for m in bench.sent() if isinstance(m, wire.LeaseProgress) and m.stage == "MAINTENANCE"
    ]
    assert told.detail == {
        "message": "new disks", "start_ms": near.start_ms, "end_ms": near.end_ms,
    }  # fmt: skip
