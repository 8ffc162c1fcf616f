"""Making room: whom it costs the place, and that nobody else takes the room meanwhile.

Random markets, judged by sums over what is held and by trying every host by hand.
"""

from __future__ import annotations

import random

import pytest

from marketplace.matching import (
    FairQueue,
    Gpu,
    Host,
    Matchmaker,
    NoMatch,
    Placement,
    Preemption,
    Request,
    Reservations,
    plan_preemption,
)

OWNERS = ("ada", "bob", "cyd", "dan")
PRIORITIES = (0, 0, 0, 1, 3)


def a_market(rng: random.Random) -> Matchmaker:
    market = Matchmaker()
    for at in range(rng.randint(1, 4)):
        gpu = Gpu(
            "T4",
            16_000,
            100_000,
            offered=rng.choice((1000, 1000, 600)),
        )
        market.add(Host(f"h{at}", rng.choice((4_000, 16_000)), 32_000, (gpu,) * rng.randint(1, 4)))
    return market


def a_request(rng: random.Random, priority: int | None = None) -> Request:
    count = rng.choice((0, 1, 1, 1, 2, 3))
    return Request(
        rng.choice((500, 1_000, 3_000)),
        rng.choice((1_000, 8_000)),
        count,
        rng.choice((250, 500, 1000)) if count == 1 else 1000,
        owner=rng.choice(OWNERS),
        priority=rng.choice(PRIORITIES) if priority is None else priority,
    )


def check_books(market: Matchmaker) -> None:
    """No host, and no device, has given more than it has; what is free is what nobody holds."""
    for name, row in market.fleet.row_of.items():
        host = market.fleet.at(row)
        there = [p for p in market.live() if p.host == name]
        assert sum(p.request.cpu_milli for p in there) <= host.cpu_milli
        assert sum(p.request.memory_mib for p in there) <= host.memory_mib
        assert market.fleet.cpu[row] == host.cpu_milli - sum(p.request.cpu_milli for p in there)
        for slot, gpu in enumerate(host.gpus):
            held = [p for p in there if slot in p.gpus]
            left = gpu.offered - sum(p.request.gpu_milli for p in held)
            assert 0 <= left == market.fleet.free[row, slot]
            assert len({p.request.owner for p in held}) <= 1


def fits_without(market: Matchmaker, request: Request, host: str, ended: list[Placement]) -> bool:
    """Whether *request* would fit on *host* had *ended* never run: on a market made anew."""
    anew = Matchmaker()
    anew.add(market.fleet.at(market.fleet.row_of[host]))
    for placed in market.live():
        if placed.host == host and placed not in ended:
            anew.adopt(host, placed.gpus, placed.request)
    return anew.fits_on(host, request)


def check_plan(market: Matchmaker, request: Request, plan: Preemption) -> None:
    victims = list(plan.victims)
    assert victims
    assert {v.host for v in victims} == {plan.host}
    assert all(v.request.priority < request.priority for v in victims)
    assert fits_without(market, plan.request, plan.host, victims)
    for spared in victims:
        others = [v for v in victims if v is not spared]
        assert not fits_without(market, plan.request, plan.host, others), "one victim too many"


def check_shares(queue: FairQueue, request: Request, victims: tuple[Placement, ...]) -> None:
    """Each other account had its fair share or more before the last of its own was named."""
    fair = queue.fair_share()
    for owner in {v.request.owner for v in victims} - {request.owner}:
        theirs = [v for v in victims if v.request.owner == owner]
        before = [queue.share_after(owner, [v for v in theirs if v is not last]) for last in theirs]
        assert max(before) >= fair


def check_none(market: Matchmaker, wanted: Request, plan: Preemption | None) -> None:
    """Where no room can be made even without any rule of shares, no host has it."""
    if plan_preemption(market, wanted, 0) is not None:
        return
    assert plan is None
    for host in market.fleet.row_of:
        lower = [p for p in market.live() if p.request.priority < 5 and p.host == host]
        assert not fits_without(market, wanted, host, lower)


