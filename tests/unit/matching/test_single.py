"""One row in plain numbers and many as arrays: the same scores to the last bit, and the same
choices.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from marketplace.matching import Gpu, Host, Matchmaker, Placement, Request, filters
from marketplace.matching.scoring import scores_scalar, shapes
from marketplace.matching.scoring.scores import score

MODELS = ("A", "B", "C")


def a_request(rng: random.Random, owner: str = "") -> Request:
    count = rng.choice((0, 1, 1, 1, 1, 2, 3))
    return Request(
        rng.choice((500, 2_000, 8_000, 30_000)),
        rng.choice((1_000, 8_000, 60_000)),
        count,
        rng.choice((100, 250, 470, 500, 810, 1000)) if count == 1 else 1000,
        gpu_models=frozenset(rng.sample(MODELS, 2)) if rng.random() < 0.2 else frozenset(),
        disk_mib=rng.choice((0, 0, 500)),
        max_gpu_rate=rng.choice((None, None, None, 200_000)),
        owner=owner,
    )


def a_market(rng: random.Random, most: int) -> Matchmaker:
    """Up to *most* devices a host, some of them held by three owners and by nobody in
    particular.
    """
    learnt = [(a_request(rng), rng.random()) for _ in range(rng.randrange(1, 20))]
    several = [(Request(4_000, 8_000, n), 0.5) for n in (2, 4)]
    made = Matchmaker(mix=[*learnt, *several])
    for number in range(rng.randrange(3, 12)):
        gpus = tuple(
            Gpu(
                rng.choice(MODELS),
                16_000,
                rng.choice((0, 100_000, 333_333)),
                offered=rng.choice((1000, 1000, 700)),
            )
            for _ in range(rng.randrange(1, most + 1))
        )
        made.add(Host(f"h{number}", 32_000, 131_072, gpus, disk_mib=rng.choice((0, 10_000))))
    for _ in range(rng.randrange(40)):
        made.attempt(a_request(rng, rng.choice(("", "ada", "bob", "eve"))))
    return made


@pytest.mark.parametrize("most", [1, 2, 7, 8, 9, 16])
def test_a_row_alone_scores_as_it_does_among_others(most: int):
    looked = 0
    for seed in range(30):
        rng = random.Random(1_000 * most + seed)
        market = a_market(rng, most)
        fleet, rows = market.fleet, np.arange(market.fleet.used)
        for _ in range(10):
            request = a_request(rng, rng.choice(("", "ada", "new")))
            market.shapes.of(request)  # makes the standing
            standing = market.shapes.standing
            assert standing is not None
            owner = market.owner_number(request.owner)
            room = (fleet.cpu[rows] >= request.cpu_milli) & (fleet.mem[rows] >= request.memory_mib)
            fits = None
            if request.gpu_count:
                fits = filters.open_devices(fleet, rows, request, owner)
                room &= filters.enough(fits, request)
            able = rows[room]
            looked += len(able)
            some = None if fits is None else fits[able]
            costs, slots = score(fleet, standing, able, request, some, 8.0)
            for at, row in enumerate(able.tolist()):
                devices = [] if fits is None else fits[row].tolist()
                cost, slot = scores_scalar.score_row(fleet, standing, row, request, devices, 8.0)
                assert cost == costs[at], (seed, row, request)
                assert slot == slots[at]
    assert looked > 300


def test_choices_do_not_depend_on_how_many_rows_count_as_few(monkeypatch: pytest.MonkeyPatch):
    def choices(few: int) -> list[tuple[str, tuple[int, ...]] | None]:
        monkeypatch.setattr(shapes, "FEW", few)
        rng = random.Random(7)
        market = a_market(rng, 8)
        live: list[Placement] = []
        chosen: list[tuple[str, tuple[int, ...]] | None] = []
        for _ in range(400):
            if live and rng.random() < 0.45:
                market.release(live.pop(rng.randrange(len(live))))
            placed = market.attempt(a_request(rng, rng.choice(("", "ada", "ada", "bob"))))
            chosen.append(None if placed is None else (placed.host, placed.gpus))
            if placed is not None:
                live.append(placed)
        return chosen

    usual = choices(shapes.FEW)
    assert usual == choices(0) == choices(1_000)
    assert None in usual and len({one[0] for one in usual if one is not None}) > 2


def test_an_owner_with_many_leases_chooses_as_if_all_its_hosts_were_looked_at_anew():
    rng = random.Random(3)
    market = a_market(rng, 4)
    live: list[Placement] = []
    for step in range(600):
        request = a_request(rng, rng.choice(("ada", "ada", "bob")))
        if step % 90 == 89:  # an owner leaves and comes back under another number
            for placed in [p for p in market.live() if p.request.owner == request.owner]:
                market.release(placed)
            live = [p for p in live if p.request.owner != request.owner]
        elif live and rng.random() < 0.45:
            market.release(live.pop(rng.randrange(len(live))))
        if rng.random() < 0.05:
            market.drain(f"h{rng.randrange(3)}", rng.random() < 0.5)
        kept = market.quote(request)
        market._beside._kept.clear()
        market.shapes._kept.clear()
        anew = market.quote(request)
        assert isinstance(kept, Placement) == isinstance(anew, Placement)
        if isinstance(kept, Placement):
            assert kept == anew, step
            placed = market.attempt(request)
            assert placed is not None and (placed.host, placed.gpus) == (kept.host, kept.gpus)
            live.append(placed)
