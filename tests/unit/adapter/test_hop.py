"""A lease that a router pays, from its hop to its last receipt, in virtual time: what is served, what
is said, and how little is risked.
"""

from __future__ import annotations

from dataclasses import replace

from adapter.core.events import Drain, LinkDown, LinkUp, Passed, Settle, Settled, Watch
from adapter.core.state import PauseCause
from adapter.core.wish import Wish
from marketplace.domain.keys import verifies
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import check_next
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.workload import ExitReason
from tests.unit.support.adapter import ADAPTER, Bench, gpu_job
from tests.unit.support.hop_out import HOP, TICK, Over, key_of, said

RATE = 10_000_000
SECOND = 20  # lovelace of a second of two cores


def test_a_routed_lease_from_its_hop_to_the_end_of_it() -> None:
    bench = Over().opened()
    bench.hear(bench.asked())
    signed = bench.signed_terms()
    assert verifies(ADAPTER.verify_key, signed.body, signed.adapter_signature)
    assert RoutedTerms.decode(signed.body).terms == bench.lease().terms
    bench.agreed()
    assert bench.lease().wish is Wish.WAIT  # its router has signed nothing for it yet
    bench.leaf("lease_1", 0)
    assert bench.lease().wish is Wish.RUN
    bench.start()
    for _ in range(5):
        bench.tick()
    bench.boot_ms += 400
    bench.exit()
    last = bench.receipts()[-1]
    assert (last.final, last.lease_owed) == (True, 5 * SECOND + 8)
    bench.pay()
    bench.clear()
    assert bench.state.leases == {} and bench.stages() == ["CHANNEL_SEEN", "STARTED", "FINISHED"]
    assert bench.paids() == [20, 40, 60, 80, 100, 108]
    channel = bench.channel
    assert (channel.due, channel.paid, channel.unclaimed) == (108, 108, 108)
    bench.hear(wire.EndSent(End.sign(HOP, 108)))
    assert Settle(HOP.verify_key) in bench.outcomes[-1].effects
    assert bench.alarmed() == [] and bench.not_taken() == []


def test_each_lease_has_a_chain_of_its_own_under_its_own_key() -> None:
    bench = Over().opened().begun().begun("lease_2")
    for _ in range(3):
        bench.boot_ms += 1000
        bench.measure("lease_1")
        bench.measure("lease_2")
        bench.pay()
    for lease in ("lease_1", "lease_2"):
        before = None
        for receipt in bench.receipts_of(lease):
            check_next(receipt, before, before, RATE)
            assert receipt.session_vk == key_of(lease).verify_key
            assert receipt.channel_owed == receipt.lease_owed
            before = receipt
        assert before is not None and (before.seq, before.lease_owed) == (3, 60)
    assert bench.channel.owed == 120 and bench.paids("lease_2") == [20, 40, 60]


def test_a_router_that_withholds_gets_two_ticks_and_no_more() -> None:
    bench = Over().opened().begun()
    bench.tick()
    bench.tick(pay=False)
    assert bench.lease().state is LeaseState.ACTIVE
    bench.tick(pay=False)
    assert (bench.lease().state, bench.lease().pause) == (LeaseState.PAUSED, PauseCause.UNPAID)
    for _ in range(5):
        bench.tick(pay=False)
    assert bench.lease().owed - bench.paids()[-1] == 2 * SECOND <= 2 * TICK
    bench.pay()
    assert bench.lease().state is LeaseState.ACTIVE and bench.paids()[-1] == 3 * SECOND


def test_what_ends_unpaid_makes_its_router_wait() -> None:
    """A consumer's key is new for every lease: who answers for it is the router."""
    bench = Over().opened().begun()
    bench.tick(pay=False)
    bench.tick(pay=False)
    bench.boot_ms += 4_001  # nothing was ever paid for it: four ticks of patience
    bench.do(Passed())
    assert (bench.lease().reason, bench.lease().hard) == ("UNPAID", True)
    bench.exit(reason=ExitReason.STOPPED, code=137)
    assert bench.declined(bench.asked("lease_2")) == "UNPAID_WAIT"
    bench.boot_ms += 11_000
    assert bench.declined(bench.asked("lease_2")) == ""


