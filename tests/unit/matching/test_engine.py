"""The matchmaker's rules, one by one, on markets small enough to see through."""

from __future__ import annotations

from typing import Any

import pytest

from marketplace.matching import (
    Gang,
    Gpu,
    Host,
    Matchmaker,
    NoMatch,
    Placement,
    Request,
    plan_preemption,
)

A100 = Gpu("A100", 40_960, rate=2_000_000)
T4 = Gpu("T4", 16_384, rate=300_000)


def host(name: str, *gpus: Gpu, **changes: object) -> Host:
    terms: dict[str, object] = {"cpu_milli": 32_000, "memory_mib": 131_072, "region": "EU"}
    return Host(id=name, gpus=gpus, **(terms | changes))  # pyright: ignore[reportArgumentType]


def market(*hosts: Host) -> Matchmaker:
    made = Matchmaker()
    for one in hosts:
        made.add(one)
    return made


def gpu(count: int = 1, milli: int = 1000, **terms: object) -> Request:
    return Request(1_000, 1_024, count, milli, **terms)  # pyright: ignore[reportArgumentType]


def placed(answer: Placement | NoMatch) -> Placement:
    assert isinstance(answer, Placement), str(answer)
    return answer


def refused(answer: object) -> NoMatch:
    assert isinstance(answer, NoMatch)
    return answer


def test_the_cheapest_adequate_host_wins():
    found = market(host("dear", A100), host("cheap", T4))
    assert placed(found.place(gpu())).host == "cheap"
    assert placed(found.place(gpu(vram_mib=24_576))).host == "dear"


def test_the_rate_is_that_of_the_devices_picked_and_of_the_share():
    found = market(host("mixed", A100, T4))
    half = placed(found.place(gpu(milli=500)))
    assert (half.gpus, half.rate) == ((1,), 150_000)
    assert placed(found.place(Request(2_000, 10))).rate == 0


def test_a_cpu_only_request_does_not_strand_devices():
    found = market(host("gpu", A100, cpu_milli=8_000), host("plain", cpu_milli=8_000))
    assert placed(found.place(Request(8_000, 1_024))).host == "plain"


def test_a_cap_refuses_what_is_dearer_and_says_by_how_much():
    answer = refused(market(host("dear", A100)).place(gpu(max_gpu_rate=1_600_000)))
    assert answer.reasons == {"price": 1}
    assert answer.relaxations[0].request.max_gpu_rate == 2_000_000
    assert "25 %" in str(answer)


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"gpu_models": frozenset({"H100"})}, "model"),
        ({"vram_mib": 81_920}, "vram"),
        ({"regions": frozenset({"US"})}, "region"),
        ({"labels": frozenset({"nvlink"})}, "labels"),
        ({"isolation": frozenset({"vm", "sandbox"})}, "isolation"),
        ({"trust": 3}, "trust"),
        ({"upload_mbps": 900}, "network"),
        ({"egress": True}, "egress"),
        ({"cluster_free_ms": 180_000}, "cluster"),
        ({"mesh": True}, "mesh"),
        ({"avoid": frozenset({"only"})}, "avoided"),
        ({"max_gpu_rate": 1}, "price"),
    ],
)
def test_each_term_is_a_filter_whose_relaxation_works(terms: dict[str, Any], why: str):
    bears = {"isolation": frozenset({"container"}), "cluster_free_ms": 60_000}
    found = market(host("only", A100, trust=1, upload_mbps=100, **bears))
    answer = refused(found.place(gpu(**terms)))
    assert answer.reasons == {why: 1}
    way = answer.relaxations[0]
    assert way.hosts == 1
    assert placed(found.place(way.request)).host == "only"
    assert way.rate == 2_000_000


def test_a_host_that_bears_no_waiting_at_all_is_no_way_out_of_a_cluster():
    asked = gpu(cluster_free_ms=180_000, mesh=True)
    none, some = host("none", A100, mesh=True), host("some", T4, mesh=True, cluster_free_ms=60_000)
    answer = refused(market(none).place(asked))
    assert (answer.reasons, answer.relaxations) == ({"cluster": 1}, ())
    answer = refused(market(none, some, host("bare", A100, cluster_free_ms=180_000)).explain(asked))
    assert answer.reasons == {"cluster": 2, "mesh": 1}
    assert "bear too little of a cluster's waiting" in str(answer)
    ways = {way.change: way.hosts for way in answer.relaxations}
    assert ways == {"network none": 1, "assemble and hold of 60 s together": 1}
    whole = market(none, some, host("able", A100, cluster_free_ms=180_000, mesh=True))
    assert placed(whole.place(asked)).host == "able"


