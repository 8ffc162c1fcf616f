"""The grant that terms name is found among thousands of choices, or refused, in less than a
tick.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from marketplace.domain.money.terms import TermsRefused
from marketplace.domain.supply import grant
from marketplace.domain.supply.hardware import HostHardware
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import GpuNeed, Range, Resources
from tests.fakes import gpu, offer, seed, spec


def _host(gpus: int) -> HostHardware:
    return replace(offer(seed("p")).host, gpus=tuple(gpu(n) for n in range(gpus)))


def _job(*counts: int) -> JobSpec:
    blocks = [Resources(Range(1000), Range(256), Range(0), GpuNeed((), Range(n, n), Range(0))) for n in counts]  # fmt: skip
    return spec(resources=(*blocks, Resources(cpu=Range(2000), memory=Range(512))))


def _terms(of: grant.Grant, **more: Any) -> Any:
    found = {"units_milli": of.units_milli, "resource": of.resource, "devices": of.hash}
    return SimpleNamespace(**(found | more))


@pytest.mark.parametrize("turn", range(12))
def test_any_choice_of_any_block_is_found(turn: int) -> None:
    chance = random.Random(turn)
    host, job = _host(9), _job(8, 4, 1, 9)
    block = chance.randrange(5)
    need = job.resources[block].gpu
    count = need.count.least if need is not None else 0
    chosen = tuple(chance.sample([g.uuid for g in host.gpus], count))
    wanted = grant.of_block(job, block, chosen)
    assert grant.find(job, host, _terms(wanted)) == wanted


def test_a_bad_proposal_costs_little_and_is_refused() -> None:
    """Eight of sixteen devices are 12,870 choices. The hash of each costs a few microseconds."""
    job, host = _job(8), _host(16)
    bad = _terms(grant.of_block(job, 0, tuple(g.uuid for g in host.gpus[:8])), devices=bytes(32))
    spent: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        with pytest.raises(TermsRefused):
            grant.find(job, host, bad)
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.15
