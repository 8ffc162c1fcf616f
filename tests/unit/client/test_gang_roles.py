"""A market that shows other members than were posted, where members differ: nobody signs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from marketplace.client.jobs import jobfiles
from marketplace.client.jobs.core.quotes import Quote, QuoteRefused, Wanted, check
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.jobs.runner import Runner
from marketplace.client.sdk import gang
from marketplace.domain.errors import Malformed
from marketplace.domain.metering.kinds import CORE
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Range
from tests.fakes import seed
from tests.unit.support.answers import plain_job
from tests.unit.support.pinned import TERMS

SPEC = jobfiles.loads(
    "version: 1\nimage: python:3.11\n"
    "cluster: {roles: {head: {resources: {cpu: 2}}, worker: {members: 2, resources: {cpu: 1}}}}\n"
).spec()
SESSION = seed("session").verify_key


def quote(job: str, work: JobSpec) -> Quote:
    """What an honest provider signs for *work*, shown for *job*."""
    cores = work.resources[0].cpu
    assert isinstance(cores, Range)
    terms = replace(
        TERMS, job=job, work=work.hash, magic=42, session_vk=SESSION, consumer_vkh=b"c" * 28,
        asset="", resource=CORE.name, units_milli=cores.least, rate_micro=1, ceiling=1_000,
        max_duration_ms=60_000, fee_bps=0, close_period_ms=86_400_000, expires_at_ms=2**50,
        provider=TERMS.adapter_vk.hex(),
    )  # fmt: skip
    return Quote(cast(Any, None), terms, True, "", False, {})


def asked(job: str, spec: JobSpec) -> Wanted:
    return Wanted(job, spec, 42, b"c" * 28, frozenset({SESSION}))


def test_a_quote_for_another_members_role_is_refused() -> None:
    """Nor for another member of the same role, nor for what leaves the roles out."""
    head, worker, other = SPEC.members()
    for own in (head, worker, other):
        check(quote("job", own), asked("job", own), 0)
        bare = replace(own, roles=())
        for shown in (head, worker, other, bare, SPEC):
            if shown is not own:
                with pytest.raises(QuoteRefused, match="not the job that was posted"):
                    check(quote("job", shown), asked("job", own), 0)


def posted(shown: list[str]) -> dict[str, JobSpec]:
    """What this client knows of each job, where the market shows these for the members."""
    took: dict[str, JobSpec] = {}

    async def answer(*_: object) -> Any:
        jobs = [plain_job() | {"id": name} for name in shown]
        return {"id": "gang_1", "members": jobs, "spent": 0, "ceiling": 0, "budget": 0}

    async def nothing(_: object) -> None:
        pass

    def take(job: str, spec: JobSpec, *, member: bool) -> None:
        took[job] = spec

    purse = SimpleNamespace(new_session=lambda: seed("session"), signer=seed("consumer"))
    runner = SimpleNamespace(
        upload=nothing, purse=purse, http=SimpleNamespace(post=answer), took=take,
        not_posted=nothing,
    )  # fmt: skip

    async def go() -> None:
        await gang.post(cast(Runner, runner), LoadedJob(SPEC, {}))

    anyio.run(go)
    return took


def test_a_market_that_swaps_two_members_gets_no_signature_for_either() -> None:
    """It shows the worker's job first: to this client that one is the head."""
    head, worker, _ = SPEC.members()
    known = posted(["job_1", "job_0", "job_2"])
    for job, runs in (("job_0", head), ("job_1", worker)):
        with pytest.raises(QuoteRefused):
            check(quote(job, runs), asked(job, known[job]), 0)
    honest = posted(["job_0", "job_1", "job_2"])
    for job, runs in (("job_0", head), ("job_1", worker)):
        check(quote(job, runs), asked(job, honest[job]), 0)


@pytest.mark.parametrize("shown", [["a", "b"], ["a", "b", "b"], ["a", "b", "c", "d"], []])
def test_a_market_that_leaves_a_member_out_is_refused(shown: list[str]) -> None:
    """Or shows one twice, or one more."""
    with pytest.raises(Malformed):
        posted(shown)


def test_members_are_called_by_number_and_role() -> None:
    """By the number alone where they are equal."""
    one = gang.Gang("gang_1", [], cast(Any, None), roles=gang.roles(SPEC))
    assert [one.name(at) for at in range(3)] == ["0 head", "1 worker", "2 worker"]
    assert gang.Gang("gang_1", [], cast(Any, None)).name(1) == "1"
