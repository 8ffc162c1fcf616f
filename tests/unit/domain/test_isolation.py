"""Isolation is one ordered word: a job's says what may run it, and nobody on the way can weaken
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter.core.workload import isolations, runtime_for
from marketplace.client.jobs import jobfiles
from marketplace.client.jobs.core import quotes
from marketplace.client.jobs.core.quotes import Quote, QuoteRefused, Wanted
from marketplace.domain.isolation import Isolation, IsolationRefused, want_isolation
from marketplace.domain.protocol import wire
from marketplace.domain.work.jobfile import JobFileRefused
from marketplace.domain.work.parts import Placement
from tests.unit.support.adapter import ADAPTER, Bench, gpu_job, offer, terms_for

PROCESS, CONTAINER, SANDBOX, VM = Isolation
PLAIN = Placement(isolation=PROCESS)


@pytest.mark.parametrize(
    ("asked", "offered", "given"),
    [
        (PROCESS, (PROCESS, CONTAINER), PROCESS),
        (PROCESS, (CONTAINER, VM), None),  # it has no image that a container could run
        (CONTAINER, (PROCESS,), None),
        (CONTAINER, (PROCESS, CONTAINER, VM), CONTAINER),
        (CONTAINER, (VM, SANDBOX), SANDBOX),  # stronger than asked is as good
        (SANDBOX, (PROCESS, CONTAINER), None),
        (VM, (SANDBOX, VM), VM),
        (VM, (), None),
    ],
)
def test_a_job_runs_under_what_it_asks_for_or_stronger_but_a_process_has_no_image(
    asked: Isolation, offered: tuple[Isolation, ...], given: Isolation | None
) -> None:
    assert asked.among(offered) is given


def test_the_order_is_the_one_of_the_enum() -> None:
    assert list(Isolation) == ["process", "container", "sandbox", "vm"]
    assert [one.rank for one in Isolation] == [0, 1, 2, 3]


@pytest.mark.parametrize("said", ["", "gvisor", "Process", None, 1, "x" * 500])
def test_another_word_is_refused(said: object) -> None:
    with pytest.raises(IsolationRefused, match="process, container, sandbox, vm"):
        want_isolation(said)


@pytest.mark.parametrize(
    ("runtimes", "asked", "name"),
    [
        (("docker", "process"), CONTAINER, "docker"),
        (("docker", "process"), PROCESS, "process"),
        (("process",), CONTAINER, None),
        (("docker",), PROCESS, None),
        (("docker", "process"), VM, None),
    ],
)
def test_the_isolation_decides_the_runtime(
    runtimes: tuple[str, ...], asked: Isolation, name: str | None
) -> None:
    assert runtime_for(asked, isolations(runtimes)) == name


def _codes(bench: Bench, proposal: wire.LeaseProposed) -> list[str]:
    effects = bench.hear(proposal).effects
    sent = [getattr(effect, "message", None) for effect in effects]
    return [message.code for message in sent if isinstance(message, wire.LeaseDeclined)]


@pytest.mark.parametrize(
    "weaker",
    [{"image": "", "placement": PLAIN}, {"image": ""}, {"placement": PLAIN}],
    ids=["process", "no image", "process with an image"],
)
def test_a_market_steers_no_container_job_to_the_process_runtime(weaker: dict[str, Any]) -> None:
    """The job's hash is in the terms: for the payer, and for an adapter that offers both. What says
    both, or neither, is run by nobody."""
    job, supply = gpu_job(), offer()
    steered = replace(job, **weaker)
    body = terms_for(supply, steered).encode()
    quote = Quote.read({"terms": body.hex(), "adapter_signature": ADAPTER.sign(body).hex()})
    session = frozenset({quote.terms.session_vk})
    wanted = Wanted("job_1", job, supply.magic, quote.terms.consumer_vkh, session)
    quotes.check(quote, replace(wanted, spec=steered), 0)
    with pytest.raises(QuoteRefused, match="not the job that was posted"):
        quotes.check(quote, wanted, 0)
    honest = terms_for(supply, job).encode()
    assert _codes(Bench(), wire.LeaseProposed("lease_1", steered, honest)) == ["WORK_DIFFERS"]
    clear = weaker.keys() == {"image", "placement"}
    assert _codes(Bench(), wire.LeaseProposed("lease_1", steered, body)) == (
        [] if clear else ["ISOLATION"]
    )


FILE = "version: 1\n"
IMAGE_LINE, PLAIN_LINE = "image: python:3.11\n", "placement: {isolation: process}\n"
COMMAND_LINE = "command: [sleep, '1']\n"


def test_a_process_needs_a_command_and_everything_stronger_an_image() -> None:
    spec = jobfiles.loads(FILE + PLAIN_LINE + COMMAND_LINE).spec()
    assert (spec.image, spec.placement.isolation) == ("", PROCESS)
    assert jobfiles.loads(FILE + IMAGE_LINE).spec().placement.isolation is CONTAINER


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (FILE, "JOB_MISSING_KEY", "placement: {isolation: process}"),
        (FILE + "placement: {isolation: vm}\n", "JOB_MISSING_KEY", "image: is missing"),
        (FILE + PLAIN_LINE, "JOB_MISSING_KEY", "command: is missing"),
        (
            FILE + PLAIN_LINE + COMMAND_LINE + IMAGE_LINE,
            "JOB_BAD_VALUE",
            "leave out one of the two",
        ),
        (FILE + IMAGE_LINE + "placement: {isolation: contaner}\n", "JOB_BAD_VALUE", "'container'"),
    ],
)
def test_a_file_that_says_both_or_neither_is_refused(text: str, code: str, says: str) -> None:
    with pytest.raises(JobFileRefused) as refused:
        jobfiles.loads(text)
    assert refused.value.code == code and says in refused.value.message
