"""A router that lies to the provider it pays: each way ends within two ticks of what is signed, and
in nothing that was not signed for. Names as in the design's table of threats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from adapter.core.events import Passed, Settled
from adapter.core.state import PauseCause
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.route.hop import Payment
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.statement import FIRST
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.workload import ExitReason
from tests.unit.support.hop_out import HOP, ROUTER, TICK, Over, payment, said

STRANGER = Signer(b"\x3f" * 32)
NOBODY = b"\x0b" * 32


def served() -> Over:
    """One lease, three ticks of it paid: the hop's fourth statement."""
    bench = Over().opened().begun()
    for _ in range(3):
        bench.tick()
    return bench


def last(bench: Over) -> Payment:
    assert bench.paying.last is not None
    return bench.paying.last


def next_of(bench: Over, leaves: list[Leaf], **more: object) -> Payment:
    """A statement that follows the last one."""
    statement = last(bench).signed.statement
    return payment(leaves, statement.n + 1, statement.hash, **more)  # pyright: ignore[reportArgumentType]


def bent(bench: Over) -> dict[str, tuple[Payment, str]]:
    """Payments that hold nothing, each with the code that it is refused with."""
    terms, capacity = bench.hash_of("lease_1"), bench.channel.capacity
    good = next_of(bench, [Leaf(terms, 80)])
    forged = next_of(bench, [Leaf(terms, 80)], key=STRANGER)
    other = replace(good, voucher=Voucher.sign(HOP, 81))
    stolen = replace(good, voucher=replace(good.voucher, signature=forged.voucher.signature))
    return {
        "statement of another key": (forged, "STATEMENT_REFUSED"),
        "voucher over more": (other, "STATEMENT_REFUSED"),
        "voucher of another key": (stolen, "VOUCHER_REFUSED"),
        "leaf shrinks": (next_of(bench, [Leaf(terms, 59)]), "STATEMENT_REFUSED"),
        "leaf of nobody": (next_of(bench, [Leaf(NOBODY, 80)]), "STATEMENT_REFUSED"),
        "one leaf more": (
            next_of(bench, [Leaf(terms, 60), Leaf(NOBODY, 9)]), "STATEMENT_REFUSED",
        ),
        "leaf twice": (next_of(bench, [Leaf(terms, 60), Leaf(terms, 60)]), "STATEMENT_REFUSED"),
        "more than the hop holds": (
            next_of(bench, [Leaf(terms, capacity + 1)]), "STATEMENT_REFUSED",
        ),
        "other leaves than signed": (
            replace(good, leaves=(Leaf(terms, 81),)), "STATEMENT_REFUSED",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("way", bent(served()))
def test_a_payment_that_does_not_hold_changes_nothing(way: str) -> None:
    bench = served()
    bad, code = bent(bench)[way]
    before = bench.state
    outcome = bench.hear(frame_of(bad, None))
    assert bench.state.channels == before.channels and bench.state.leases == before.leases
    assert not outcome.durable
    assert bench.not_taken() == [(bad.signed.statement.n, code)]
    assert bench.paids() == [20, 40, 60]
    bench.tick()  # and the honest one goes on
    assert bench.paids()[-1] == 80


@pytest.mark.parametrize(
    "bend",
    [
        lambda m: replace(m, leaves=m.leaves[:-1]),
        lambda m: replace(m, leaves=bytes(40) * 501),
        lambda m: replace(m, statement=m.statement[:-1]),
        lambda m: replace(m, statement=b""),
        lambda m: replace(m, signature=m.signature[:-1]),
    ],
)
def test_bytes_that_are_no_payment_are_refused(
    bend: Callable[[wire.HopPaid], wire.HopPaid],
) -> None:
    bench = served()
    good = frame_of(next_of(bench, [Leaf(bench.hash_of("lease_1"), 80)]), None)
    channels = bench.state.channels
    bench.hear(bend(good))
    assert bench.state.channels == channels and len(bench.not_taken()) == 1


# ---- replay, reorder, lost -----------------------------------------------------------------------


def test_replay_and_reorder_are_void() -> None:
    bench = Over().opened().begun()
    frames: list[wire.HopPaid] = []
    for _ in range(3):
        before = bench.told
        bench.tick()
        frames.append(frame_of(last(bench), before))
    state, count = bench.state, len(bench.sent())
    for frame in (frames[0], frames[2], frames[1], frames[0]):
        bench.hear(frame)
    assert bench.state.channels == state.channels
    assert len(bench.sent()) == count + bench.not_taken().__len__()
    assert {code for _, code in bench.not_taken()} <= {"STATEMENT_REFUSED"}
    assert bench.paids() == [20, 40, 60]


def test_a_payment_after_one_that_was_lost_is_asked_for_whole() -> None:
    bench = Over().opened().begun().begun("lease_2")
    bench.boot_ms += 1000
    bench.measure("lease_1")
    bench.measure("lease_2")
    bench.paying = bench.paying.pay({bench.hash_of("lease_1"): 20}, HOP)  # this one is lost
    missed = bench.paying.last
    bench.paying = bench.paying.pay({bench.hash_of("lease_2"): 20}, HOP)
    bench.hear(frame_of(last(bench), missed))
    assert bench.not_taken() == [(last(bench).signed.statement.n, "STATEMENT_REFUSED")]
    assert bench.alarmed() == []  # nobody need look: it heals by itself
    bench.hear(frame_of(last(bench), None))
    assert (bench.paids(), bench.paids("lease_2")) == ([20], [20])


# ---- forks ---------------------------------------------------------------------------------------


def forks(bench: Over) -> dict[str, Payment]:
    terms, now = bench.hash_of("lease_1"), last(bench).signed.statement
    return {
        "same number": payment([Leaf(terms, 61)], now.n, now.previous),
        "next after another": payment([Leaf(terms, 80)], now.n + 1, NOBODY),
    }


@pytest.mark.parametrize("way", ["same number", "next after another"])
def test_a_fork_stops_the_hop_keeps_both_and_takes_what_is_due(way: str) -> None:
    bench = served()
    held, fork = bench.hop.last, forks(bench)[way]
    bench.tick(pay=False)
    bench.hear(frame_of(fork, None))
    assert bench.hop.last is held and bench.hop.fork == fork
    assert (bench.lease().reason, bench.lease().hard) == ("CHANNEL_REFUSED", True)
    assert bench.lease().message.startswith("HOP_FORKED")
    assert "HOP_FORKED" in bench.alarmed() and bench.not_taken()[-1][1] == "HOP_FORKED"
    bench.exit(reason=ExitReason.STOPPED, code=137)
    bench.clear()
    bench.boot_ms += 30_001  # no last payment is waited for longer
    bench.do(Passed())
    assert bench.settles() and bench.channel.due == 60
    assert bench.declined(bench.asked("lease_2")) == "CHANNEL_OVER"
    bench.hear(frame_of(next_of(bench, [Leaf(bench.hop.last.leaves[0].terms, 80)]), None))  # pyright: ignore[reportOptionalMemberAccess]
    assert bench.channel.due == 60 and bench.not_taken()[-1] == (0, "HOP_FORKED")


def test_a_stranger_cannot_fork_a_hop() -> None:
    bench = served()
    now = last(bench).signed.statement
    forged = payment([Leaf(bench.hash_of("lease_1"), 61)], now.n, now.previous, key=STRANGER)
    bench.hear(frame_of(forged, None))
    assert bench.hop.fork is None and bench.lease().state is LeaseState.ACTIVE


def test_a_payment_of_another_hop_is_no_payment_of_this_one() -> None:
    bench = served()
    vk = STRANGER.verify_key
    bench.hear(wire.HopOpened(vk, ROUTER.key_hash, "cd" * 32, 0))
    bench.sight(STRANGER)
    leaves = [Leaf(bench.hash_of("lease_1"), 500)]
    bench.hear(frame_of(payment(leaves, 1, FIRST, STRANGER, vk), None))
    assert bench.not_taken() == [(1, "STATEMENT_REFUSED")] and bench.paids() == [20, 40, 60]
    mixed = payment(leaves, 9, FIRST, HOP)
    bench.hear(replace(frame_of(mixed, None), voucher=Voucher.sign(STRANGER, 500)))
    assert bench.not_taken()[-1][1] == "STATEMENT_REFUSED" and bench.channel.due == 60


def test_a_voucher_without_its_statement_is_none() -> None:
    bench = served()
    bench.hear(wire.VoucherSent("lease_1", Voucher.sign(HOP, 10_000)))
    assert bench.channel.paid == 60 and "VOUCHER_REFUSED" in bench.alarmed()


def test_a_payment_over_no_hop_is_refused() -> None:
    bench = Over()
    bench.hear(frame_of(payment([Leaf(NOBODY, 5)], 1, FIRST), None))
    assert bench.not_taken() == [(0, "HOP_UNKNOWN")] and bench.state.channels == {}


# ---- the chain -----------------------------------------------------------------------------------


def test_close_out_ends_the_lease_and_takes_what_is_due() -> None:
    bench = served()
    bench.tick(pay=False)
    bench.sight(HOP, ChannelStage.CLOSING)
    assert (bench.lease().reason, bench.lease().hard) == ("CHANNEL_CLOSING", True)
    bench.exit(reason=ExitReason.STOPPED, code=137)
    bench.leaf("lease_1", 80)  # what comes before its end still counts
    assert bench.paids()[-1] == 80
    bench.clear()
    bench.boot_ms += 30_001
    bench.do(Passed())
    assert bench.settles() and bench.channel.due == 80
    assert bench.declined(bench.asked("lease_2")) == "CHANNEL_OVER"


def test_nothing_is_said_to_be_paid_over_a_hop_that_is_over() -> None:
    """A Paid would let the router take from the consumer what this provider can never claim."""
    bench = served()
    bench.tick(pay=False)
    bench.do(Settled(HOP.verify_key, "cd" * 32, 60))
    bench.leaf("lease_1", 80)
    assert bench.paids()[-1] == 60 and bench.not_taken()[-1][1] == "HOP_UNKNOWN"


def test_rollback_of_a_hop_pauses_and_no_new_lease_relies_on_it() -> None:
    bench = served()
    bench.sight(HOP, limit=0)
    bench.tick()
    assert bench.lease().pause is PauseCause.DEPTH
    assert bench.declined(bench.asked("lease_2")) == "HOP_UNSEEN"
    bench.sight(HOP)
    assert bench.lease().state is LeaseState.ACTIVE
    assert bench.declined(bench.asked("lease_2")) == ""


def test_a_young_hop_is_relied_upon_as_far_as_its_depth_allows() -> None:
    bench = Over().opened(limit=100).begun(route={"reserve": 90})
    while bench.lease().reason is None and bench.lease().pause is None:
        bench.tick()
    assert bench.lease().owed <= 100
    assert bench.declined(bench.asked("lease_2", route={"reserve": 90})) == "HOP_UNSEEN"
    bench.sight(HOP)
    assert bench.declined(bench.asked("lease_2", route={"reserve": 90})) == ""


def test_lie_capacity() -> None:
    """What a route says counts for nothing: the adapter's own look at the channel does."""
    bench = Over(capacity=500).opened()
    assert bench.declined(bench.asked(route={"reserve": 10_000})) == "ROUTE_HEADROOM"
    assert bench.declined(bench.asked(route={"reserve": 500})) == ""


def test_never_more_than_two_ticks_are_owed_beyond_what_is_signed() -> None:
    """Whatever is signed, and however late."""
    for late in range(1, 6):
        bench = Over().opened().begun()
        for second in range(20):
            bench.boot_ms += 1000
            bench.measure()
            if second % late == 0:
                bench.leaf("lease_1", bench.lease().owed)
            owed = bench.lease().owed
            assert owed - (bench.hop.leaf(bench.hash_of("lease_1")) or 0) <= 2 * TICK


# ---- hops that are not what they are said to be --------------------------------------------------


def test_seventeen_hops_are_one_too_many() -> None:
    bench = Over()
    for i in range(17):
        key = Signer(bytes([i + 1]) * 32).verify_key
        bench.hear(wire.HopOpened(key, ROUTER.key_hash, f"{i:064x}", 0))
    assert len(bench.state.channels) == 16 and bench.alarmed() == ["HOP_REFUSED"]


@pytest.mark.parametrize(
    "bad",
    [
        said(owner=b"\x01" * 27), said(tx="ab"), said(tx="AB" * 32), said(index=-1),
        said(index=65_536), replace(said(), session_vk=b"\x01" * 31),
    ],
)  # fmt: skip
def test_a_hop_that_is_none_is_not_followed(bad: wire.HopOpened) -> None:
    bench = Over()
    bench.hear(bad)
    assert bench.state.channels == {} and bench.alarmed() == ["HOP_REFUSED"]


def test_a_hop_that_pays_is_not_made_another_one() -> None:
    bench = served()
    for other in (said(tx="cd" * 32), said(owner=b"\x01" * 28), said(index=1)):
        bench.hear(other)
        assert bench.channel.origin == "ab" * 32 and bench.hop.owner == ROUTER.key_hash
    assert bench.alarmed() == ["HOP_REFUSED"] * 3
