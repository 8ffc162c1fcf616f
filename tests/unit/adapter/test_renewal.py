"""A lease that goes on under renewed terms: what is signed, what is not, and who gains by bending
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter.core.events import Watch
from adapter.core.state import Limits, Own, State
from adapter.core.ticks import LATE_MS, awaits_money
from adapter.journal.codec import lease_fixed, lease_from, lease_moving
from marketplace.domain.keys import Signer
from marketplace.domain.money.renewal import RenewalRefused, check, renewed
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import Window
from marketplace.domain.units import most_owed
from marketplace.domain.work.lease import EndReason, LeaseState
from tests.unit.support.adapter import OTHER_SESSION, RATE, SESSION, Bench

MINUTE = 60_000


def short(ms: int) -> Bench:
    """A lease that runs, and may for *ms*."""
    return Bench().running(max_duration_ms=ms, ceiling=most_owed(ms, 1000, RATE))


def longer(bench: Bench, ms: int = 10 * MINUTE, **changes: object) -> Terms:
    """The terms by which the lease would go on for *ms*, of one more minute to be agreed to."""
    terms = bench.lease().terms
    more = renewed(terms, ms, 10**12, bench.now.wall_ms + MINUTE)
    return replace(more, **changes)  # pyright: ignore[reportArgumentType]


def ask(bench: Bench, terms: Terms) -> str:
    """What the adapter says to *terms*: ACCEPTED, or a code."""
    known = len(bench.sent())
    bench.hear(wire.LeaseProposed("lease_1", bench.lease().job, terms.encode()))
    (said,) = bench.sent()[known:]
    if isinstance(said, wire.LeaseDeclined):
        return said.code
    assert isinstance(said, wire.LeaseAccepted)
    assert said.terms.verify_adapter() == terms
    return "ACCEPTED"


def agree(bench: Bench, session: Signer = SESSION) -> None:
    """The consumer signs what the adapter signed."""
    offered = bench.lease().renewal
    assert offered is not None
    signature = session.sign(offered.body)
    both = replace(offered, session_signature=signature)
    bench.hear(wire.LeaseSigned("lease_1", both, "", {}))


def run(bench: Bench, ms: int) -> None:
    """So much is served, and paid for tick by tick."""
    for _ in range(ms // 1000):
        bench.tick()


def test_a_lease_that_is_renewed_runs_on_and_ends_at_its_new_end() -> None:
    bench = short(10_000)
    first = bench.lease().terms
    run(bench, 5_000)
    assert ask(bench, longer(bench, 10_000)) == "ACCEPTED"
    agree(bench)
    assert bench.stages()[-1] == "RENEWED"
    before = len(bench.receipts())
    run(bench, 10_000)
    assert bench.lease().state is LeaseState.ACTIVE
    run(bench, 5_000)
    assert bench.lease().reason is EndReason.MAX_DURATION
    receipts = bench.receipts()
    for earlier, later in zip(receipts[before:], receipts[before + 1 :], strict=False):
        assert later.previous == earlier.hash
        assert (later.t0_ms, later.seq) == (earlier.t1_ms, earlier.seq + 1)
    assert receipts[-1].lease_owed > first.ceiling


def test_the_money_of_a_renewal_is_looked_for_until_it_is_there() -> None:
    """A look in twenty seconds is late for a lease that its channel carries for fifteen more."""
    bench = short(10 * MINUTE)
    bench.capacity = bench.lease().terms.ceiling
    bench.sight()
    assert not awaits_money(bench.state, SESSION.verify_key, bench.now)
    ask(bench, longer(bench))
    agree(bench)
    assert Watch(SESSION.verify_key) in bench.outcomes[-1].effects
    assert awaits_money(bench.state, SESSION.verify_key, bench.now)
    later = replace(bench.now, wall_ms=bench.lease().terms.expires_at_ms + LATE_MS + 1)
    assert not awaits_money(bench.state, SESSION.verify_key, later)  # nobody pays it in any more
    bench.capacity = bench.lease().terms.ceiling
    bench.sight()
    assert not awaits_money(bench.state, SESSION.verify_key, bench.now)


def test_one_that_nobody_signed_ends_when_it_would_have() -> None:
    bench = short(10_000)
    ask(bench, longer(bench))
    run(bench, 10_000)
    assert bench.lease().reason is EndReason.MAX_DURATION


@pytest.mark.parametrize(
    "change",
    [
        {"rate_micro": 1},
        {"units_milli": 2000},
        {"tick_ms": 2000},
        {"job": "job_2"},
        {"payout": bytes(28)},
        {"devices": bytes(32)},
        {"session_vk": OTHER_SESSION.verify_key},
        {"pause_limit_ms": 10**9},
    ],
    ids=lambda change: next(iter(change)),
)
def test_nothing_but_time_and_money_may_differ(change: dict[str, Any]) -> None:
    bench = Bench().running()
    assert ask(bench, longer(bench, **change)) == RenewalRefused.code
    assert bench.lease().renewal is None


def test_it_is_for_longer_and_for_no_more_than_that_costs() -> None:
    bench = Bench().running()
    old, new = bench.lease().terms, longer(bench)
    check(old, new)
    for wrong in (
        replace(new, max_duration_ms=old.max_duration_ms - 1),
        replace(new, ceiling=old.ceiling - 1),
        replace(new, ceiling=new.ceiling * 3),
    ):
        with pytest.raises(RenewalRefused):
            check(old, wrong)


def test_the_owner_may_say_no_and_the_lease_goes_on_to_its_end() -> None:
    bench = Bench().running()
    offer, terms = bench.own.offer, longer(bench)
    dearer = replace(offer, gpu_rates={model: rate + 1 for model, rate in offer.gpu_rates.items()})
    window = Window(bench.now.wall_ms + MINUTE, bench.now.wall_ms + 2 * MINUTE, "new disks")
    noes = {
        "PRICE_BELOW": Own(dearer, bench.own.signer),
        "MAINTENANCE": Own(replace(offer, windows=(window,)), bench.own.signer),
        "TOO_LONG": Own(offer, bench.own.signer, Limits(max_lease_ms=5 * MINUTE)),
    }
    for code, own in noes.items():
        bench.own = own
        assert ask(bench, terms) == code
    bench.own = Own(offer, bench.own.signer)
    bench.state = replace(bench.state, draining=True)
    assert ask(bench, terms) == "DRAINING"
    bench.state = replace(bench.state, draining=False)
    bench.boot_ms += 2 * MINUTE
    assert ask(bench, terms) == "QUOTE_EXPIRED"
    assert bench.lease().state is LeaseState.ACTIVE
    assert bench.lease().renewal is None


def test_the_longest_lease_counts_from_now_on() -> None:
    """A volume that is a year old is renewed like one of yesterday."""
    bench = short(20_000)
    bench.own = replace(bench.own, limits=Limits(max_lease_ms=25_000))
    assert ask(bench, longer(bench, 10_000)) == "TOO_LONG"
    run(bench, 6_000)
    assert ask(bench, longer(bench, 10_000)) == "ACCEPTED"


def test_a_price_that_fell_changes_nothing() -> None:
    bench = Bench().running()
    offer = bench.own.offer
    cheaper = {model: rate - 1 for model, rate in offer.gpu_rates.items()}
    bench.own = replace(bench.own, offer=replace(offer, gpu_rates=cheaper))
    assert ask(bench, longer(bench)) == "ACCEPTED"


def test_another_key_renews_nothing() -> None:
    bench = Bench().running()
    old = bench.lease().terms
    ask(bench, longer(bench))
    agree(bench, OTHER_SESSION)
    assert bench.lease().terms == old
    assert bench.lease().renewal is not None


def test_what_was_never_offered_is_not_taken() -> None:
    """A market that makes up an adapter's signature, or brings the first terms again."""
    bench = Bench().running()
    old = bench.lease()
    terms = longer(bench)
    made_up = SignedTerms(terms.encode(), b"\x01" * 64, SESSION.sign(terms.encode()))
    bench.hear(wire.LeaseSigned("lease_1", made_up, "", {}))
    bench.hear(wire.LeaseSigned("lease_1", old.signed, "", {}))
    assert bench.lease() == old


