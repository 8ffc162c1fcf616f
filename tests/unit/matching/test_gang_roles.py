"""Members that differ: each has what it asks for itself, and all have a place or none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from marketplace.matching import Gang, NoMatch, Request
from tests.unit.matching.test_engine import A100, T4, gpu, host, market, refused

BIG = Request(4_000, 64_000)
WIDE = Request(8_000, 4_000)


def test_one_that_another_left_no_home_is_placed_before_it():
    """The one with more cores would take the only host with the other's memory."""
    hosts = (
        host("large", cpu_milli=8_000, memory_mib=65_536, core_rate=1),
        host("dear", cpu_milli=8_000, memory_mib=16_384, core_rate=2),
    )
    for order in ((BIG, WIDE), (WIDE, BIG)):
        made = market(*hosts).place_gang(Gang(order, spread=True))
        assert not isinstance(made, NoMatch)
        homes = {one.request.memory_mib: one.host for one in made}
        assert homes == {64_000: "large", 4_000: "dear"}
        assert [one.request.cpu_milli for one in made] == [one.cpu_milli for one in order]


def test_none_is_placed_where_one_kind_has_no_home():
    found = market(host("one", T4), host("two", T4), host("none"))
    before = found.fleet.free.copy(), found.fleet.cpu.copy()
    refused(found.place_gang(Gang((BIG, gpu(), gpu(), gpu()), spread=True)))
    assert (found.fleet.free == before[0]).all() and (found.fleet.cpu == before[1]).all()
    assert not isinstance(found.place_gang(Gang((BIG, gpu(), gpu()), spread=True)), NoMatch)


def test_what_would_do_instead_is_as_far_apart_and_as_near():
    """An alternative of a block is on no other member's host, and in the same region."""
    either = replace(gpu(gpu_models=frozenset({"A100"})), any_of=(gpu(),))
    found = market(host("one", T4, T4), host("far", T4, region="US"))
    refused(found.place_gang(Gang((either, either), spread=True, same_region=True)))
    made = found.place_gang(Gang((either, either), spread=True))
    assert not isinstance(made, NoMatch) and {one.host for one in made} == {"one", "far"}


@pytest.mark.parametrize("seed", range(40))
def test_each_placement_is_what_its_own_member_asked_for(seed: int):
    rng = random.Random(seed)
    hosts = {
        f"h{at}": host(
            f"h{at}", *[rng.choice((A100, T4)) for _ in range(rng.randint(0, 3))],
            cpu_milli=rng.choice((4_000, 8_000, 16_000)),
            memory_mib=rng.choice((8_192, 32_768, 131_072)),
            region=rng.choice(("EU", "US")), core_rate=rng.randint(1, 9),
        )
        for at in range(8)
    }  # fmt: skip
    kinds = (BIG, WIDE, gpu(), gpu(vram_mib=24_576), Request(1_000, 16_000))
    members = tuple(rng.choice(kinds) for _ in range(rng.randint(2, 5)))
    gang = Gang(members, spread=rng.random() < 0.5, same_region=rng.random() < 0.5)
    found = market(*hosts.values())
    before = found.fleet.free.copy(), found.fleet.cpu.copy(), found.fleet.mem.copy()
    made = found.place_gang(gang)
    if isinstance(made, NoMatch):
        left = found.fleet.free, found.fleet.cpu, found.fleet.mem
        assert all((now == was).all() for now, was in zip(left, before, strict=True))
        return
    for wanted, one in zip(members, made, strict=True):
        place = hosts[one.host]
        got = (one.request.cpu_milli, one.request.memory_mib, one.request.gpu_count)
        assert got == (wanted.cpu_milli, wanted.memory_mib, wanted.gpu_count)
        assert all(place.gpus[slot].vram_mib >= wanted.vram_mib for slot in one.gpus)
        assert len(one.gpus) == wanted.gpu_count
    for name, place in hosts.items():
        here = [one for one in made if one.host == name]
        assert sum(one.request.cpu_milli for one in here) <= place.cpu_milli
        assert sum(one.request.memory_mib for one in here) <= place.memory_mib
        slots = [slot for one in here for slot in one.gpus]
        assert len(set(slots)) == len(slots)
    assert not gang.spread or len({one.host for one in made}) == len(made)
    assert not gang.same_region or len({hosts[one.host].region for one in made}) == 1
