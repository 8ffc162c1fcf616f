"""Jobs and leases brought to each state by the inputs that bring them there."""

from __future__ import annotations

from typing import Any, TypeVar

from marketplace.domain import canonical
from marketplace.domain.keys import Signer
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.records import Job, Lease, OfferRecord
from marketplace.market.base.settings import Settings
from marketplace.market.core.decide import decide
from marketplace.market.core.inputs import (
    Accepted,
    Accounted,
    Exited,
    Input,
    Matched,
    Paused,
    RenewalAsked,
    Signed,
    Started,
    Stop,
    Unmatched,
)
from marketplace.market.core.outcome import Outcome, Story
from marketplace.market.state.directory import Directory
from marketplace.market.state.match import Match
from marketplace.matching import NoMatch
from tests.fakes import offer, seed, spec

NOW = 1_800_000_000_000
RULES = Settings()
PROVIDER, SESSION = seed("provider"), Signer(b"\x07" * 32)


def directory() -> Directory:
    """One provider with one host."""
    listed, made = Directory(), offer(PROVIDER)
    body = canonical.encode(made.to_wire())
    listed.set_offer(OfferRecord(made.id, made.provider, OfferState.LISTED, body, 0, 0, "p"))
    return listed


def posted(**more: Any) -> Job:
    """A new job of *spec(**more)* with a session key."""
    return Job("job_1", "acc", "", "n", "job", spec(**more).to_wire(), bytes(28), [],
               JobState.POSTED, 0, 0, SESSION.verify_key)  # fmt: skip


def place(job: Job) -> Match:
    """Where it would go."""
    found = directory().quote(job.parsed, job.account, frozenset(), NOW)
    assert not isinstance(found, NoMatch)
    return found


def after(job: Job, lease: Lease | None, *asked: Input, now: int = NOW) -> Outcome:
    """The outcome of the last of *asked*."""
    out = Outcome(job, lease)
    for one in asked:
        out = decide(out.job, out.lease, one, now)
    return out


def leased(out: Outcome) -> tuple[Job, Lease]:
    """Both records; there must be a lease."""
    assert out.lease is not None
    return out.job, out.lease


def begin(**more: Any) -> tuple[Job, Lease]:
    """A job whose provider was asked, and the lease that it was asked for."""
    job = posted(**more)
    return leased(decide(job, None, Matched(place(job), "lease_1", NOW + 1000), NOW))


def quoted(**more: Any) -> tuple[Job, Lease]:
    """The adapter signed."""
    job, lease = begin(**more)
    return leased(decide(job, lease, Accepted(lease.terms, PROVIDER.sign(lease.terms)), NOW))


def signature(lease: Lease, **more: Any) -> Signed:
    """The consumer's signature under *lease*."""
    return Signed(SESSION.sign(lease.terms), "ab" * 32, more.pop("secrets", {}), **more)


def funded(waits: bool = False, **more: Any) -> tuple[Job, Lease]:
    """Both signed."""
    job, lease = quoted(**more)
    sealed = dict.fromkeys(job.parsed.secrets, b"\0")
    return leased(decide(job, lease, signature(lease, waits=waits, secrets=sealed), NOW))


def running(**more: Any) -> tuple[Job, Lease]:
    """The workload runs."""
    return leased(after(*funded(**more), Started()))


RENEWAL = RenewalAsked(60_000, 100, NOW + 1000)
COMPLETED = Exited("COMPLETED", "", 0, 40)


def at_stage(stage: str, **more: Any) -> tuple[Job, Lease | None]:
    """A job (and its lease) that stands there."""
    match stage:
        case "POSTED":
            return posted(**more), None
        case "QUEUED":
            return decide(posted(**more), None, Unmatched("no place", {}), NOW).job, None
        case "NO_LEASE_ENDED":
            return decide(posted(**more), None, Stop("CANCELLED"), NOW).job, None
        case "PROPOSED":
            return begin(**more)
        case "OFFERED":
            return quoted(**more)
        case "FUNDED":
            return funded(**more)
        case "IN_LINE":
            return funded(waits=True, **more)
        case "ACTIVE":
            return running(**more)
        case "PAUSED":
            return leased(after(*running(**more), Paused("no voucher")))
        case "RENEWAL_ASKED":
            return leased(after(*running(**more), RENEWAL))
        case "RENEWAL_QUOTED":
            job, lease = leased(after(*running(**more), RENEWAL))
            return leased(after(job, lease, Accepted(lease.renewal, PROVIDER.sign(lease.renewal))))
        case "STOPPING":
            return leased(after(*running(**more), Stop("CANCELLED")))
        case "ENDING":
            return leased(after(*running(**more), COMPLETED))
        case "ENDED":
            return leased(after(*running(**more), COMPLETED, SETTLED))
        case _:
            raise AssertionError(stage)


E = TypeVar("E")
SETTLED = Accounted(RULES, 40, 40, 40, None)
STAGES = ("POSTED", "QUEUED", "NO_LEASE_ENDED", "PROPOSED", "OFFERED", "FUNDED", "IN_LINE", "ACTIVE",
          "PAUSED", "RENEWAL_ASKED", "RENEWAL_QUOTED", "STOPPING", "ENDING", "ENDED")  # fmt: skip


def kinds(out: Outcome) -> list[str]:
    """What is told in the job's story."""
    return [effect.kind for effect in out.effects if isinstance(effect, Story)]


def of(out: Outcome, kind: type[E]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in out.effects if isinstance(effect, kind)]
