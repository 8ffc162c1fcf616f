"""The market's decisions about leases and jobs, pure: one fact a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain import canonical
from marketplace.domain.errors import NotFound
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.parts import GpuNeed, Policy, Price, Range, Resources
from marketplace.market.base.errors import NothingMatches, OverBudget
from marketplace.market.base.records import Channel, OfferRecord
from marketplace.market.core.decide import decide
from marketplace.market.core.ending import LIVE, end_reason
from marketplace.market.core.inputs import (
    Accounted,
    Declined,
    Exited,
    KeyBrought,
    LateReceipt,
    Matched,
    NoticeGiven,
    NoticeOver,
    NoticeWithdrawn,
    Passed,
    ProviderLost,
    Signed,
    Started,
    Stop,
    TurnCame,
    TurnMissed,
    Unmatched,
)
from marketplace.market.core.outcome import (
    Enqueue,
    FreeBudget,
    Keep,
    Lapse,
    LeaveQueue,
    Outcome,
    Release,
    Rematch,
    Remember,
    Story,
    Tell,
)
from marketplace.market.core.starting import BUSY_TRIES
from marketplace.market.core.waiting import pausing, waits
from marketplace.market.state.directory import Directory
from marketplace.matching import NoMatch
from tests.fakes import gpu, offer, seed, spec
from tests.unit.support.decisions import (
    COMPLETED,
    NOW,
    RULES,
    SETTLED,
    after,
    at_stage,
    begin,
    funded,
    kinds,
    leased,
    of,
    place,
    posted,
    quoted,
    running,
    signature,
)

LATER = Passed(RULES, 5)
AGAIN = Policy(max_duration_ms=60_000, retry_on=("provider_lost", "preempted"), retry_max=1)


def test_a_device_whose_owner_keeps_a_share_is_listed_with_the_rest() -> None:
    directory = Directory()
    made = offer(seed("provider"), gpus=(replace(gpu(0), share=600),))
    body = canonical.encode(made.to_wire())
    directory.set_offer(OfferRecord(made.id, made.provider, OfferState.LISTED, body, 0, 0, "p"))
    assert directory.free(made.id) == {gpu(0).uuid: 600}

    def wants(share: int) -> JobSpec:
        return spec(resources=(Resources(Range(1000), Range(256), Range(0), GpuNeed(share=share)),))

    whole = directory.place(wants(1000), "acc", frozenset(), NOW, "lease_1")
    assert isinstance(whole, NoMatch)
    assert whole.reasons == {"too_small": 1}
    part = directory.place(wants(600), "acc", frozenset(), NOW, "lease_2")
    assert not isinstance(part, NoMatch)
    assert (part.grant.share, part.grant.units_milli) == (600, 600)
    assert directory.free(made.id) == {gpu(0).uuid: 0}


def test_the_ceiling_is_the_longest_run_or_what_is_left_of_the_budget() -> None:
    assert begin()[1].ceiling == 60 * 5 + 1  # 60 s of one core at 5 lovelace, rounded up
    assert begin(price=Price(budget=100))[1].ceiling == 100


def test_nothing_left_of_the_budget_is_refused() -> None:
    job = posted()
    spent = replace(job, spent_before=job.parsed.price.budget)
    with pytest.raises(OverBudget):
        decide(spent, None, Matched(place(job), "lease_1", NOW), NOW)


def test_a_job_without_a_fresh_key_asks_for_one_and_holds_nothing() -> None:
    job = replace(posted(), session_vk=b"", retries=1)
    out = decide(job, None, Matched(place(job), "lease_1", NOW), NOW)
    assert (out.job.needs, out.lease, kinds(out)) == ("session_vk", None, ["NEEDS"])
    assert of(out, Release) == [Release("lease_1")]
    goes_on = decide(out.job, None, KeyBrought(b"k" * 32), NOW)
    assert (goes_on.job.needs, goes_on.job.session_vk) == ("", b"k" * 32)
    assert goes_on.effects == (Rematch(job.id),)
    assert decide(goes_on.job, None, KeyBrought(b"k" * 32), NOW) == Outcome(goes_on.job, None)
    spare = replace(job, spares=["05" * 32])
    assert begin_of(spare).job.session_vk == b"\x05" * 32


def begin_of(job):
    return decide(job, None, Matched(place(posted()), "lease_1", NOW), NOW)


def test_what_its_provider_never_starts_fails_and_frees_its_devices() -> None:
    job, lease = funded(secrets=("x",))
    assert after(job, lease, LATER, now=NOW + 5) == Outcome(job, lease)
    late = after(job, lease, LATER, now=NOW + 6)
    assert late.lease is not None
    assert (late.lease.state, late.lease.reason) == (LeaseState.ENDING, "START_FAILED")
    assert late.lease.secrets == {} and late.job.reason == "START_FAILED"
    assert of(late, Release) == [Release(lease.id)]
    assert of(late, Remember) == [Remember(Lapse.NEVER_STARTED)]
    told = Tell(lease.provider, wire.LeaseCancelled(lease.id, "START_FAILED"))
    assert of(late, Tell) == [told]


def test_what_never_starts_is_tried_elsewhere_where_the_policy_says_so() -> None:
    job, lease = funded(policy=Policy(60_000, retry_on=("start_failed",), retry_max=1))
    late = after(job, lease, LATER, now=NOW + 6)
    assert late.job.state is JobState.POSTED and of(late, Rematch) == [Rematch(job.id)]
    assert late.job.avoid == [lease.provider]


def test_a_decline_goes_back_and_avoids_the_provider() -> None:
    job, lease = begin()
    out = after(job, lease, Declined("BUSY", "no room"))
    assert out.lease is not None
    assert (out.lease.state, out.job.state) == (LeaseState.ENDED, JobState.POSTED)
    assert out.job.avoid == [lease.provider] and out.job.lease == ""
    assert out.effects[1:] == (Release(lease.id), Rematch(job.id))


def test_a_channel_that_is_over_is_left_out_and_its_provider_is_asked_again() -> None:
    """An idle channel was ended as its consumer had ordered: nobody let anybody down."""
    job, lease = begin()
    key, other = lease.session_vk.hex(), "cd" * 32
    job, lease = replace(job, channels=[key, other]), replace(lease, reused=True)
    out = after(job, lease, Declined("CHANNEL_OVER", "is over"))
    assert (out.job.avoid, out.job.channels) == ([], [other])
    assert out.effects[1:] == (Release(lease.id), Rematch(job.id))
    fresh = after(job, replace(lease, reused=False), Declined("CHANNEL_OVER", "is over"))
    assert (fresh.job.avoid, fresh.job.channels) == ([lease.provider], [key, other])


def test_a_decline_after_both_signed_is_a_start_that_failed() -> None:
    job, lease = leased(after(*funded(), Declined("DISK", "is full", 7)))
    assert (lease.state, lease.reason, lease.owed) == (LeaseState.ENDING, "START_FAILED", 7)
    assert job.message == "DISK: is full"


def test_what_is_still_being_cleared_up_is_asked_for_again_where_the_job_waits() -> None:
    job, lease = begin(policy=Policy(max_duration_ms=60_000, queue=True))
    taken = Declined("DEVICE_BUSY", "is taken")
    for tries in range(BUSY_TRIES):
        out = after(job, lease, taken)
        assert (out.job.avoid, out.job.busy) == ([], {lease.provider: tries + 1})
        assert pausing(out.job, NOW + 999) and not pausing(out.job, NOW + 1000)
        job = replace(out.job, lease=lease.id)
    assert after(job, lease, taken).job.avoid == [lease.provider]
    for queue, code in ((False, "DEVICE_BUSY"), (True, "PRICE_BELOW")):
        job, lease = begin(policy=Policy(max_duration_ms=60_000, queue=queue))
        out = after(job, lease, Declined(code, ""))
        assert (out.job.avoid, out.job.busy) == ([lease.provider], {})
        assert not pausing(out.job, NOW)


@pytest.mark.parametrize(
    ("policy", "retries", "told"),
    [
        (Policy(queue=True), 0, True),
        (Policy(), 0, False),
        (Policy(retry_on=("preempted",), retry_max=1), 0, False),
        (Policy(retry_on=("preempted",), retry_max=1), 1, True),
        (Policy(retry_on=("provider_lost",), retry_max=1), 1, False),
    ],
)
def test_who_waits_where_there_is_no_place(policy: Policy, retries: int, told: bool) -> None:
    job = replace(posted(policy=policy), retries=retries)
    assert waits(job) is told
    out = decide(job, None, Unmatched("none", {"text": "none"}), NOW)
    assert out.job.state is (JobState.QUEUED if told else JobState.ENDED)
    assert bool(of(out, Enqueue)) is told and bool(of(out, FreeBudget)) is not told


def test_why_a_job_without_a_place_ends() -> None:
    job = posted()
    with pytest.raises(NothingMatches) as refused:
        decide(job, None, Unmatched("none", {"text": "none"}, posting=True), NOW)
    assert refused.value.fields["explain"] == {"text": "none"}
    for changed, reason in (
        (job, "NO_MATCH"),
        (replace(job, avoid=["p"]), "DECLINED"),
        (replace(job, avoid=["p"], retries=1), "PROVIDER_LOST"),
    ):
        assert decide(changed, None, Unmatched("none", {}), NOW).job.reason == reason


def test_a_stop_of_what_waits_ends_it_and_it_leaves_the_queue() -> None:
    job, _ = at_stage("QUEUED", policy=Policy(queue=True))
    out = decide(job, None, Stop("CANCELLED"), NOW)
    assert (out.job.state, out.job.reason, kinds(out)) == (JobState.ENDED, "CANCELLED", ["ENDED"])
    assert of(out, LeaveQueue) and of(out, FreeBudget) == [FreeBudget(0)]


def test_a_lapsed_quote_ends_the_job_and_is_never_rematched() -> None:
    job, lease = quoted()
    assert after(job, lease, LATER, now=NOW + 1000) == Outcome(job, lease)
    out = after(job, lease, LATER, now=NOW + 1001)
    assert (out.job.state, out.job.reason) == (JobState.ENDED, "QUOTE_EXPIRED")
    assert not of(out, Rematch) and of(out, Release) == [Release(lease.id)]
    assert of(out, Tell) == [Tell(lease.provider, wire.LeaseCancelled(lease.id, "QUOTE_EXPIRED"))]
    assert of(out, Remember) == [Remember(Lapse.LET_LAPSE)]


def test_signing_uses_the_session_key_up_and_names_the_channel() -> None:
    job, lease = quoted()
    asked = signature(lease, payout_address="addr")
    out = after(job, lease, asked)
    job, lease = leased(out)
    assert (job.session_vk, job.state) == (b"", JobState.STARTING)
    kept = of(out, Keep)
    channel = Channel(lease.session_vk, "acc", lease.provider, lease.terms, "addr", NOW, "ab" * 32)
    assert kept == [Keep(channel)]
    assert isinstance(of(out, Tell)[0].message, wire.LeaseSigned)
    assert after(job, lease, asked) == Outcome(job, lease)  # said twice


def test_what_waits_for_its_turn_is_told_to_nobody_until_it_comes() -> None:
    job, lease = quoted()
    out = after(job, lease, signature(lease, waits=True))
    assert not of(out, Tell)
    its = after(out.job, out.lease, TurnCame())
    assert isinstance(of(its, Tell)[0].message, wire.LeaseSigned)
    missed = after(out.job, out.lease, TurnMissed())
    assert (missed.job.state, missed.job.reason) == (JobState.ENDING, "QUOTE_EXPIRED")
    assert of(missed, Tell) == [
        Tell(lease.provider, wire.LeaseCancelled(lease.id, "QUOTE_EXPIRED"))
    ]


def test_a_provider_that_was_not_told_is_not_blamed_for_what_lapses() -> None:
    job, lease = quoted()
    out = after(job, lease, signature(lease, waits=True))
    assert after(out.job, out.lease, LATER, now=NOW + 5) == Outcome(out.job, out.lease)
    late = after(out.job, out.lease, LATER, now=NOW + 6)
    assert late == after(out.job, out.lease, TurnMissed(), now=NOW + 6)
    assert late.job.reason == "QUOTE_EXPIRED" and not of(late, Remember)


def test_a_start_is_due_from_when_its_provider_was_told() -> None:
    job, lease = quoted()
    waits = after(job, lease, signature(lease, waits=True))
    job, lease = leased(after(waits.job, waits.lease, TurnCame(), now=NOW + 100))
    assert after(job, lease, LATER, now=NOW + 105) == Outcome(job, lease)
    out = after(job, lease, LATER, now=NOW + 106)
    assert out.job.reason == "START_FAILED" and of(out, Remember) == [Remember(Lapse.NEVER_STARTED)]


def test_the_secrets_are_dropped_at_the_start() -> None:
    _, lease = running(secrets=("x",))
    assert lease.secrets == {}


def test_a_loss_without_retry_ends_and_with_retry_looks_again() -> None:
    out = after(*running(), ProviderLost(40))
    assert (out.job.state, out.job.reason) == (JobState.ENDED, "PROVIDER_LOST")
    job, lease = running(policy=AGAIN)
    out = after(job, lease, ProviderLost(40))
    assert (out.job.state, out.job.spent_before) == (JobState.POSTED, 40)
    assert of(out, Rematch) and out.job.avoid == [lease.provider]
    used = replace(job, retries=1)
    assert after(used, lease, ProviderLost(40)).job.state is JobState.ENDED


def test_what_a_lost_provider_tells_late_counts_as_spent() -> None:
    job, lease = running(policy=AGAIN)
    # It is the job's own still: nothing is late.
    assert after(job, lease, LateReceipt(55)) == Outcome(job, lease)
    job, lease = leased(after(job, lease, ProviderLost(40)))
    assert (job.spent_before, lease.owed) == (40, 40)
    job, lease = leased(after(job, lease, LateReceipt(55)))
    assert (job.spent_before, lease.owed) == (55, 55)
    assert after(job, lease, LateReceipt(55)) == Outcome(job, lease)  # twice is once


def test_a_stop_wins_over_a_retry() -> None:
    job, lease = running(policy=AGAIN)
    out = after(job, lease, Stop("CANCELLED"))
    assert of(out, Tell) == [Tell(lease.provider, wire.StopAsked(lease.id, "CANCELLED"))]
    out = after(*leased(out), Exited("CANCELLED", "", 143, 40))
    assert not of(out, Rematch) and out.job.state is JobState.ENDING
    out = after(*leased(out), SETTLED)
    assert (out.job.state, out.job.reason) == (JobState.ENDED, "CANCELLED")


def test_finishing_twice_is_finishing_once() -> None:
    out = after(*running(), COMPLETED)
    again = after(*leased(out), Exited("FAILED", "", 1, 99))
    assert again == Outcome(out.job, out.lease)


def test_an_ended_lease_takes_nothing_more() -> None:
    out = after(*running(), COMPLETED, SETTLED)
    assert after(out.job, out.lease, SETTLED, Stop("CANCELLED"), Started()) == Outcome(
        out.job, out.lease
    )


@pytest.mark.parametrize(
    ("word", "unpaid", "reason", "told"),
    [
        ("UNPAID", True, "UNPAID", [Remember(Lapse.ENDED_UNPAID)]),
        ("UNPAID", False, "PROVIDER_FAULT", []),
        ("CHANNEL_REFUSED", False, "CHANNEL_REFUSED", []),
        ("CRASHED", False, "FAILED", []),
    ],
)
def test_an_end_is_held_against_who_is_to_blame(word, unpaid, reason, told) -> None:
    out = after(*running(), Exited(word, "", None, 40, unpaid))
    assert (out.job.reason, of(out, Remember)) == (reason, told)


def test_a_channel_that_was_never_there_is_a_lapse() -> None:
    out = after(*funded(), Exited("CHANNEL_REFUSED", "", None, 0))
    assert of(out, Remember) == [Remember(Lapse.LET_LAPSE)]


CHANNEL = Channel(b"", "acc", "p", b"", "", 0)
ENDS, PAID = replace(CHANNEL, end_signature=b"e"), replace(CHANNEL, settled_tx="cd" * 32)
GRACE, UNPAID, LOST = RULES.end_grace_ms, RULES.unpaid_grace_ms, RULES.lost_grace_ms


@pytest.mark.parametrize(
    ("channel", "owed", "answered", "least"),
    [
        (None, 40, None, 0),
        (PAID, 40, None, 0),
        (CHANNEL, 0, None, 0),
        (ENDS, 0, None, LOST),
        (CHANNEL, 40, 40, GRACE),
        (CHANNEL, 40, 39, UNPAID),
        (CHANNEL, 40, None, UNPAID),
        (ENDS, 40, 40, LOST),
        (ENDS, 40, None, LOST),
    ],
)
def test_when_nothing_is_due_any_more(channel, owed, answered, least) -> None:
    ending, asked = (
        leased(after(*running(), COMPLETED)),
        Accounted(RULES, owed, owed, answered, channel),
    )
    out = after(*ending, asked, now=NOW + least)
    assert out.lease is not None and out.lease.state is LeaseState.ENDED
    assert of(out, FreeBudget) == [FreeBudget(owed)]
    if least:
        early = after(*ending, asked, now=NOW + least - 1)
        assert (early.job, early.lease) == ending
        late = least > 5_000 and owed and answered != owed
        assert bool(of(early, Remember)) == bool(late)


def test_a_notice_tells_the_job_and_stops_nothing() -> None:
    job, lease = running()
    out = after(job, lease, NoticeGiven(NOW + 60_000))
    assert (out.lease, of(out, Tell)) == (lease, [])
    told = Story("NOTICE", {"reason": "PREEMPTED", "deadline_ms": NOW + 60_000})
    assert out.effects == (told,)
    assert (out.job.state, out.job.message[:24]) == (JobState.RUNNING, "a job of higher priority")
    back = after(out.job, lease, NoticeWithdrawn(), now=NOW + 1)
    assert (back.job.message, kinds(back)) == ("", ["NOTICE_WITHDRAWN"])


@pytest.mark.parametrize("stage", [state.name for state in LeaseState])
def test_only_what_runs_or_is_about_to_is_preempted(stage: str) -> None:
    job, lease = at_stage(stage)
    assert lease is not None
    out = after(job, lease, NoticeOver())
    if stage in ("FUNDED", "ACTIVE", "PAUSED"):
        job, gone = leased(out)
        assert (gone.state, gone.stop_asked) == (LeaseState.ENDING, "PREEMPTED")
        assert (job.state, job.reason) == (JobState.ENDING, "PREEMPTED")
        assert of(out, Tell) == [Tell(lease.provider, wire.StopAsked(lease.id, "PREEMPTED"))]
        assert after(job, gone, NoticeOver()) == Outcome(job, gone)
    else:
        assert out == Outcome(job, lease)
    withdrawn = after(*at_stage(stage), NoticeWithdrawn())
    assert kinds(withdrawn) == (["NOTICE_WITHDRAWN"] if lease.state in LIVE else [])


def test_a_preempted_job_begins_again_where_it_may_with_what_is_left() -> None:
    gone = Exited("PREEMPTED", "", 143, 40)
    out = after(*running(policy=AGAIN), NoticeOver(), gone)
    assert (out.job.state, out.job.spent_before) == (JobState.POSTED, 40)
    assert of(out, Rematch) == [Rematch("job_1")]
    # Its provider did nothing wrong, and its consumer is told why it waits until it has a new
    # place.
    assert (out.job.avoid, out.job.reason, out.job.retries) == ([], "PREEMPTED", 1)
    out = after(*running(), NoticeOver(), gone)
    assert (out.job.state, out.job.reason) == (JobState.ENDING, "PREEMPTED")
    assert not of(out, Rematch)


def test_a_stop_while_being_preempted_is_the_consumers_last_word() -> None:
    out = after(*running(policy=AGAIN), NoticeOver(), Stop("CANCELLED"))
    assert (out.job.reason, of(out, Tell)) == ("CANCELLED", [])
    out = after(*leased(out), Exited("PREEMPTED", "", 143, 40))
    assert (out.job.state, out.job.reason) == (JobState.ENDING, "CANCELLED")
    assert not of(out, Rematch)


def test_what_its_consumer_stopped_does_not_begin_again_for_a_providers_fault() -> None:
    again = replace(AGAIN, retry_on=("provider_fault",))
    out = after(*running(policy=again), Stop("CANCELLED"), Exited("PROVIDER_FAULT", "", None, 40))
    assert out.job.state is JobState.ENDING and not of(out, Rematch)


def test_only_the_market_preempts() -> None:
    job, lease = running()
    assert end_reason("PREEMPTED", lease) == "PROVIDER_FAULT"
    _, asked = leased(after(job, lease, NoticeOver()))
    assert end_reason("PREEMPTED", asked) == "PREEMPTED"
    assert end_reason("STOPPED", asked) == "PREEMPTED"
    assert end_reason("COMPLETED", asked) == "COMPLETED"


def test_what_is_about_a_lease_needs_one() -> None:
    with pytest.raises(NotFound):
        decide(posted(), None, Signed(b"", "", {}), NOW)
