"""The market's decisions about leases and jobs, pure: one fact a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain import canonical
from marketplace.domain.errors import IllegalTransition
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.job import GpuNeed, JobSpec, JobState, Policy, Price, Range, Resources
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.errors import OverBudget
from marketplace.market.base.records import Job, Lease, OfferRecord
from marketplace.market.core import decide
from marketplace.market.leases.adapters import end_reason
from marketplace.market.state.directory import Directory
from marketplace.matching import NoMatch
from tests.fakes import gpu, offer, seed, spec

NOW = 1_800_000_000_000


def begin(**more) -> tuple[Lease, Job]:
    """A proposed lease of *spec(**more)* and its job."""
    key, job_spec, directory = seed("provider"), spec(**more), Directory()
    made = offer(key)
    body = canonical.encode(made.to_wire())
    directory.set_offer(OfferRecord(made.id, made.provider, OfferState.LISTED, body, 0, 0, "p"))
    job = Job("job_1", "acc", "", "n", "job", job_spec.to_wire(), bytes(28), [], JobState.POSTED,
              0, 0, b"\x01" * 32)  # fmt: skip
    match = directory.place(job_spec, "acc", frozenset(), NOW, "lease_1")
    assert not isinstance(match, NoMatch)
    terms = decide.terms_of(job, job_spec, match, "lease_1", job.session_vk, NOW + 1000)
    job, lease = decide.proposed(job, match, terms, False, NOW)
    return lease, job


def running(**more) -> tuple[Lease, Job]:
    lease, job = begin(**more)
    out = decide.accepted(lease, job, b"s" * 64, NOW)
    out = decide.signed(out.lease, out.job, b"t" * 64, "ab" * 32, {}, NOW)
    out = decide.started(out.lease, out.job, NOW)
    assert (out.lease.state, out.job.state) == (LeaseState.ACTIVE, JobState.RUNNING)
    return out.lease, out.job


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
    lease, _ = begin()
    assert lease.ceiling == 60 * 5 + 1  # 60 s of one core at 5 lovelace, rounded up
    lease, _ = begin(price=Price(budget=100))
    assert lease.ceiling == 100


def test_nothing_left_of_the_budget_is_refused() -> None:
    _, job = begin()
    spent = replace(job, spent_before=job.parsed.price.budget)
    directory = Directory()
    made = offer(seed("provider"))
    body = canonical.encode(made.to_wire())
    directory.set_offer(OfferRecord(made.id, made.provider, OfferState.LISTED, body, 0, 0, "p"))
    match = directory.quote(job.parsed, "acc", frozenset(), NOW)
    assert not isinstance(match, NoMatch)
    with pytest.raises(OverBudget):
        decide.terms_of(spent, job.parsed, match, "l", bytes(32), NOW)


def test_what_its_provider_never_starts_fails_and_frees_its_devices() -> None:
    lease, job = begin()
    out = decide.accepted(lease, job, b"s" * 64, NOW)
    out = decide.signed(out.lease, out.job, b"t" * 64, "ab" * 32, {"x": "00"}, NOW)
    early = decide.unstarted(out.lease, out.job, NOW, NOW + 5)
    assert early.lease.state is LeaseState.FUNDED and not early.sends
    late = decide.unstarted(out.lease, out.job, NOW + 1, NOW + 5)
    assert (late.lease.state, late.lease.reason) == (LeaseState.ENDING, "START_FAILED")
    assert late.released and late.lease.secrets == {} and late.job.reason == "START_FAILED"
    assert late.sends == [wire.LeaseCancelled(lease.id, "START_FAILED")]


def test_what_never_starts_is_tried_elsewhere_where_the_policy_says_so() -> None:
    lease, job = begin(policy=Policy(60_000, retry_on=("start_failed",), retry_max=1))
    out = decide.accepted(lease, job, b"s" * 64, NOW)
    out = decide.signed(out.lease, out.job, b"t" * 64, "ab" * 32, {}, NOW)
    late = decide.unstarted(out.lease, out.job, NOW + 1, NOW + 5)
    assert late.rematch and late.job.state is JobState.POSTED
    assert late.job.avoid == [lease.provider]


def test_a_decline_goes_back_and_avoids_the_provider() -> None:
    lease, job = begin()
    out = decide.declined(lease, job, "BUSY", "no room", NOW)
    assert (out.lease.state, out.job.state, out.rematch) == (
        LeaseState.ENDED,
        JobState.POSTED,
        True,
    )
    assert out.job.avoid == [lease.provider] and out.job.lease == "" and out.released


def test_what_is_still_being_cleared_up_is_asked_for_again_where_the_job_waits() -> None:
    lease, job = begin(policy=Policy(max_duration_ms=60_000, queue=True))
    for tries in range(decide.BUSY_TRIES):
        out = decide.declined(lease, job, "DEVICE_BUSY", "is taken", NOW)
        assert lease.provider not in out.job.avoid and len(out.job.avoid) == tries + 1
        assert decide.pausing(out.job, NOW + 999) and not decide.pausing(out.job, NOW + 1000)
        job = replace(out.job, lease=lease.id)
    out = decide.declined(lease, job, "DEVICE_BUSY", "is taken", NOW)
    assert out.job.avoid[-1] == lease.provider
    for queue, code in ((False, "DEVICE_BUSY"), (True, "PRICE_BELOW")):
        lease, job = begin(policy=Policy(max_duration_ms=60_000, queue=queue))
        out = decide.declined(lease, job, code, "", NOW)
        assert out.job.avoid == [lease.provider] and not decide.pausing(out.job, NOW)


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
    _, job = begin(policy=policy)
    assert decide.waits(replace(job, retries=retries)) is told


def test_a_lapsed_quote_ends_the_job_and_is_never_rematched() -> None:
    lease, job = begin()
    out = decide.accepted(lease, job, b"s" * 64, NOW)
    out = decide.lapsed(out.lease, out.job, NOW)
    assert (out.job.state, out.job.reason, out.rematch) == (JobState.ENDED, "QUOTE_EXPIRED", False)
    assert out.released and isinstance(out.sends[0], wire.LeaseCancelled)


def test_signing_uses_the_session_key_up() -> None:
    lease, job = running()
    assert job.session_vk == b"" and lease.secrets == {}


def test_a_loss_without_retry_ends_and_with_retry_looks_again() -> None:
    out = decide.lost(*running(), 40, NOW)
    assert (out.job.state, out.job.reason) == (JobState.ENDED, "PROVIDER_LOST")
    again = Policy(max_duration_ms=60_000, retry_on=("provider_lost",), retry_max=1)
    lease, job = running(policy=again)
    out = decide.lost(lease, job, 40, NOW)
    assert (out.job.state, out.job.spent_before, out.rematch) == (JobState.POSTED, 40, True)
    assert out.job.avoid == [lease.provider]
    used = replace(job, retries=1)
    assert decide.lost(lease, used, 40, NOW).job.state is JobState.ENDED


def test_what_a_lost_provider_tells_late_counts_as_spent() -> None:
    lease, job = running(policy=Policy(retry_on=("provider_lost",), retry_max=1))
    same = decide.late(lease, job, 55, NOW)
    assert (same.lease, same.job) == (lease, job)  # it is the job's own still: nothing is late
    gone = decide.lost(lease, job, 40, NOW)
    assert (gone.job.spent_before, gone.lease.owed) == (40, 40)
    told = decide.late(gone.lease, gone.job, 55, NOW)
    assert (told.job.spent_before, told.lease.owed) == (55, 55)
    again = decide.late(told.lease, told.job, 55, NOW)
    assert (again.lease, again.job) == (told.lease, told.job)  # twice is once


def test_a_stop_wins_over_a_retry() -> None:
    again = Policy(max_duration_ms=60_000, retry_on=("provider_lost",), retry_max=3)
    lease, job = running(policy=again)
    out = decide.stop(lease, job, "CANCELLED", NOW)
    assert isinstance(out.sends[0], wire.StopAsked)
    out = decide.finished(out.lease, out.job, "CANCELLED", "", 143, 40, NOW)
    assert not out.rematch and out.job.state is JobState.ENDING
    out = decide.settled(out.lease, out.job, "", NOW)
    assert (out.job.state, out.job.reason) == (JobState.ENDED, "CANCELLED")


def test_finishing_twice_is_finishing_once() -> None:
    out = decide.finished(*running(), "COMPLETED", "", 0, 40, NOW)
    again = decide.finished(out.lease, out.job, "FAILED", "", 1, 99, NOW)
    assert (again.lease, again.job, again.kind) == (out.lease, out.job, "")


def test_an_ended_lease_takes_nothing_more() -> None:
    out = decide.finished(*running(), "COMPLETED", "", 0, 40, NOW)
    out = decide.settled(out.lease, out.job, "cd" * 32, NOW)
    with pytest.raises(IllegalTransition):
        decide.settled(out.lease, out.job, "cd" * 32, NOW)


def test_a_notice_tells_the_job_and_stops_nothing() -> None:
    lease, job = running()
    out = decide.noticed(lease, job, NOW + 60_000, NOW)
    assert (out.lease, out.sends, out.kind) == (lease, [], "NOTICE")
    assert out.detail == {"reason": "PREEMPTED", "deadline_ms": NOW + 60_000}
    assert (out.job.state, out.job.message[:24]) == (JobState.RUNNING, "a job of higher priority")
    back = decide.notice_withdrawn(lease, out.job, NOW + 1)
    assert (back.job.message, back.kind) == ("", "NOTICE_WITHDRAWN")


STAGES = ("PROPOSED", "OFFERED", "FUNDED", "ACTIVE", "PAUSED", "ENDING", "ENDED")


@pytest.mark.parametrize("stage", STAGES)
def test_only_what_runs_or_is_about_to_is_preempted(stage: str) -> None:
    lease, job = at_stage(stage)
    out = decide.preempted(lease, job, NOW)
    if stage in ("FUNDED", "ACTIVE", "PAUSED"):
        assert (out.lease.state, out.lease.stop_asked) == (LeaseState.ENDING, "PREEMPTED")
        assert (out.job.state, out.job.reason) == (JobState.ENDING, "PREEMPTED")
        assert out.sends == [wire.StopAsked(lease.id, "PREEMPTED")]
        assert decide.preempted(out.lease, out.job, NOW) == decide.Outcome(out.lease, out.job)
    else:
        assert out == decide.Outcome(lease, job)
    assert decide.notice_withdrawn(lease, job, NOW).kind == (
        "NOTICE_WITHDRAWN" if lease.state in decide.LIVE else ""
    )


def at_stage(stage: str) -> tuple[Lease, Job]:
    """A lease in this state, brought there by what brings it there, and its job."""
    if stage == "PROPOSED":
        return begin()
    out = decide.accepted(*begin(), b"s" * 64, NOW)
    if stage == "OFFERED":
        return out.lease, out.job
    out = decide.signed(out.lease, out.job, b"t" * 64, "ab" * 32, {}, NOW)
    if stage == "FUNDED":
        return out.lease, out.job
    out = decide.started(out.lease, out.job, NOW)
    if stage == "PAUSED":
        out = decide.paused(out.lease, out.job, "no voucher", NOW)
    if stage in ("ENDING", "ENDED"):
        out = decide.finished(out.lease, out.job, "COMPLETED", "", 0, 5, NOW)
    if stage == "ENDED":
        out = decide.settled(out.lease, out.job, "", NOW)
    assert out.lease.state.name == stage
    return out.lease, out.job


def test_a_preempted_job_begins_again_where_it_may_with_what_is_left() -> None:
    again = Policy(max_duration_ms=60_000, retry_on=("preempted",), retry_max=1)
    out = decide.preempted(*running(policy=again), NOW)
    out = decide.finished(out.lease, out.job, "PREEMPTED", "", 143, 40, NOW)
    assert (out.job.state, out.job.spent_before, out.rematch) == (JobState.POSTED, 40, True)
    # Its provider did nothing wrong, and its consumer is told why it waits until it has a new place.
    assert (out.job.avoid, out.job.reason, out.job.retries) == ([], "PREEMPTED", 1)
    lease, job = running(policy=replace(again, retry_max=0, retry_on=()))
    out = decide.preempted(lease, job, NOW)
    out = decide.finished(out.lease, out.job, "PREEMPTED", "", 143, 40, NOW)
    assert (out.job.state, out.job.reason, out.rematch) == (JobState.ENDING, "PREEMPTED", False)


def test_a_stop_while_being_preempted_is_the_consumers_last_word() -> None:
    again = Policy(max_duration_ms=60_000, retry_on=("preempted",), retry_max=1)
    out = decide.preempted(*running(policy=again), NOW)
    out = decide.stop(out.lease, out.job, "CANCELLED", NOW)
    assert (out.job.reason, out.sends) == ("CANCELLED", [])
    out = decide.finished(out.lease, out.job, "PREEMPTED", "", 143, 40, NOW)
    assert (out.job.state, out.job.reason, out.rematch) == (JobState.ENDING, "CANCELLED", False)


def test_what_its_consumer_stopped_does_not_begin_again_for_a_providers_fault() -> None:
    again = Policy(max_duration_ms=60_000, retry_on=("provider_fault",), retry_max=1)
    out = decide.stop(*running(policy=again), "CANCELLED", NOW)
    out = decide.finished(out.lease, out.job, "PROVIDER_FAULT", "", None, 40, NOW)
    assert (out.job.state, out.rematch) == (JobState.ENDING, False)


def test_only_the_market_preempts() -> None:
    lease, job = running()
    assert end_reason({"reason": "PREEMPTED"}, lease) == "PROVIDER_FAULT"
    asked = decide.preempted(lease, job, NOW).lease
    assert end_reason({"reason": "PREEMPTED"}, asked) == "PREEMPTED"
    assert end_reason({"reason": "STOPPED"}, asked) == "PREEMPTED"
    assert end_reason({"reason": "COMPLETED"}, asked) == "COMPLETED"