def test_older_terms_do_not_come_back() -> None:
    bench = Bench().running()
    first = bench.lease().signed
    ask(bench, longer(bench, MINUTE))
    agree(bench)
    second = bench.lease().signed
    bench.boot_ms += 1
    ask(bench, longer(bench, 2 * MINUTE))
    agree(bench)
    newest = bench.lease().terms
    for old in (first, second):
        bench.hear(wire.LeaseSigned("lease_1", old, "", {}))
        known = len(bench.sent())
        bench.hear(wire.LeaseProposed("lease_1", bench.lease().job, old.body))
        (said,) = bench.sent()[known:]
        assert isinstance(said, wire.LeaseDeclined)
    assert bench.lease().terms == newest


def test_a_question_and_a_signature_that_come_twice_change_nothing() -> None:
    bench = Bench().running()
    terms = longer(bench)
    assert ask(bench, terms) == ask(bench, terms) == "ACCEPTED"
    offered = bench.lease().renewal
    assert offered is not None
    agree(bench)
    again = replace(offered, session_signature=SESSION.sign(offered.body))
    bench.hear(wire.LeaseSigned("lease_1", again, "", {}))
    assert bench.stages().count("RENEWED") == 1
    known = len(bench.sent())  # the market lost the answer and asks for what stands
    bench.hear(wire.LeaseProposed("lease_1", bench.lease().job, terms.encode()))
    assert isinstance(bench.sent()[known], wire.LeaseAccepted)


