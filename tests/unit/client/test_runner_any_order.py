"""One job at its consumer: any order and any repetition of inputs, and a death between any two
effects.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marketplace.client.jobs.core import effects, inputs
from marketplace.client.jobs.core.decide import decide
from marketplace.client.jobs.core.stage import Stage
from marketplace.client.jobs.core.state import State, restored
from marketplace.domain.work.job_machine import JobState
from tests.unit.support.consumer_world import EXPIRES_MS, Away, Died, World

STEPS = 80


def step(world: World) -> None:
    """Something happens: the market moves, time passes, a person answers, anything is said
    again.
    """
    match world.dice.randrange(8):
        case 0 | 1 | 2:
            world.feed(inputs.TimePassed())
        case 3 | 4:
            world.moves()
        case 5:
            world.answer()
        case 6 if world.heard:
            world.feed(world.dice.choice(world.heard))
        case 7 if world.dice.random() < 0.02:
            world.now = EXPIRES_MS
        case _:
            world.bill()


def play(world: World) -> Counter[Stage]:
    """A story to its end; how often the job was seen in each stage."""
    seen: Counter[Stage] = Counter()
    world.state = decide(State(), inputs.Posted(), 0).state
    for _ in range(STEPS):
        try:
            step(world)
        except Died:
            world.restart()
        except Away:
            pass
        world.check()
        seen[world.state.stage] += 1
    world.fair = True  # the market speaks true from here on, and nobody dies
    world.view = inputs.Viewed(JobState.ENDED, world.view.lease)
    for _ in range(4):
        world.feed(inputs.TimePassed())
        world.check()
    assert world.state.stage is Stage.OVER
    return seen


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.booleans())
def test_no_channel_twice_nothing_above_the_approved_and_an_end(dice: Random, kept: bool) -> None:
    play(World(dice, kept))


def test_the_dice_get_everywhere() -> None:
    """Else the property above would hold for want of anything that happens."""
    seen: Counter[Stage] = Counter()
    signed, channels, declined, reused = 0, 0, 0, 0
    for seed in range(300):
        world = World(Random(seed), kept=seed % 2 == 1)
        seen += play(world)
        signed += len(world.leases())
        channels += len(world.opened)
        declined += len(world.no)
        reused += sum(len(channel.leases) > 1 for channel in world.books.values())
    living = (Stage.WAITING, Stage.ASKED, Stage.SERVED, Stage.ENDING, Stage.OVER)
    assert all(seen[stage] for stage in living), seen
    assert signed > channels > 90 and declined > 10 and reused > 5


def test_a_quote_that_lapsed_while_a_person_thought_is_not_signed() -> None:
    world = World(Random(0), fair=True)
    world.feed(inputs.Wanted())
    world.feed(inputs.Posted())
    world.quote(ceiling=100)
    world.feed(inputs.TimePassed())
    [lease] = world.shown
    world.now = EXPIRES_MS
    world.yes.add(lease)
    world.feed(inputs.Answered(lease, yes=True))
    assert world.reported[-1] == "QUOTE_REFUSED" and not world.books and not world.opened
    assert world.view.state is JobState.ENDED  # declined: nobody else waits for it


def test_a_quote_of_a_job_that_never_paid_is_nobodys_here_after_a_restart() -> None:
    world = World(Random(0), fair=True)
    world.quote(ceiling=100)
    world.restart()
    world.feed(inputs.TimePassed())
    assert world.state.stage is Stage.WAITING and not world.shown and not world.books


def test_a_yes_to_another_quote_is_told_to_whoever_said_it() -> None:
    outcome = decide(State(Stage.WAITING, asks=True), inputs.Answered("lease_9", True), 0)
    [report] = outcome.effects
    assert isinstance(report, effects.Report) and report.refusal.code == "QUOTE_REFUSED"


def test_a_word_that_this_version_does_not_know_moves_nothing() -> None:
    outcome = decide(restored(), inputs.Viewed(None, "lease_1"), 0)
    assert outcome.state == restored() and outcome.effects == (effects.Wait(500),)


def test_posting_that_is_refused_leaves_no_key_behind() -> None:
    refused = decide(State(), inputs.NotPosted(), 0)
    assert refused.state.stage is Stage.OVER and refused.effects == (effects.ForgetKeys(),)
    assert decide(refused.state, inputs.Wanted(), 0).effects == ()
