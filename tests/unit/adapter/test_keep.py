"""A kept channel ends by itself: the consumer's order, and who gains by bending it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core.events import Alarm, Passed, Settle
from adapter.core.state import Limits
from adapter.journal.codec import channel_from, channel_row
from marketplace.domain.errors import Malformed
from marketplace.domain.money.keep import MOST_MS, Keep
from marketplace.domain.protocol import wire
from tests.unit.support.adapter import OTHER_SESSION, SESSION, Bench

MINUTE = 60_000


def idle(*orders: Keep, limits: Limits | None = None) -> Bench:
    """A channel that paid one lease, with *orders* heard while it ran; idle from now on."""
    bench = Bench()
    bench.own = replace(bench.own, limits=limits or Limits())
    bench.running()
    bench.tick()
    for order in orders:
        bench.hear(wire.KeepSent(order))
    bench.exit()
    bench.pay()
    bench.clear()
    bench.do(Passed())
    return bench


def after(bench: Bench, ms: int) -> bool:
    """Whether the channel is being finished once *ms* went by."""
    bench.boot_ms += ms
    bench.do(Passed())
    return any(isinstance(e, Settle) for o in bench.outcomes for e in o.effects)


def test_an_idle_channel_is_finished_when_its_order_says() -> None:
    bench = idle(Keep.sign(SESSION, 10 * MINUTE))
    assert not after(bench, 10 * MINUTE - 1)
    assert after(bench, 1)


def test_it_is_finished_with_nothing_due_as_well() -> None:
    """The consumer's money comes home though the provider has nothing to claim."""
    bench = idle(Keep.sign(SESSION, MINUTE))
    channel = bench.state.channels[SESSION.verify_key]
    bench.state = bench.state.with_channel(replace(channel, claimed=channel.due))
    assert after(bench, MINUTE)


def test_a_lease_begins_the_time_anew() -> None:
    bench = idle(Keep.sign(SESSION, 10 * MINUTE))
    assert not after(bench, 9 * MINUTE)
    bench.propose(lease="lease_2", expires_at_ms=bench.now.wall_ms + MINUTE)
    bench.sign("lease_2", tx="")
    bench.start("lease_2")
    assert not after(bench, 9 * MINUTE)
    assert not bench.state.channels[SESSION.verify_key].idle_since_wall_ms


def test_the_longest_order_stands_however_they_come() -> None:
    """Who repeats an old, shorter order (the market) ends nothing by it."""
    short, long = Keep.sign(SESSION, MINUTE), Keep.sign(SESSION, 10 * MINUTE)
    for orders in ((short, long), (long, short), (short, long, short)):
        bench = idle(*orders)
        assert not after(bench, 10 * MINUTE - 1)
        assert after(bench, 1)


def test_an_order_of_another_key_is_none() -> None:
    """Nobody but the channel's consumer sends its money home, or keeps it here."""
    forged = replace(Keep.sign(OTHER_SESSION, MINUTE), session_vk=SESSION.verify_key)
    longer = replace(Keep.sign(SESSION, MINUTE), keep_ms=MINUTE + 1)
    for lie in (forged, longer):
        bench = idle(lie)
        alarms = [e.code for o in bench.outcomes for e in o.effects if isinstance(e, Alarm)]
        assert alarms == ["KEEP_REFUSED"]
        assert bench.state.channels[SESSION.verify_key].keep_ms == 0


def test_an_order_for_a_channel_that_is_not_known_changes_nothing() -> None:
    bench = Bench()
    outcome = bench.hear(wire.KeepSent(Keep.sign(OTHER_SESSION, MINUTE)))
    assert (outcome.effects, outcome.state.channels) == ((), {})


def test_the_owner_says_how_long_at_most() -> None:
    """A channel is watched for as long as it stands: not for a month because a stranger wishes."""
    bench = idle(Keep.sign(SESSION, MOST_MS), limits=Limits(keep_channel_ms=5 * MINUTE))
    assert not after(bench, 5 * MINUTE - 1)
    assert after(bench, 1)


def test_an_order_is_in_the_journal() -> None:
    channel = idle(Keep.sign(SESSION, MINUTE)).state.channels[SESSION.verify_key]
    assert channel_from(SESSION.verify_key, channel_row(channel), channel.voucher) == channel


@pytest.mark.parametrize("keep_ms", [0, -1, MOST_MS + 1])
def test_an_order_is_a_millisecond_to_a_month(keep_ms: int) -> None:
    with pytest.raises(Malformed):
        Keep.sign(SESSION, keep_ms)
    with pytest.raises(Malformed):
        Keep.from_wire([SESSION.verify_key, keep_ms, bytes(64)])


def test_an_order_is_never_taken_for_a_voucher() -> None:
    for keep_ms in (1, MOST_MS):
        assert len(Keep.message(SESSION.verify_key, keep_ms)) > 16
