"""Every input to a gang in every state, and what is to be done then: rows for the table of
decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from marketplace.domain.errors import TallyError
from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.parts import Policy
from marketplace.market.base.records import Gang, Job
from marketplace.market.core.gang import decide_gang
from marketplace.market.core.inputs import AllMatched, GangInput, Looked, Matched, Stop, Unmatched
from marketplace.market.core.reconcile import End, Move, Place, Replace, Wait, reconcile, wanted
from tests.unit.support.decisions import NOW, at_stage, place, posted

FRESH: Final = replace(posted(policy=Policy(max_duration_ms=60_000)), gang="gang_1")
ASKED: Final = replace(FRESH, lease="lease_1", provider="p")
RUNNING: Final = replace(ASKED, state=JobState.RUNNING)
COMPLETED: Final = replace(ASKED, state=JobState.ENDED, reason="COMPLETED")
DECLINED: Final = replace(FRESH, avoid=["p"])
UNSTARTED: Final = replace(ASKED, state=JobState.ENDING, reason="START_FAILED")
LOST: Final = replace(ASKED, state=JobState.ENDED, reason="PROVIDER_LOST")
MISSED: Final = replace(FRESH, retries=1, avoid=["p"])
"""A cluster's member that was lost and looks for another place."""
STOPPED: Final = replace(FRESH, state=JobState.ENDED, reason="CANCELLED")

WAITS: Final = replace(
    FRESH, spec={**FRESH.spec, "policy": {**FRESH.spec["policy"], "queue": True}}
)
"""A member of a gang that may wait."""
QUEUED: Final = replace(WAITS, state=JobState.QUEUED)
BUSY: Final = replace(WAITS, busy={"p": 1})
"""One whose place was not free yet."""

STANDS: Final[dict[str, list[Job]]] = {
    "fresh": [FRESH, FRESH],
    "may wait": [WAITS, WAITS],
    "waiting": [QUEUED, QUEUED],
    "one waiting stopped": [STOPPED, QUEUED],
    "one to ask again": [BUSY, replace(WAITS, lease="lease_1", provider="p")],
    "one stopped": [STOPPED, FRESH],
    "asked": [ASKED, ASKED],
    "running": [RUNNING, RUNNING],
    "one declined": [DECLINED, ASKED],
    "all declined": [DECLINED, DECLINED],
    "one unstarted": [RUNNING, UNSTARTED],
    "one lost": [LOST, RUNNING],
    "one done": [COMPLETED, RUNNING],
    "done": [COMPLETED, COMPLETED],
    "one done one lost": [COMPLETED, LOST],
    "one to replace": [MISSED, RUNNING],
    "both to replace": [MISSED, MISSED],
    "a key to bring": [replace(MISSED, needs="session_vk"), RUNNING],
    "one replaced": [replace(RUNNING, retries=1), RUNNING],
    "one lost again": [replace(LOST, retries=3), RUNNING],
}


def inputs() -> dict[str, GangInput]:
    """Each input, by what it is called in the table."""
    match = Matched(place(FRESH), "lease_2", NOW + 1000)
    return {
        "AllMatched": AllMatched((match, match)),
        "Unmatched": Unmatched("no place", {}),
        "Unmatched posting": Unmatched("no place", {}, posting=True),
        "Stop": Stop("CANCELLED"),
        "Looked": Looked(),
    }


def numbered(jobs: list[Job]) -> list[Job]:
    """A name for each."""
    return [replace(job, id=f"job_{at}") for at, job in enumerate(jobs)]


def gang(state: GangState) -> Gang:
    """One that stands there."""
    why = "MEMBER_ENDED" if state in (GangState.ENDING, GangState.ENDED) else ""
    return Gang("gang_1", "acc", state, why)


def row(before: Gang, members: list[Job], asked: GangInput) -> str:
    """What becomes of it and its members, then what the reconciler has to do."""
    try:
        out = decide_gang(before, members, asked, NOW)
    except TallyError as refusal:
        return f"refused {refusal.code}"
    stands = "stays" if out.gang == before else f"{out.gang.state.name} {out.gang.reason}".rstrip()
    jobs = [one.job for one in out.members] or members
    became = " ".join(_stands(one.job) for one in out.members)
    moves = reconcile(wanted(out.gang), jobs, NOW)
    return "; ".join(one for one in (stands, became, " ".join(map(_words, moves))) if one)


def _stands(job: Job) -> str:
    return f"{job.id}={job.state.name}" + ("+lease" if job.lease else "")


def _words(move: Move) -> str:
    match move:
        case Place(jobs):
            return f"Place({','.join(job.id for job in jobs)})"
        case Replace(job):
            return f"Replace({job.id})"
        case Wait(jobs):
            return f"Wait({','.join(job.id for job in jobs)})"
        case End(job, reason):
            return f"End({job.id},{reason})"


def gang_lines() -> Iterator[str]:
    """The rows: gangs, then jobs alone."""
    for state in GangState:
        for stands, members in STANDS.items():
            for name, asked in inputs().items():
                told = row(gang(state), numbered(members), asked)
                yield f"gang  {state.name:<7} {stands:<18} {name:<18} {told}"
    waits = Policy(max_duration_ms=60_000, queue=True)
    for stage in ("POSTED", "QUEUED", "NO_LEASE_ENDED", "PROPOSED", "ACTIVE", "STOPPING", "ENDED"):
        job, _ = at_stage(stage, policy=waits)
        moves = reconcile(wanted(job), (job,), NOW)
        yield f"alone {stage:<15} {' '.join(map(_words, moves)) or 'nothing'}"
