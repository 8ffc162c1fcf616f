"""The twin and the deployed bytes agree on every transaction of a random world.

On each one: the same verdict; on a refusal the same guard (trace build); on an acceptance the
money of every channel adds up to the lovelace and ``claimed`` never falls.  At the end either
party alone gets out of every channel that is left.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from contracts.channel.terms import Build
from marketplace.domain.money import channel as twin
from marketplace.domain.money.channel_refusals import ChannelRefused
from tests.contracts.support.scenes import (
    ADA,
    PROVIDERS,
    TOKEN,
    Instance,
    Scene,
    adapter,
    claim,
    consumer,
    judge,
)
from tests.contracts.support.world import World

CHANNELS = 24
TRACED = Build(traces=True)


def _twin(scene: Scene) -> list[twin.Will] | ChannelRefused:
    try:
        return twin.settle(scene.judged())
    except ChannelRefused as refused:
        return refused


def _agree(world: World, numbers: list[int], scene: Scene, tally: Counter[str]) -> None:
    """Judge *scene* both ways; the world moves on when both accept."""
    tx, opinion = scene.tx(), _twin(scene)
    accepted = judge(world.instance, tx).ok
    if isinstance(opinion, ChannelRefused):
        assert not accepted, opinion
        trace = judge(world.instance, tx, TRACED).trace
        assert trace == ((f"{opinion.guard:02}",) if opinion.guard else ()), opinion
        tally[f"guard {opinion.guard}"] += 1
        return
    assert accepted, scene
    taken = sum(w.taken for w in opinion)
    left = sum(_left(w) for w in opinion)
    added = sum(step.amount for step in scene.steps if isinstance(step, twin.TopUp))
    assert sum(c.held.amount for c in scene.channels) + added == left + taken
    assert taken == sum(w.pay + w.bounty for w in opinion)
    world.apply(numbers, scene.steps, opinion)
    tally["accepted"] += 1
    tally["channels"] += len(numbers)


def _left(will: twin.Will) -> int:
    match will.output:
        case twin.Continuing(channel):
            return channel.held.amount
        case twin.Refund(_, held):
            return held.amount


def _gets_out(world: World, n: int) -> None:
    """The consumer with one signature and patience; the provider with its adapter's key."""
    each = world.channels[n]
    if isinstance(each.stage, twin.Open):
        close = Scene(
            [each], [twin.Close()], [consumer(n)], None, world.now, world.instance
        ).laid_out()
        assert judge(world.instance, close.tx()).ok
        closing = close.outputs[0].stage
        assert isinstance(closing, twin.Closing)
        waiting = replace(each, stage=closing)
    else:
        waiting = each
    assert isinstance(waiting.stage, twin.Closing)
    home = Scene([waiting], [twin.Finish()], [], waiting.stage.expire_at_ms, None, world.instance)
    assert judge(world.instance, home.laid_out().tx()).ok
    if each.held.amount > 1:
        owner = next(
            k
            for k, where in enumerate(PROVIDERS.values())
            if where.payout() == each.stage.consts.payout
        )
        last = claim(n, each.stage.claimed + each.held.amount - 1)
        end = Scene([each], [twin.Finish(last)], [adapter(owner)], None, None, world.instance)
        assert judge(world.instance, end.laid_out().tx()).ok


def _play(instance: Instance, seed: int, transactions: int) -> Counter[str]:
    world = World(random.Random(seed), instance)
    for _ in range(CHANNELS):
        world.open()
    tally: Counter[str] = Counter()
    for _ in range(transactions):
        numbers, scene = world.scene()
        spoilt = world.rng.random() < 0.4
        _agree(world, numbers, world.spoil(scene) if spoilt else scene, tally)
    for n in list(world.channels)[: max(3, transactions // 50)]:
        _gets_out(world, n)
    return tally


@pytest.mark.parametrize("instance", [pytest.param(i, id=i.name) for i in (ADA, TOKEN)])
def test_twin_and_script_agree(instance: Instance) -> None:
    tally = _play(instance, 1, 40)
    assert tally["accepted"] >= 20


def _guards(tally: Counter[str]) -> int:
    """How many different guards refused something."""
    return sum(1 for met in tally if met.startswith("guard"))


PROVE, NIGHTLY = pytest.mark.prove, pytest.mark.nightly


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, marks=PROVE) for seed in (10, 11)),
        *(pytest.param(seed, marks=NIGHTLY) for seed in (12, 13)),
    ],
)
def test_twin_and_script_agree_on_520_in_ada(seed: int) -> None:
    tally = _play(ADA, seed, 520)
    assert tally["accepted"] >= 250
    assert _guards(tally) >= 11, tally


@pytest.mark.parametrize("seed", [pytest.param(20, marks=PROVE), pytest.param(21, marks=NIGHTLY)])
def test_twin_and_script_agree_on_300_in_a_token(seed: int) -> None:
    tally = _play(TOKEN, seed, 300)
    assert tally["accepted"] >= 150
    assert _guards(tally) >= 9, tally