def test_one_that_comes_long_after_its_expiry_is_not_taken() -> None:
    """Else a consumer and a market would hold an old price until the lease's end."""
    for late_ms, taken in ((LATE_MS, True), (LATE_MS + 1, False)):
        bench = Bench().running()
        terms = longer(bench)
        ask(bench, terms)
        bench.boot_ms += terms.expires_at_ms + late_ms - bench.now.wall_ms
        agree(bench)
        assert ("RENEWED" in bench.stages()) is taken


def test_only_a_lease_that_is_served_is_renewed() -> None:
    bench = Bench()
    bench.propose()
    terms = longer(bench)
    bench.hear(wire.LeaseProposed("lease_1", bench.lease().job, terms.encode()))
    said = bench.sent()[-1]
    assert isinstance(said, wire.LeaseDeclined)
    assert said.code == "LEASE_CONFLICT"
    bench = Bench().running()
    terms = longer(bench)
    ask(bench, terms)
    bench.hear(wire.StopAsked("lease_1", "CANCELLED"))
    agree(bench)
    assert "RENEWED" not in bench.stages()


def test_a_renewal_outlives_the_adapter() -> None:
    bench = Bench().running()
    ask(bench, longer(bench))
    for _ in range(2):
        lease = bench.lease()
        back = lease_from(lease.id, lease_fixed(lease), lease_moving(lease))
        assert (back.terms, back.renewal) == (lease.terms, lease.renewal)
        bench.state = State(leases={lease.id: back}, channels=bench.state.channels)
        if lease.renewal is not None:
            agree(bench)
    assert bench.stages()[-1] == "RENEWED"


def test_months_of_paid_service_bear_a_little_more_of_pauses() -> None:
    """But a renewal gives none: each would cost a signature and no money."""
    bench = Bench().running()
    run(bench, 3_000)
    before = bench.lease().paused_ms
    ask(bench, longer(bench))
    agree(bench)
    assert bench.lease().paused_ms == before
