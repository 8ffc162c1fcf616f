"""Every input meets every state: each pair is a change, nothing, or a refusal with a code, and
pinned.

``TALLY_WRITE_GOLDEN=1`` writes the table anew; its diff is reviewed as behaviour.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from marketplace.domain.errors import Refusal
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.parts import Policy
from marketplace.market.base.records import Channel, Job, Lease
from marketplace.market.core.decide import decide
from marketplace.market.core.ending import HOLDING
from marketplace.market.core.inputs import (
    Accepted,
    Accounted,
    Declined,
    Exhausted,
    Exited,
    Input,
    KeyBrought,
    LateReceipt,
    Matched,
    NoticeGiven,
    NoticeOver,
    NoticeWithdrawn,
    Passed,
    Paused,
    ProviderLost,
    Reconnected,
    RenewalSigned,
    Resumed,
    RoomBegun,
    Signed,
    StageSeen,
    Started,
    Stop,
    TurnCame,
    TurnMissed,
    Unmatched,
)
from marketplace.market.core.outcome import (
    Effect,
    FreeBudget,
    Keep,
    Outcome,
    Release,
    Rematch,
    Remember,
    Say,
    Story,
    Tell,
)
from tests.unit.support.decided_gangs import gang_lines
from tests.unit.support.decisions import (
    NOW,
    PROVIDER,
    RENEWAL,
    RULES,
    SESSION,
    STAGES,
    at_stage,
    leased,
    of,
    place,
    posted,
    signature,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "decisions.txt"
REASONS = ("provider_lost", "provider_fault", "start_failed", "preempted")
POLICIES = {
    "once": Policy(max_duration_ms=60_000),
    "again": Policy(max_duration_ms=60_000, retry_on=REASONS, retry_max=2, queue=True),
}
ENDS = Channel(b"", "acc", "p", b"", "", 0, end_signature=b"e")


def inputs(lease: Lease | None) -> dict[str, Input]:
    """Each input, by what it is called in the table; what is signed is signed right."""
    terms = lease.terms if lease is not None else b""
    sign = PROVIDER.sign(terms)
    longer = lease.renewal if lease is not None else b""
    return {
        "Matched": Matched(place(posted()), "lease_2", NOW + 1000),
        "Unmatched": Unmatched("no place", {}),
        "Unmatched posting": Unmatched("no place", {}, posting=True),
        "Exhausted": Exhausted("spent"),
        "KeyBrought": KeyBrought(b"k" * 32),
        "RoomBegun": RoomBegun({}),
        "Accepted": Accepted(terms, sign),
        "Accepted others": Accepted(b"other", sign),
        "Accepted forged": Accepted(terms, bytes(64)),
        "Declined": Declined("PRICE_BELOW", "no", 40),
        "Declined busy": Declined("DEVICE_BUSY", "no", 40),
        "Signed": signature(lease) if lease is not None else Signed(b"", "", {}),
        "Signed waits": signature(lease, waits=True) if lease is not None else Signed(b"", "", {}),
        "Signed forged": Signed(bytes(64), "ab" * 32, {}),
        "RenewalAsked": RENEWAL,
        "RenewalAccepted": Accepted(longer, PROVIDER.sign(longer)),
        "RenewalAccepted forged": Accepted(longer, bytes(64)),
        "RenewalSigned": RenewalSigned(SESSION.sign(longer)),
        "RenewalSigned forged": RenewalSigned(bytes(64)),
        "TurnCame": TurnCame(),
        "TurnMissed": TurnMissed(),
        "Started": Started(),
        "Paused": Paused("no voucher"),
        "Paused unshown": Paused("no voucher", shown=False),
        "Resumed": Resumed(),
        "StageSeen": StageSeen("PULLING", {}),
        "Exited": Exited("COMPLETED", "", 0, 40),
        "Exited fault": Exited("LOST", "", None, 40),
        "Exited unpaid": Exited("UNPAID", "", None, 40, unpaid=True),
        "Exited refused": Exited("CHANNEL_REFUSED", "", None, 40),
        "LateReceipt": LateReceipt(50),
        "Reconnected": Reconnected(held=True),
        "Reconnected without": Reconnected(held=False, owed=40),
        "ProviderLost": ProviderLost(40),
        "Stop": Stop("CANCELLED"),
        "NoticeGiven": NoticeGiven(NOW + 60_000),
        "NoticeWithdrawn": NoticeWithdrawn(),
        "NoticeOver": NoticeOver(),
        "Passed": Passed(RULES, 1_000),
        "Passed long": Passed(replace(RULES, propose_ttl_ms=-1), -1),
        "Accounted": Accounted(RULES, 40, 40, 40, None),
        "Accounted due": Accounted(RULES, 40, 40, None, ENDS),
    }


def pairs() -> Iterator[tuple[str, str, str, Job, Lease | None, Input]]:
    """(policy, stage, input's name, the records and the input)."""
    for policy, wants in POLICIES.items():
        for stage in STAGES:
            if stage == "QUEUED" and not wants.queue:
                continue
            job, lease = at_stage(stage, policy=wants)
            for name, asked in inputs(lease).items():
                yield policy, stage, name, job, lease, asked


def outcome(job: Job, lease: Lease | None, asked: Input) -> Outcome | Refusal:
    """Long enough after for every deadline of *asked* to have passed, or none."""
    try:
        return decide(job, lease, asked, NOW + 1)
    except Refusal as refusal:
        return refusal


def words(effect: Effect) -> str:
    match effect:
        case Tell(_, message) | Say(_, message):
            return f"{type(effect).__name__}({type(message).__name__})"
        case Story(kind):
            return f"Story({kind})"
        case Keep(record):
            return f"Keep({type(record).__name__})"
        case Remember(lapse):
            return f"Remember({lapse.name})"
        case FreeBudget(spent):
            return f"FreeBudget({spent})"
        case _:
            return type(effect).__name__


def row(job: Job, lease: Lease | None, asked: Input) -> str:
    out = outcome(job, lease, asked)
    if isinstance(out, Refusal):
        return f"refused {out.code}"
    if (out.job, out.lease) == (job, lease):
        stands = "stays"
    else:
        of_lease = out.lease.state.name if out.lease is not None else "-"
        why = f" {out.job.reason}" if out.job.reason != job.reason else ""
        stands = f"{of_lease} / {out.job.state.name}{why}"
    return ", ".join([stands, *map(words, out.effects)])


def test_every_input_has_a_pair_in_the_table() -> None:
    assert {type(one) for one in inputs(None).values()} == set(get_args(Input))


def test_every_pair_of_state_and_input_is_pinned() -> None:
    lines = [
        f"{policy:<6}{stage:<15} {name:<20} {row(job, lease, asked)}"
        for policy, stage, name, job, lease, asked in pairs()
    ]
    lines += gang_lines()
    text = "\n".join(lines) + "\n"
    if os.environ.get("TALLY_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text, "decisions.txt differs: review, then TALLY_WRITE_GOLDEN=1"


def test_whatever_happens_nothing_is_held_for_what_is_over() -> None:
    """An end frees the devices, a job that ends frees its budget, a job that looks again is looked
    for.
    """
    seen = 0
    for *_, job, lease, asked in pairs():
        out = outcome(job, lease, asked)
        if isinstance(out, Refusal):
            continue
        seen += 1
        ended = out.job.state is JobState.ENDED is not job.state
        assert bool(of(out, FreeBudget)) is ended
        again = out.job.state is JobState.POSTED and not out.job.lease and bool(job.lease)
        assert bool(of(out, Rematch)) is again
        if lease is not None and out.lease is not None:
            held, holds = lease.state in HOLDING, out.lease.state in HOLDING
            stopping = lease.state is LeaseState.ENDING and not lease.finished_ms
            over = out.lease.state is LeaseState.ENDED or bool(out.lease.finished_ms)
            assert bool(of(out, Release)) is (over and (held or stopping) and not holds)
    assert seen > 300


@pytest.mark.parametrize("stage", STAGES)
def test_what_was_decided_is_decided_once(stage: str) -> None:
    """An input that changed something and comes again (a lost answer, two processes) changes no
    state twice.
    """
    job, lease = at_stage(stage, policy=POLICIES["again"])
    for name, asked in inputs(lease).items():
        out = outcome(job, lease, asked)
        if isinstance(out, Refusal) or out.lease is None or out.job.lease != out.lease.id:
            continue
        again = outcome(*leased(out), asked)
        if isinstance(again, Outcome):
            moved = (again.job.state, again.lease.state if again.lease else None)
            assert moved == (out.job.state, out.lease.state), name
