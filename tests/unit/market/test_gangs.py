"""What becomes of a gang, by where its members stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain.work.job import JobState
from marketplace.market.base.records import Job
from marketplace.market.jobs.gangs import verdict
from tests.fakes import spec

FRESH = Job("job_1", "acc", "", "n", "job", spec().to_wire(), bytes(28), [], JobState.POSTED, 0, 0,
            b"\x01" * 32, gang="gang_1")  # fmt: skip
ASKED = replace(FRESH, lease="lease_1")
QUOTED = replace(ASKED, state=JobState.QUOTED)
RUNNING = replace(ASKED, state=JobState.RUNNING)
PAUSED = replace(ASKED, state=JobState.PAUSED)
DECLINED = replace(FRESH, avoid=["p"])


def over(state: JobState, reason: str) -> Job:
    return replace(ASKED, state=state, reason=reason)


DONE = over(JobState.ENDED, "COMPLETED")


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ([FRESH, FRESH, FRESH], "match"),
        ([ASKED, ASKED, ASKED], ""),
        ([ASKED, QUOTED, QUOTED], ""),
        ([RUNNING, QUOTED, PAUSED], ""),
        ([DONE, RUNNING, RUNNING], ""),
        ([over(JobState.ENDING, "COMPLETED"), RUNNING, DONE], ""),
        ([DECLINED, QUOTED, ASKED], "end"),
        ([DECLINED, DECLINED, DECLINED], "end"),
        ([FRESH, DECLINED, FRESH], "end"),
        ([over(JobState.ENDING, "FAILED"), RUNNING, DONE], "end"),
        ([over(JobState.ENDING, "CANCELLED"), RUNNING, RUNNING], "end"),
        ([over(JobState.ENDED, "QUOTE_EXPIRED"), RUNNING, QUOTED], "end"),
        ([over(JobState.ENDED, "PREEMPTED"), RUNNING, RUNNING], "end"),
        ([over(JobState.ENDED, "PROVIDER_LOST"), DONE, RUNNING], "end"),
    ],
)
def test_one_for_all(members: list[Job], told: str) -> None:
    assert verdict(members) == told
    assert verdict(members[::-1]) == told
