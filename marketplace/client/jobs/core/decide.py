"""What becomes of one job at its consumer.  Pure.

``decide(state, given, now) -> Outcome(state, effects)``. Any input may come in any stage, late or
twice: what does not fit where the job stands changes nothing. The market's view says where the job
is; what is signed and paid is said by the own books alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from marketplace.client.jobs.core.effects import (
    Agree,
    Ask,
    Bury,
    Decline,
    Effect,
    Examine,
    ForgetKeys,
    Look,
    LookAtChannel,
    LookAtLease,
    Outcome,
    Post,
    Report,
    ResumeWithFreshKey,
    TakeUpKept,
    Wait,
)
from marketplace.client.jobs.core.inputs import (
    Agreed,
    Answered,
    ChannelLooked,
    Checked,
    Heard,
    Input,
    LeaseSeen,
    NotPosted,
    Posted,
    TimePassed,
    Unfit,
    Viewed,
    Wanted,
)
from marketplace.client.jobs.core.quotes import CheckedQuote, Quote, QuoteRefused
from marketplace.client.jobs.core.stage import CONSUMER, Stage, StageEvent
from marketplace.client.jobs.core.state import State
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason

_SOON_MS, _SELDOM_MS = 500, 2000
_TELLING: Final = frozenset({"stage", "final"})
_GIVEN_UP: Final = frozenset({EndReason.PROVIDER_LOST, EndReason.QUOTE_EXPIRED, EndReason.DECLINED})
_EVENTS: Final = {
    JobState.POSTED: StageEvent.REMATCHED,
    JobState.QUEUED: StageEvent.REMATCHED,
    JobState.QUOTED: StageEvent.REMATCHED,  # as long as no quote is shown
    JobState.STARTING: StageEvent.SERVED,
    JobState.RUNNING: StageEvent.SERVED,
    JobState.PAUSED: StageEvent.SERVED,
    JobState.ENDING: StageEvent.SERVED,
    JobState.ENDED: StageEvent.ENDED,
}


def decide(state: State, given: Input, now_ms: int) -> Outcome:
    """What *given* makes of the job at *now_ms* (UTC)."""
    outcome = _decided(state, given, now_ms)
    after = outcome.state
    if after.stage is Stage.ENDING and all(channel.home for channel in after.channels):
        return Outcome(_step(after, StageEvent.HOME), outcome.effects)
    return outcome


def _decided(state: State, given: Input, now_ms: int) -> Outcome:
    match given:
        case Wanted() | Posted() | NotPosted():
            return _posting(state, given)
        case Viewed():
            return _viewed(state, given)
        case Checked(offered):
            return _checked(state, offered, now_ms)
        case Unfit():
            return _unfit(state, given)
        case Answered():
            return _answered(state, given, now_ms)
        case Agreed(lease):
            if state.stage is not Stage.AGREEING or _asked(state) != lease:
                return Outcome(state)
            return Outcome(replace(_step(state, StageEvent.SERVED), asks=False))
        case LeaseSeen():
            return _lease_seen(state, given)
        case Heard(kind):
            return Outcome(state, (Look(),) if kind in _TELLING and _living(state) else ())
        case TimePassed():
            return _time_passed(state)
        case ChannelLooked():
            return Outcome(state)


def _posting(state: State, given: Wanted | Posted | NotPosted) -> Outcome:
    if state.stage is not Stage.UNPOSTED:
        return Outcome(state)
    match given:
        case Wanted():
            return Outcome(state, (TakeUpKept(), Post()))
        case Posted(member):
            return Outcome(replace(_step(state, StageEvent.POSTED), asks=True, member=member))
        case NotPosted():
            return Outcome(_step(state, StageEvent.REFUSED), (ForgetKeys(),))


# ---- the market's view ---------------------------------------------------------------------------


def _viewed(state: State, seen: Viewed) -> Outcome:
    if not _living(state):
        return Outcome(state)
    living = "" if seen.state is JobState.ENDED else seen.lease
    given_up = [LookAtLease(one.lease) for one in state.leases()
                if not one.over and one.lease != living]  # fmt: skip
    after, effects = _moved(state, seen)
    looks = [LookAtChannel(channel.session_vk) for channel in state.channels]
    runs = seen.state in (JobState.RUNNING, JobState.PAUSED)
    pause = Wait(_SELDOM_MS if runs else _SOON_MS)
    return Outcome(after, (*given_up, *effects, *looks, pause))


def _moved(state: State, seen: Viewed) -> tuple[State, tuple[Effect, ...]]:
    if seen.state is None:
        return state, ()
    if seen.state is JobState.QUOTED and seen.quote is not None:
        return _quoted(state, seen.quote)
    if seen.state is JobState.QUOTED and seen.unreadable is not None:
        declined = (Decline(seen.lease),) if state.asks and not state.member else ()
        return _step(state, StageEvent.REMATCHED), (*declined, Report(seen.unreadable))
    after = _step(state, _EVENTS[seen.state])
    return after, (ResumeWithFreshKey(),) if seen.needs_key else ()


def _quoted(state: State, quote: Quote) -> tuple[State, tuple[Effect, ...]]:
    """Only a job that has paid before, whose terms this purse signed, or whose first quote somebody
    here answers is agreed to here.
    """
    if quote.terms.lease in state.refused:
        return state, () if state.member else (Decline(quote.terms.lease),)
    if not state.asks and not state.channels:
        return _step(state, StageEvent.REMATCHED), ()
    return replace(_step(state, StageEvent.QUOTED), quote=quote, offered=None), (Examine(quote),)


# ---- the answer to a quote -----------------------------------------------------------------------


def _checked(state: State, offered: CheckedQuote, now_ms: int) -> Outcome:
    if state.stage is not Stage.ASKED or state.quote is None:
        return Outcome(state)
    if offered.quote.signed.body != state.quote.signed.body:
        return Outcome(state)  # of another quote, which stood here before
    known = replace(state, offered=offered)
    if state.asks:
        return Outcome(known, (Ask(offered),))
    return _agree(known, offered, now_ms)


def _answered(state: State, given: Answered, now_ms: int) -> Outcome:
    offered = state.offered
    if state.stage is not Stage.ASKED or offered is None or _asked(state) != given.lease:
        if not given.yes:  # whatever stands now: that one is not agreed to when it comes again
            return Outcome(replace(state, refused=state.refused | {given.lease}))
        known = any(one.lease == given.lease for one in state.leases())
        return Outcome(state, () if known else (Report(_gone(given.lease)),))
    if not given.yes:
        return _declined(state)
    return _agree(state, offered, now_ms)


def _agree(state: State, offered: CheckedQuote, now_ms: int) -> Outcome:
    terms = offered.quote.terms
    if terms.expires_at_ms <= now_ms:
        refusal = QuoteRefused(f"lease {terms.lease}: it has expired", lease=terms.lease)
        return _unfit(state, Unfit(terms.lease, refusal, ours=True))
    return Outcome(_step(state, StageEvent.AGREED), (Agree(offered),))


def _unfit(state: State, given: Unfit) -> Outcome:
    """Whoever was asked hears of it; a rule's answer is no where the quote or the job is at
    fault.
    """
    if state.stage not in (Stage.ASKED, Stage.AGREEING) or _asked(state) != given.lease:
        return Outcome(state)
    report = Report(given.refusal)
    if not state.asks and not given.ours:
        return Outcome(_step(state, StageEvent.DECLINED), (report,))
    outcome = _declined(state)
    return Outcome(outcome.state, (*outcome.effects, report)) if state.asks else outcome


def _declined(state: State) -> Outcome:
    lease = _asked(state)
    after = replace(_step(state, StageEvent.DECLINED), refused=state.refused | {lease})
    return Outcome(after, () if state.member else (Decline(lease),))


def _gone(lease: str) -> QuoteRefused:
    return QuoteRefused(f"lease {lease}: its quote does not stand any more", lease=lease)


# ---- what is over --------------------------------------------------------------------------------


def _lease_seen(state: State, given: LeaseSeen) -> Outcome:
    counts = any(one.lease == given.lease and not one.over for one in state.leases())
    if not counts or not (given.ended or given.reason in _GIVEN_UP):
        return Outcome(state)
    return Outcome(state, (Bury(given.lease, given.reason == EndReason.PROVIDER_LOST),))


def _time_passed(state: State) -> Outcome:
    if _living(state):
        return Outcome(state, (Look(),))
    if state.stage is not Stage.ENDING:
        return Outcome(state)
    late = [LookAtLease(one.lease) for one in state.leases() if not one.over]
    looks = [LookAtChannel(one.session_vk) for one in state.channels if not one.home]
    return Outcome(state, (*late, *looks, Wait(_SOON_MS)))


def _living(state: State) -> bool:
    """The market's view still moves it."""
    return CONSUMER.accepts(state.stage, StageEvent.ENDED)


def _asked(state: State) -> str:
    return state.quote.terms.lease if state.quote is not None else ""


def _step(state: State, event: StageEvent) -> State:
    return replace(state, stage=CONSUMER.step(state.stage, event))
