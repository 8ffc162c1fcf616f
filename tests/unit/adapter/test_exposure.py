"""Unclaimed money above the owner's limit for too long: leases pause, unbilled, and the owner is
told.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core import exposure
from adapter.core.decide import wake
from adapter.core.events import Alarm, Passed, Purse, Sighted
from adapter.core.state import Channel, Limits, Own, PauseCause, Rules
from adapter.journal.codec import channel_from, channel_row
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.parts import Policy
from tests.unit.support.adapter import ADAPTER, RATE, SESSION, Bench, gpu_job, offer

LIMIT, WAIT_MS = 100_000, 60_000  # 50 s of the bench's GPU; then a minute
RULES = Rules(claim_above=LIMIT, claim_drained=3_000, claim_wait_ms=WAIT_MS)
PER_S = RATE // 1_000_000
LONG = gpu_job(policy=Policy(max_duration_ms=86_400_000))
OPEN, CLOSING = ChannelStage.OPEN, ChannelStage.CLOSING


def bench() -> Bench:
    made = Bench(own=Own(offer(), ADAPTER, Limits(), RULES))
    return made.running(LONG)


def alarms(of: Bench) -> list[str]:
    return [e.code for o in of.outcomes for e in o.effects if isinstance(e, Alarm)]


def sighted(of: Bench, claimed: int, stage: ChannelStage = OPEN) -> None:
    of.do(Sighted(SESSION.verify_key, stage, claimed, of.capacity, of.capacity))


def served(of: Bench, seconds: int, claimed: int = 0, every: int = 20) -> int:
    """A paid second after the other, the chain seen every *every*; how many were billed."""
    before = len(of.receipts())
    for n in range(seconds):
        of.tick()
        of.do(Passed())
        if n % every == 0:
            sighted(of, claimed)
    return len(of.receipts()) - before


def test_served_until_the_limit_and_a_minute_more_and_no_further() -> None:
    it = bench()
    billed = served(it, 400)
    channel = it.state.channels[SESSION.verify_key]
    assert it.lease().pause is PauseCause.EXPOSED
    assert set(alarms(it)) == {"CLAIM_STARVED"}
    assert billed <= 50 + 60 + 2
    assert channel.owed <= LIMIT + WAIT_MS // 1000 * PER_S + 2 * PER_S
    told = [m for m in it.sent() if isinstance(m, wire.LeaseProgress) and m.stage == "PAUSED"]
    assert [m.detail["code"] for m in told] == ["EXPOSED"]


def test_a_claim_of_a_lovelace_lifts_nothing_and_one_of_what_was_due_does() -> None:
    it = bench()
    served(it, 200)
    owed = it.state.channels[SESSION.verify_key].owed
    sighted(it, 1)
    it.do(Passed())
    assert it.lease().pause is PauseCause.EXPOSED
    sighted(it, owed)
    assert it.lease().state is LeaseState.ACTIVE and it.lease().pause is None
    assert served(it, 40, owed) == 39  # a reading at each end of what is billed


def test_claims_that_land_in_time_never_pause_however_fast_the_money_flows() -> None:
    it = bench()
    it.own = replace(it.own, rules=replace(RULES, claim_above=4 * PER_S))
    for _ in range(20):
        claimed = it.state.channels[SESSION.verify_key].owed
        assert served(it, 30, claimed, every=30) == 30  # always above the limit again
    assert alarms(it) == [] and it.lease().state is LeaseState.ACTIVE


def test_a_restart_forgets_the_clock_and_not_that_it_is_starved() -> None:
    it = bench()
    served(it, 200)
    channel = it.state.channels[SESSION.verify_key]
    assert channel_from(channel.session_vk, channel_row(channel), channel.voucher) == channel
    it.boot_ms = 5_000  # the host started again
    it.state = wake(it.state, it.now)
    assert it.state.channels[SESSION.verify_key].starved
    it.do(Passed())
    it.measure()
    assert it.lease().pause is PauseCause.EXPOSED


def test_devices_are_not_kept_for_ever_while_the_chain_is_seen() -> None:
    it = bench()
    served(it, 200)
    for _ in range(32):
        it.boot_ms += 60_000
        sighted(it, 0)
        it.do(Passed())
    assert it.lease().reason is EndReason.CHANNEL_REFUSED


def test_a_chain_that_cannot_be_read_ends_no_starved_lease() -> None:
    it = bench()
    served(it, 200)
    for _ in range(120):
        it.boot_ms += 60_000
        it.do(Passed())
    assert it.lease().state is LeaseState.PAUSED


def test_no_further_lease_on_a_starved_channel() -> None:
    it = bench()
    served(it, 200)
    it.exit()
    it.clear()
    it.propose(LONG, "lease_2", expires_at_ms=it.now.wall_ms + 60_000)
    said = [m for m in it.sent() if isinstance(m, wire.LeaseDeclined)]
    assert [m.code for m in said] == ["CLAIM_STARVED"]


def test_no_new_lease_while_the_fee_key_cannot_pay_for_a_finish() -> None:
    it = Bench()
    it.do(Purse("send 2 ADA to addr"))
    it.propose(LONG)
    said = [m for m in it.sent() if isinstance(m, wire.LeaseDeclined)]
    assert [m.code for m in said] == ["FEES_SHORT"] and "send 2 ADA" in said[0].message
    it.do(Purse(""))
    it.propose(LONG)
    assert it.lease().state is LeaseState.OFFERED


def test_a_running_lease_goes_on_while_the_fee_key_is_short() -> None:
    it = bench()
    it.do(Purse("send 2 ADA to addr"))
    assert served(it, 20) == 20


def channel(due: int, claimed: int, stage: ChannelStage, at: int, mark: int, late: bool) -> Channel:
    base = Channel(SESSION.verify_key, b"", "", stage, capacity=due, claimed=claimed)
    paid = replace(base, voucher=Voucher(SESSION.verify_key, due, bytes(64)), last=_owed(due))
    return replace(paid, exposed_at_ms=at, exposed_due=mark, starved=late)


def _owed(due: int):  # a receipt over what is due
    from tests.integration.adapter.test_treasury import signed

    return signed(Channel(SESSION.verify_key, b"", ""), Voucher.sign(SESSION, due)).last


@pytest.mark.parametrize(
    ("due", "claimed", "stage", "at", "mark", "late", "now", "then"),
    [
        (99_999, 0, OPEN, 0, 0, False, 500, (0, 0, False)),  # below the limit
        (100_000, 0, OPEN, 0, 0, False, 500, (500, 100_000, False)),  # at it: the clock starts
        (150_000, 0, OPEN, 500, 100_000, False, 60_500, (500, 100_000, False)),  # in time yet
        (150_000, 0, OPEN, 500, 100_000, False, 60_501, (500, 100_000, True)),  # late
        (150_000, 1, OPEN, 500, 100_000, True, 70_000, (500, 100_000, True)),  # too small a claim
        (150_000, 49_999, OPEN, 500, 100_000, True, 70_000, (500, 100_000, True)),
        (150_000, 50_001, OPEN, 500, 100_000, True, 70_000, (0, 0, False)),  # below the limit again
        (250_000, 100_000, OPEN, 500, 100_000, True, 70_000, (70_000, 250_000, False)),  # anew
        (2_999, 0, CLOSING, 0, 0, False, 500, (0, 0, False)),
        (3_000, 0, CLOSING, 0, 0, False, 500, (500, 3_000, False)),  # closing: what is worth a fee
        (3_000, 0, CLOSING, 500, 3_000, False, 60_501, (500, 3_000, True)),
        (150_000, 0, ChannelStage.ENDED, 500, 100_000, True, 70_000, (0, 0, False)),
        (150_000, 0, OPEN, 0, 0, False, 0, (1, 150_000, False)),  # the clock's own zero
    ],
)
def test_exposure(
    due: int, claimed: int, stage: ChannelStage, at: int, mark: int, late: bool, now: int,
    then: tuple[int, int, bool],
) -> None:  # fmt: skip
    after = exposure.follow(channel(due, claimed, stage, at, mark, late), RULES, now)
    assert (after.exposed_at_ms, after.exposed_due, after.starved) == then
