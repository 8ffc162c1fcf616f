"""What a job's words for a device mean follows the market: offers come and go under the same
question.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain import canonical
from marketplace.domain.isolation import Isolation
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.parts import Gang, GpuNeed, Placement, Policy, Range, Resources
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


def begun(market: Directory) -> list[str]:
    return [one.name for one in market.round(NOW, lambda: "lease_1")]


def test_who_waits_for_a_model_that_nobody_lists_is_placed_once_somebody_does():
    market = Directory()
    market.set_offer(listed("one", "NVIDIA T4"))
    market.wait("job_1", wants("H100"), "acc", frozenset(), NOW)
    assert begun(market) == []
    market.set_offer(listed("two", "NVIDIA H100 80GB"))
    assert begun(market) == ["job_1"]


def test_a_gang_that_waits_for_such_a_model_is_placed_as_well():
    market = Directory()
    members = replace(wants("H100"), gang=Gang(2)).members()
    market.wait_gang("gang_1", members, "acc", NOW)
    assert begun(market) == []
    market.set_offer(listed("two", "NVIDIA H100 80GB", "NVIDIA H100 80GB"))
    assert begun(market) == ["gang_1"]


def test_who_waits_while_its_words_come_to_mean_more_is_placed_and_nobody_behind_it_is_stopped():
    market = Directory()
    market.set_offer(listed("one", "NVIDIA T4"))
    [t4], [a10] = wants("T4").resources, wants("A10").resources
    either = replace(wants(), resources=(a10, t4))
    market.wait("job_1", wants("T4"), "acc", frozenset(), NOW)
    market.wait("job_2", either, "acc", frozenset(), NOW)
    assert begun(market) == ["job_1"]
    market.set_offer(listed("two", "NVIDIA T4 16GB"))
    market.release("lease_1", NOW)
    assert begun(market) == ["job_2"]


@pytest.mark.parametrize("how", ["it failed the job", "the job file says so"])
def test_a_provider_that_a_job_shuns_gets_nothing_by_listing_anew_while_it_waits(how: str):
    market, shunned = Directory(), listed("two", "NVIDIA T4")
    job, avoid = wants(), frozenset({shunned.provider})
    if how == "the job file says so":
        job, avoid = (
            replace(job, placement=Placement(not_providers=(shunned.provider,))),
            frozenset(),
        )
    market.wait("job_1", job, "acc", avoid, NOW)
    market.set_offer(shunned)
    assert begun(market) == [] and market.waiting("job_1")
    market.set_offer(listed("one", "NVIDIA T4"))
    assert begun(market) == ["job_1"]


def test_who_began_to_wait_while_more_was_listed_is_read_anew_once_that_went():
    market, more = Directory(), ("two", "NVIDIA T4 16GB")
    market.set_offer(listed("one", "NVIDIA T4"))
    market.wait("job_1", wants("T4"), "acc", frozenset(), NOW)
    market.leave("job_1")
    market.set_offer(listed(*more))
    either = replace(wants(), resources=(*wants("A10").resources, *wants("T4").resources))
    market.wait("job_2", either, "acc", frozenset(), NOW)
    market.set_offer(listed(*more, state=OfferState.WITHDRAWN))
    assert begun(market) == ["job_2"]


def test_who_is_read_anew_keeps_its_place_in_the_line():
    market = Directory()
    market.wait("job_1", wants("H100"), "acc", frozenset(), NOW)
    market.wait("job_2", wants(), "acc", frozenset(), NOW + 1)
    market.set_offer(listed("two", "NVIDIA H100 80GB"))
    assert begun(market) == ["job_1"]


def test_the_room_that_was_made_for_a_job_is_taken_whatever_its_words_mean_by_then():
    market = Directory()
    [t4], [a10] = wants("T4").resources, wants("A10").resources
    either = replace(wants(), resources=(a10, t4), policy=Policy(priority=9))
    made = listed("one", "NVIDIA T4")
    market.set_offer(made)
    held = market.place(wants("T4"), "acc", frozenset(), NOW, "lease_1")
    assert not isinstance(held, NoMatch)
    market.wait("job_1", either, "acc", frozenset(), NOW)
    assert market.keep_room("job_1", made.id, held.grant.gpus, 1, ["lease_1"])
    market.set_offer(listed("two", "NVIDIA T4 16GB"))
    market.release("lease_1", NOW)
    taken = market.take_room("job_1", NOW, "lease_2")
    assert taken is not None and (taken.block, taken.grant.gpus) == (1, held.grant.gpus)
