"""What a job's words for a device mean follows the market: offers come and go under the same
question.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain import canonical
from marketplace.domain.isolation import Isolation
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.parts import GpuNeed, Placement, Range, Resources
from marketplace.market.base.records import OfferRecord
from marketplace.market.state import listings
from marketplace.market.state.directory import Directory
from marketplace.matching import NoMatch
from tests.fakes import gpu, offer, seed, spec

NOW = 1_800_000_000_000


def listed(name: str, *models: str, state: OfferState = OfferState.LISTED) -> OfferRecord:
    devices = tuple(gpu(at, model) for at, model in enumerate(models))
    made = offer(seed(name), gpus=devices)
    body = canonical.encode(made.to_wire())
    return OfferRecord(made.id, made.provider, state, body, 0, 0, "p")


def wants(*models: str):
    need = GpuNeed(models=models)
    return spec(resources=(Resources(Range(1000), Range(256), Range(0), need),))


def answer(market: Directory, *models: str) -> str | dict[str, int]:
    """The model that is quoted, or why there is none."""
    found = market.quote(wants(*models), "acc", frozenset(), NOW)
    if isinstance(found, NoMatch):
        return dict(found.reasons)
    return found.offer.host.gpus[found.placement.gpus[0]].model


def test_a_model_listed_later_is_found_and_one_that_went_is_not():
    market = Directory()
    market.set_offer(listed("one", "NVIDIA T4", "NVIDIA T4"))
    assert answer(market, "H100") == {"model": 1}
    market.set_offer(listed("two", "NVIDIA H100 80GB"))
    assert answer(market, "H100") == "NVIDIA H100 80GB"
    assert answer(market, "T4") == "NVIDIA T4"
    market.set_offer(listed("three", "NVIDIA H100 80GB"))
    market.set_offer(listed("two", "NVIDIA H100 80GB", state=OfferState.WITHDRAWN))
    assert answer(market, "H100") == "NVIDIA H100 80GB"
    market.set_offer(listed("three", "NVIDIA A10"))  # the same offer with another device
    assert answer(market, "H100") == {"model": 2}
    assert answer(market, "H100", "A10") == "NVIDIA A10"


def test_made_up_models_do_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listings, "MOST_MEANT", 10)
    market = Directory()
    market.set_offer(listed("one", "NVIDIA T4"))
    for number in range(35):
        assert answer(market, f"made up {number}") == {"model": 1}
    assert answer(market, "T4") == "NVIDIA T4"
    assert len(market._listings._meant) <= 10


def test_an_isolation_that_no_host_has_is_the_reason_and_the_nearest_other_is_named():
    market = Directory()
    market.set_offer(listed("one"))
    for asked in (Isolation.PROCESS, Isolation.SANDBOX, Isolation.VM):
        job = spec(placement=Placement(isolation=asked))
        found = market.quote(job, "acc", frozenset(), NOW)
        assert isinstance(found, NoMatch)
        assert dict(found.reasons) == {"isolation": 1} and "do not isolate as asked" in str(found)
        [way] = found.relaxations
        assert (way.change, way.hosts) == ("isolation container", 1)
    assert not isinstance(market.quote(spec(), "acc", frozenset(), NOW), NoMatch)


def test_a_container_job_is_never_placed_on_a_host_of_plain_processes():
    market = Directory()
    plain = replace(offer(seed("plain")), isolation=(Isolation.PROCESS,))
    body = canonical.encode(plain.to_wire())
    listed_plain = OfferRecord(plain.id, plain.provider, OfferState.LISTED, body, 0, 0, "p")
    market.set_offer(listed_plain)
    assert isinstance(market.quote(spec(), "acc", frozenset(), NOW), NoMatch)
    process = spec(image="", placement=Placement(isolation=Isolation.PROCESS))
    assert not isinstance(market.quote(process, "acc", frozenset(), NOW), NoMatch)


def test_who_was_just_given_a_place_is_not_put_in_line_again_until_it_is_given_back():
    market = Directory()
    market.set_offer(listed("one", "NVIDIA T4"))
    market.wait("job_1", wants("T4"), "acc", frozenset(), NOW)
    [begun] = market.round(NOW, lambda: "lease_1")
    [(lease, _)] = begun.places
    assert (begun.name, begun.gang) == ("job_1", False)
    for _ in range(2):  # another look read it before its lease was written
        market.wait("job_1", wants("T4"), "acc", frozenset(), NOW)
        assert not market.waiting("job_1") and market.expected_wait_ms("job_1", NOW) is None
    market.release(lease, NOW)
    market.wait("job_1", wants("T4"), "acc", frozenset(), NOW)
    assert market.waiting("job_1")