def trial(seed: int, operations: int) -> int:
    """Random placements, ends, notices and arrivals; how much room was made."""
    rng = random.Random(seed)
    market = a_market(rng)
    queue, rooms = FairQueue(market), Reservations(market)
    held: dict[str, Placement] = {}
    made: dict[str, tuple[Preemption, list[str]]] = {}
    taken = 0

    def may(request: Request):
        def allowed(placed: Placement, ended: object) -> bool:
            if placed.request.owner == request.owner:
                return True
            assert isinstance(ended, list)
            return queue.share_after(placed.request.owner, ended) >= queue.fair_share()

        return allowed

    def end(name: str) -> None:
        host = held.pop(name).host
        queue.finished(name, 0)
        rooms.grow(host, name)

    for at in range(operations):
        act = rng.random()
        if act < 0.45:
            placed = market.place(a_request(rng))
            if not isinstance(placed, NoMatch):
                held[f"j{at}"] = placed
                queue.adopt(f"j{at}", placed, 0)
        elif act < 0.60 and held:
            end(rng.choice(sorted(held)))
        elif act < 0.85:
            wanted = a_request(rng, 5)
            if not isinstance(market.quote(wanted), NoMatch):
                continue
            busy = {name for _, names in made.values() for name in names}
            names = {p.id: name for name, p in held.items() if name not in busy}
            before = (market.fleet.free.copy(), market.fleet.cpu.copy(), market.fleet.owner.copy())
            among = [held[name] for name in names.values()]
            plan = plan_preemption(market, wanted, 0, among=among, may=may(wanted))
            after = (market.fleet.free, market.fleet.cpu, market.fleet.owner)
            assert all((a == b).all() for a, b in zip(before, after, strict=True))
            check_none(market, wanted, plan)
            if plan is not None:
                check_plan(market, wanted, plan)
                check_shares(queue, wanted, plan.victims)
                victims = [names[v.id] for v in plan.victims]
                rooms.keep(f"r{at}", plan.request, plan.host, plan.gpus, frozenset(victims))
                made[f"r{at}"] = (plan, victims)
        elif made:
            name = rng.choice(sorted(made))
            plan, victims = made[name]
            living = [v for v in victims if v in held]
            if rng.random() < 0.1:
                rooms.drop(name)
                del made[name]
            elif living and not rooms.complete(name):
                end(rng.choice(living))
            else:
                assert rooms.complete(name)
                got = rooms.take(name, 0)
                assert got is not None
                del made[name]
                assert (got.host, got.request) == (plan.host, plan.request)
                taken += 1
                held[f"p{at}"] = got
                queue.adopt(f"p{at}", got, 0)
        check_books(market)
    return taken


@pytest.mark.parametrize("seed", range(6))
def test_room_is_made_for_the_least_and_nobody_else_takes_it(seed: int) -> None:
    assert trial(seed, 250) > 0


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_room_over_many_random_markets(seed: int) -> None:
    trial(seed, 500)


def host(name: str, devices: int, **more: object) -> Host:
    gpu = Gpu("T4", 16_000, 100_000)
    return Host(name, 32_000, 64_000, (gpu,) * devices, **more)  # pyright: ignore[reportArgumentType]


def gpus(count: int = 1, **more: object) -> Request:
    return Request(1_000, 1_000, count, **more)  # pyright: ignore[reportArgumentType]


def placed(answer: Placement | NoMatch) -> Placement:
    assert isinstance(answer, Placement), str(answer)
    return answer


def market_of(*hosts: Host) -> Matchmaker:
    market = Matchmaker()
    for one in hosts:
        market.add(one)
    return market


def test_the_free_part_is_held_and_the_rest_as_it_comes() -> None:
    market = market_of(host("a", 3))
    rooms = Reservations(market)
    equal = placed(market.place(gpus(priority=5, owner="dan")))
    low = placed(market.place(gpus(owner="bob")))
    wanted = gpus(2, priority=5, owner="ada")
    plan = plan_preemption(market, wanted, 0)
    assert plan is not None and plan.victims == (low,)
    rooms.keep("ada's", plan.request, plan.host, plan.gpus)
    # One device is free and one of the victim's is needed: the free one is nobody else's any more.
    assert isinstance(market.place(gpus(owner="cyd")), NoMatch)
    assert not rooms.complete("ada's")
    market.release(low)
    rooms.grow("a")
    assert rooms.complete("ada's")
    assert isinstance(market.place(gpus(owner="cyd")), NoMatch)
    got = rooms.take("ada's", 0)
    assert got is not None and got.gpus == plan.gpus
    assert "ada's" not in rooms
    assert market.live() == [equal, got]