def test_the_money_of_one_lease_pays_for_no_other() -> None:
    bench = Over().opened().begun().begun("lease_2")
    for _ in range(3):
        bench.boot_ms += 1000
        bench.measure("lease_1")
        if bench.lease("lease_2").runs:
            bench.measure("lease_2")
        bench.leaf("lease_1", bench.lease().owed)
    assert bench.lease().state is LeaseState.ACTIVE
    assert bench.lease("lease_2").pause is PauseCause.UNPAID
    assert bench.paids("lease_2") == [] and bench.paids() == [20, 40, 60]
    bench.leaf("lease_2", bench.lease("lease_2").owed)
    assert bench.lease("lease_2").state is LeaseState.ACTIVE


def test_a_reserve_is_never_exceeded() -> None:
    bench = Over().opened().begun(route={"reserve": 90})
    while bench.lease().reason is None:
        bench.tick()
    assert bench.lease().reason == "CEILING"
    bench.boot_ms += 5_000  # it takes its time to end
    bench.exit(reason=ExitReason.STOPPED, code=143)
    assert bench.receipts()[-1].lease_owed == 90


def test_a_hop_keeps_what_it_reserves_and_the_last_receipt_frees_it() -> None:
    bench = Over(capacity=15_000).opened()
    first = bench.asked(ceiling=10_000)
    assert bench.declined(first) == ""
    assert bench.declined(bench.asked("lease_2", ceiling=10_000)) == "ROUTE_HEADROOM"
    assert bench.declined(first) == ""  # asked again: the same answer, nothing booked twice
    assert bench.declined(bench.asked("lease_3", ceiling=5_000)) == ""
    bench.hear(wire.LeaseCancelled("lease_3", "CANCELLED"))
    bench.agreed()
    bench.leaf("lease_1", 0)
    bench.start()
    bench.tick()
    bench.exit()
    bench.pay()
    assert bench.declined(bench.asked("lease_2", ceiling=10_000)) == ""
    book = bench.hop.leases[bench.hash_of("lease_1")]
    assert (book.reserve, book.owed, book.paid) == (20, 20, 20)


def test_a_hop_ends_by_itself_only_while_its_owner_leaves() -> None:
    """Nobody else would end it, and the fee key's money goes home once no channel is open."""
    bench = Over().opened()
    settle, linger_ms = Settle(HOP.verify_key), bench.own.limits.linger_ms

    def passes(ms: int) -> bool:
        bench.boot_ms += ms
        bench.do(Passed())
        return settle in bench.outcomes[-1].effects

    assert not passes(1_000) and not passes(10 * linger_ms)  # idle, unused: it waits for consumers
    bench.do(Drain(True))
    assert passes(1_000)
    assert not passes(1_000)  # once

    busy = Over().opened().begun()
    busy.do(Drain(True))
    for _ in range(3):
        busy.tick()
    assert settle not in [e for one in busy.outcomes for e in one.effects]


def test_a_leaf_of_a_quote_that_expired_here_does_not_end_the_hop() -> None:
    """Booked in the last moment, its signature lost: leaves are never taken back, so it is known."""
    bench = Over().opened()
    bench.hear(bench.asked("lost"))
    lost = bench.hash_of("lost")
    bench.boot_ms += 120_001
    bench.do(Passed())
    assert "lost" not in bench.state.leases
    bench.begun(
        expires_at_ms=bench.now.wall_ms + 60_000, route={"expires_at_ms": bench.now.wall_ms}
    )
    bench.pays({lost: 0})
    bench.tick()
    assert bench.not_taken() == [] and bench.paids() == [20]


def test_what_is_signed_ahead_is_paid_when_it_is_owed() -> None:
    bench = Over().opened().begun()
    bench.tick(pay=False)
    bench.leaf("lease_1", 50)
    assert bench.paids() == [20] and bench.channel.due == 20
    bench.tick(pay=False)
    bench.tick(pay=False)
    assert bench.paids() == [20, 40, 50] and bench.channel.due == 50  # with its receipt, at once