def test_why_a_gang_has_no_place_is_counted_as_for_one_of_it():
    for same_region in (False, True):
        wanted = Gang((gpu(mesh=True),) * 2, spread=True, same_region=same_region)
        found = market(host("able", A100, mesh=True), host("bare", A100), host("too", A100))
        answer = refused(found.place_gang(wanted))
        assert (answer.hosts, answer.reasons["mesh"]) == (3, 2)


def test_the_label_that_is_lacking_is_named():
    asked = gpu(labels=frozenset({"rack=b", "image/x=sha256:1"}))
    answer = refused(market(host("h", A100, labels=frozenset({"rack=b"}))).place(asked))
    assert "1 lack the label image/x=sha256:1" in str(answer)
    many = gpu(labels=frozenset(f"l{n}" for n in range(5)))
    assert "lack the label l0, l1, l2 and 2 more" in str(
        refused(market(host("h", A100)).place(many))
    )


def test_what_is_busy_is_told_from_what_is_too_small():
    found = market(host("small", T4, cpu_milli=4_000), host("busy", T4))
    placed(found.place(Request(30_000, 1_024, 1)))
    answer = refused(found.place(Request(16_000, 1_024, 1)))
    assert answer.reasons == {"too_small": 1, "cpu": 1}


def test_shares_of_one_device_belong_to_one_owner():
    found = market(host("h", A100))
    placed(found.place(gpu(milli=300, owner="ada")))
    answer = refused(found.place(gpu(milli=300, owner="bob")))
    assert answer.reasons == {"owner": 1}
    refused(found.place(gpu(milli=300)))
    assert placed(found.place(gpu(milli=300, owner="ada"))).gpus == (0,)


def test_a_device_is_free_for_others_once_its_owner_left():
    found = market(host("h", A100))
    first, second = (placed(found.place(gpu(milli=300, owner="ada"))) for _ in range(2))
    found.release(first)
    refused(found.place(gpu(milli=300, owner="bob")))
    found.release(second)
    assert placed(found.place(gpu(milli=300, owner="bob")))


def test_a_device_whose_owner_keeps_a_part_is_rented_up_to_the_rest():
    half = Gpu("A100", 40_960, rate=2_000_000, offered=500)
    found = market(host("h", half))
    answer = refused(found.place(gpu()))
    assert answer.reasons == {"too_small": 1}
    assert [way.change for way in answer.relaxations] == ["share 500"]
    assert placed(found.place(answer.relaxations[0].request)).rate == 1_000_000
    assert refused(found.place(gpu(milli=100))).reasons == {"gpu": 1}
    assert found.capacity()[0] == 500


def test_a_range_takes_the_largest_count_that_fits():
    found = market(host("two", T4, T4), host("one", T4))
    assert len(placed(found.place(gpu(1, gpu_count_max=4))).gpus) == 2
    assert len(placed(found.place(gpu(1, gpu_count_max=4))).gpus) == 1


def test_alternatives_are_tried_in_order():
    wanted = gpu(
        gpu_models=frozenset({"H100"}), any_of=(gpu(gpu_models=frozenset({"A100"})), gpu())
    )
    found = market(host("t", T4), host("a", A100))
    assert [placed(found.place(wanted)).host for _ in range(2)] == ["a", "t"]
    assert refused(found.place(wanted)).reasons == {"model": 2}


def test_a_gang_is_all_or_nothing():
    found = market(host("a", T4), host("b", T4))
    before = found.fleet.free.copy()
    refused(found.place_gang(Gang((gpu(), gpu(), gpu()))))
    assert (found.fleet.free == before).all()
    assert found.live() == []
    both = found.place_gang(Gang((gpu(), gpu())))
    assert isinstance(both, tuple)
    assert {p.host for p in both} == {"a", "b"}


def test_a_gang_packs_or_spreads():
    hosts = (host("a", T4, T4), host("b", T4, T4))
    packed = market(*hosts).place_gang(Gang((gpu(), gpu())))
    spread = market(*hosts).place_gang(Gang((gpu(), gpu()), spread=True))
    assert isinstance(packed, tuple)
    assert isinstance(spread, tuple)
    assert len({p.host for p in packed}) == 1
    assert len({p.host for p in spread}) == 2
    refused(market(*hosts).place_gang(Gang((gpu(),) * 3, spread=True)))


