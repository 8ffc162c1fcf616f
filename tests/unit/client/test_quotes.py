"""What a payer signs is what was asked for: the kind of what is billed among it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.client.jobs.core.quotes import Quote, Wanted, check
from marketplace.client.jobs.core.refused import QuoteRefused
from marketplace.domain.work.job import JobSpec
from tests.unit.support.adapter import (
    ADAPTER,
    SESSION,
    WALL,
    core_job,
    gpu_job,
    offer,
    terms_for,
    volume_job,
)

SUPPLY = offer(disk_rate=1_000_000, volume_keep_ms=1)


def quoted(job: JobSpec, asked: JobSpec, **changes: int) -> None:
    """*job*'s terms, held against what was *asked*."""
    terms = replace(terms_for(SUPPLY, job, work=asked.hash, close_period_ms=86_400_000), **changes)
    body = terms.encode()
    quote = Quote.read({"terms": body.hex(), "adapter_signature": ADAPTER.sign(body).hex()})
    keys = frozenset({SESSION.verify_key})
    check(quote, Wanted("job_1", asked, terms.magic, terms.consumer_vkh, keys), WALL)


@pytest.mark.parametrize("job", [core_job(), gpu_job(), volume_job()])
def test_each_kind_is_billed_as_it_was_asked(job: JobSpec) -> None:
    quoted(job, job)


@pytest.mark.parametrize(
    ("billed", "asked"),
    [(core_job(), volume_job()), (volume_job(), core_job()), (volume_job(), gpu_job())],
)
def test_neither_a_volume_nor_cores_are_billed_as_the_other(
    billed: JobSpec, asked: JobSpec
) -> None:
    with pytest.raises(QuoteRefused, match="more devices, share or cores"):
        quoted(billed, asked, ceiling=1_000_000, max_duration_ms=1000)


def test_no_larger_volume_is_billed_than_was_asked_for() -> None:
    with pytest.raises(QuoteRefused, match="more devices"):
        quoted(volume_job(), volume_job(), units_milli=2001)
