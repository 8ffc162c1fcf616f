"""A close period below half a day is no provider's wish on a public network; a devnet takes any."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core import admission
from adapter.core.state import Limits, Own, State
from marketplace.client.jobs.core import quotes
from marketplace.client.jobs.core.quotes import Quote, QuoteRefused, Wanted
from marketplace.domain.money import terms as rules
from marketplace.domain.money.terms import ClosePeriodShort, SignedTerms, check_close_period
from marketplace.domain.protocol import wire
from tests.requires import need_node
from tests.unit.support.adapter import ADAPTER, WALL, Bench, core_job, offer, terms_for

HALF_DAY = 12 * 3_600_000
NETWORKS = {"mainnet": 764824073, "preprod": 1, "preview": 2}
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("magic", NETWORKS.values(), ids=NETWORKS.keys())
def test_the_floor_of_a_public_network(magic: int) -> None:
    with pytest.raises(ClosePeriodShort) as refused:
        check_close_period(magic, HALF_DAY - 1)
    assert refused.value.code == "CLOSE_PERIOD_SHORT" and "12h" in refused.value.remedy
    check_close_period(magic, HALF_DAY)


def test_a_devnet_has_none() -> None:
    check_close_period(42, 1)


@pytest.mark.parametrize("magic", [*NETWORKS.values(), 42])
def test_an_adapter_declines_short_terms(magic: int) -> None:
    own = Own(offer(magic=magic, close_period_ms=60_000), ADAPTER, Limits())
    job = core_job()
    terms = terms_for(own.offer, job)
    asked = wire.LeaseProposed(terms.lease, job, terms.encode())
    said = admission.check(State(), own, asked, Bench(own=own).now)
    if magic == 42:
        assert isinstance(said, admission.Plan)
    else:
        assert isinstance(said, admission.Declined) and said.code == "CLOSE_PERIOD_SHORT"


@pytest.mark.parametrize("magic", NETWORKS.values(), ids=NETWORKS.keys())
def test_a_payer_signs_no_short_terms(magic: int) -> None:
    job = core_job()
    good = replace(terms_for(offer(magic=magic), job), close_period_ms=HALF_DAY)
    wanted = Wanted("job_1", job, magic, good.consumer_vkh, frozenset((good.session_vk,)), 0)
    for period, passes in ((HALF_DAY, True), (HALF_DAY - 1, False)):
        quote = _quote(replace(good, close_period_ms=period))
        try:
            quotes.check(quote, wanted, WALL)
            assert passes
        except QuoteRefused as refused:
            if passes:
                raise
            assert "12 hours" in refused.message


def _quote(terms: rules.Terms) -> Quote:
    body = terms.encode()
    return Quote(SignedTerms(body, ADAPTER.sign(body)), terms, False, "", False, {})


def test_the_console_signs_no_short_terms() -> None:
    program = """
import { closeFloor } from "./web/assets/money/records.js";
console.log([764824073, 1n, 2, 42].map((magic) => closeFloor(magic)).join(" "));
"""
    done = subprocess.run(
        [str(need_node()), "--input-type=module", "-e", program], cwd=ROOT, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [str(HALF_DAY)] * 3 + ["0"], done.stderr