def test_a_gang_stays_in_one_region():
    hosts = (host("a", T4), host("b", T4, region="US"), host("c", T4, region="US"))
    both = market(*hosts).place_gang(Gang((gpu(), gpu()), same_region=True))
    assert isinstance(both, tuple)
    assert {p.host for p in both} == {"b", "c"}
    refused(market(*hosts).place_gang(Gang((gpu(),) * 3, same_region=True)))


def test_a_draining_host_keeps_its_leases_and_gets_no_new_ones():
    found = market(host("a", T4, T4))
    running = placed(found.place(gpu()))
    found.drain("a")
    assert refused(found.place(gpu())).reasons == {"draining": 1}
    assert found.live() == [running]
    found.drain("a", False)
    assert placed(found.place(gpu()))


def test_no_lease_reaches_into_a_maintenance_window():
    found = market(host("a", T4, maintenance=((10_000, 20_000),)))
    assert refused(found.place(gpu(duration_ms=5_001), now=5_000)).reasons == {"maintenance": 1}
    refused(found.place(gpu(), now=19_999))
    found.release(placed(found.place(gpu(duration_ms=5_000), now=5_000)))
    assert placed(found.place(gpu(), now=20_000))


def test_removing_a_host_ends_what_ran_there():
    found = market(host("a", T4), host("b"))
    running = placed(found.place(gpu()))
    assert found.remove("a") == [running]
    assert refused(found.place(gpu())).hosts == 1
    found.add(host("a", T4))
    assert placed(found.place(gpu())).host == "a"


def test_adopting_refuses_what_does_not_fit():
    found = market(host("a", T4))
    held = found.adopt("a", (0,), gpu())
    with pytest.raises(ValueError, match="no room"):
        found.adopt("a", (0,), gpu())
    found.release(held)
    with pytest.raises(KeyError):
        found.release(held)


def test_flexible_work_leaves_scarce_models_to_those_bound_to_them():
    bound = Request(1_000, 1_024, 1, gpu_models=frozenset({"A100"}))
    free = Request(1_000, 1_024, 1)
    found = Matchmaker(mix=[(bound, 1.0), (free, 1.0)])
    for at in range(4):
        found.add(Host(f"a{at}", 16_000, 65_536, (Gpu("A100"),)))
        found.add(Host(f"t{at}", 16_000, 65_536, (Gpu("T4"),)))
    assert {placed(found.place(free)).host[0] for _ in range(4)} == {"t"}
    assert {placed(found.place(bound)).host[0] for _ in range(4)} == {"a"}


def test_the_provider_learns_why_it_lost():
    found = market(host("dear", Gpu("T4", 16_384, rate=600_000)), host("cheap", T4, T4))
    placed(found.place(gpu()))
    placed(found.place(gpu(upload_mbps=0)))
    told = found.why_lost("dear")
    assert (told.asked, told.won, told.lost, told.reasons) == (2, 0, 2, {"price": 2})
    assert str(told) == "lost 2 of 2: 2 on price by 100 %"
    assert found.why_lost("cheap").won == 2


def test_preemption_names_the_least_of_the_lowest():
    found = market(host("a", T4, T4), host("b", T4, T4))
    low = placed(found.place(gpu(2, priority=1)))
    lower = [placed(found.place(gpu(priority=0))) for _ in range(2)]
    assert plan_preemption(found, gpu(priority=0), 0) is None
    plan = plan_preemption(found, gpu(priority=5), now=100, notice_ms=50)
    assert plan is not None
    assert len(plan.victims) == 1
    assert plan.victims[0] in lower
    assert plan.deadline_ms == 150
    whole = plan_preemption(found, gpu(2, priority=5), 0)
    assert whole is not None
    assert set(whole.victims) == set(lower)
    assert set(found.live()) == {low, *lower}
    refused(found.place(gpu()))


def test_learning_gives_the_same_answers_as_any_market_must():
    found = Matchmaker()
    for at in range(8):
        found.add(Host(f"h{at}", 32_000, 131_072, (Gpu("T4"),) * 4))
    shares = [placed(found.place(gpu(milli=250))) for _ in range(128)]
    assert len({(p.host, p.gpus) for p in shares}) == 32
    assert refused(found.place(gpu(milli=250))).reasons == {"gpu": 8}