def test_the_same_bytes_after_a_lost_connection() -> None:
    bench = Over().opened().begun()
    bench.tick()
    first = [m for m in bench.sent() if isinstance(m, wire.PaidSent)]
    bench.do(LinkDown())
    bench.do(LinkUp())
    assert [m for m in bench.sent() if isinstance(m, wire.PaidSent)] == first * 2


def test_a_payment_that_is_known_is_met_with_silence() -> None:
    bench = Over().opened().begun()
    bench.tick()
    count, last = len(bench.sent()), bench.paying.last
    assert last is not None
    outcome = bench.hear(frame_of(last, None))
    assert len(bench.sent()) == count and not outcome.durable


def test_an_idle_hop_stays_as_long_as_its_router_ordered() -> None:
    bench = Over().opened().begun()
    bench.hear(wire.KeepSent(Keep.sign(HOP, 7_200_000)))
    bench.tick()
    bench.exit()
    bench.pay()
    bench.clear()
    bench.do(Passed())
    bench.boot_ms += 7_000_000
    bench.do(Passed())
    assert not bench.settles()
    bench.boot_ms += 300_000
    bench.do(Passed())
    assert bench.settles()


def test_a_hop_is_watched_from_when_it_is_said_and_said_again() -> None:
    bench = Over()
    outcome = bench.hear(said())
    assert outcome.effects == (Watch(HOP.verify_key),) and outcome.durable
    again = bench.hear(said())
    assert again.effects == (Watch(HOP.verify_key),) and not again.durable
    consts, offer = bench.channel.agreed.consts(), bench.own.offer
    assert (consts.adapter_vkh, consts.payout, consts.fee_bps, consts.close_period_ms) == (
        offer.adapter_vkh, offer.payout, offer.fee_bps, offer.close_period_ms,
    )  # fmt: skip


def test_a_hop_that_never_opens_is_forgotten_and_may_be_said_anew() -> None:
    bench = Over()
    bench.hear(said())
    bench.do(Passed())
    bench.boot_ms += 3_600_001
    bench.do(Passed())
    assert bench.state.channels == {}
    bench.hear(said(tx="cd" * 32))
    assert bench.channel.origin == "cd" * 32


def test_a_hop_that_is_over_for_good_is_remembered_by_its_key() -> None:
    bench = Over().opened().begun()
    bench.tick()
    bench.exit()
    bench.pay()
    bench.clear()
    bench.do(Settled(HOP.verify_key, "cd" * 32, 20, final=True))
    bench.boot_ms += 8 * 86_400_000
    bench.do(Passed())
    assert bench.state.channels == {} and HOP.verify_key in bench.state.past.keys
    assert (bench.state.earned, bench.state.claimed) == (20, 20)
    bench.hear(said())
    assert bench.state.channels == {} and bench.alarmed() == ["HOP_REFUSED"]


def test_a_workload_that_stops_unpaid_loses_its_grace() -> None:
    bench = Over().opened().begun()
    bench.hear(wire.StopAsked("lease_1", "enough"))
    bench.tick(pay=False)
    assert not bench.lease().hard
    bench.tick(pay=False)
    assert bench.lease().hard


def test_a_direct_lease_beside_it_is_nothing_to_it() -> None:
    """The consumer's own channel: its debts and vouchers are not the router's, nor the reverse."""
    bench = Over().opened().begun()
    bench.propose(gpu_job(), "direct")
    bench.sign("direct")
    bench.sight()
    bench.start("direct")
    for _ in range(2):
        bench.boot_ms += 1000
        bench.measure("direct")
        bench.measure("lease_1")
        bench.pay()
    assert bench.lease("direct").pause is PauseCause.UNPAID
    assert bench.lease().state is LeaseState.ACTIVE
    Bench.pay(bench)
    assert bench.lease("direct").state is LeaseState.ACTIVE
    assert replace(bench.channel, hop=None).stage is ChannelStage.OPEN