def test_room_that_is_given_up_is_everybodys() -> None:
    market = market_of(host("a", 1))
    rooms = Reservations(market)
    low = placed(market.place(gpus(owner="bob")))
    rooms.keep("ada's", gpus(priority=5, owner="ada"), "a", (0,))
    market.release(low)
    rooms.grow("a")
    assert isinstance(market.place(gpus(owner="cyd")), NoMatch)
    rooms.drop("ada's")
    rooms.drop("ada's")
    assert market.live() == []
    assert placed(market.place(gpus(owner="cyd")))


def test_room_is_not_taken_on_a_host_that_drains_or_left() -> None:
    market = market_of(host("a", 1), host("b", 1))
    rooms = Reservations(market)
    rooms.keep("one", gpus(owner="ada"), "a", (0,))
    rooms.keep("two", gpus(owner="ada"), "b", (0,))
    assert rooms.complete("one") and rooms.complete("two")
    market.drain("a")
    market.remove("b")
    assert not rooms.complete("two")
    assert rooms.take("one", 0) is None
    assert rooms.take("two", 0) is None
    assert market.live() == []


def test_a_host_that_comes_back_is_held_again() -> None:
    market = market_of(host("a", 1))
    rooms = Reservations(market)
    rooms.keep("one", gpus(owner="ada"), "a", (0,))
    market.remove("a")
    rooms.grow("a")
    market.add(host("a", 1))
    rooms.grow("a")
    assert rooms.complete("one")
    assert isinstance(market.place(gpus(owner="cyd")), NoMatch)
    with pytest.raises(ValueError, match="already"):
        rooms.keep("one", gpus(), "a", (0,))
    with pytest.raises(KeyError):
        rooms.keep("three", gpus(), "nowhere", (0,))


def test_equal_priority_and_protected_accounts_are_never_named() -> None:
    market = market_of(host("a", 2))
    queue = FairQueue(market)
    for name, owner, priority in (("x", "bob", 5), ("y", "cyd", 0)):
        queue.adopt(name, placed(market.place(gpus(owner=owner, priority=priority))), 0)
    wanted = gpus(priority=5, owner="ada")
    plan = plan_preemption(market, wanted, 0)
    assert plan is not None and [v.request.owner for v in plan.victims] == ["cyd"]
    assert plan_preemption(market, wanted, 0, may=lambda v, _: v.request.owner != "cyd") is None
    assert plan_preemption(market, wanted, 0, rank=lambda _: 5) is None
    assert plan_preemption(market, wanted, 0, among=[]) is None


def test_alternatives_are_made_room_for_in_order_with_their_least_count() -> None:
    market = market_of(host("a", 2))
    for _ in range(2):
        placed(market.place(gpus(owner="bob")))
    plan = plan_preemption(market, gpus(1, gpu_count_max=2, priority=1, owner="ada"), 0)
    assert plan is not None and len(plan.victims) == 1
    other = gpus(2, priority=1, owner="ada")
    wanted = gpus(3, any_of=(other,), priority=1, owner="ada")
    plan = plan_preemption(market, wanted, 0)
    assert plan is not None and (plan.request, len(plan.victims)) == (other, 2)


def test_shares_of_the_queue_know_what_an_end_would_leave() -> None:
    market = market_of(host("a", 4))
    queue = FairQueue(market)
    both = [placed(market.place(gpus(owner="bob"))) for _ in range(2)]
    for at, one in enumerate(both):
        queue.adopt(f"j{at}", one, 0)
    assert queue.fair_share() == 1.0
    queue.submit("w", gpus(4, owner="ada"), 0)
    assert queue.fair_share() == 0.5
    assert queue.share("bob") == queue.share_after("bob", []) == 0.5
    assert queue.share_after("bob", both[:1]) == 0.25
    assert queue.share_after("nobody", both) == 0.0
