"""A world of channels and random transactions over it, from a seed.

Most transactions are what honest parties would send; the others have one or two things wrong, of
which some are harmless.  The world moves on only by what was accepted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from marketplace.domain.money import channel as twin
from marketplace.domain.money.address import Credential
from tests.contracts.support.scenes import (
    NOW,
    PERIOD,
    PROVIDERS,
    Instance,
    Scene,
    adapter,
    channel,
    claim,
    consumer,
    h28,
    provider,
)

LEAST = 1_000_000  # what an honest party leaves in an ADA channel for the min-UTxO


@dataclass
class Account:
    """What one channel has seen since its open."""

    deposited: int
    paid: int = 0
    bounty: int = 0
    refunded: int = 0
    signed: int = 0  # the greatest amount of a voucher that was used


@dataclass
class World:
    """*channels* live ones by number (the number also names the session key)."""

    rng: random.Random
    instance: Instance
    channels: dict[int, twin.Channel] = field(default_factory=dict)
    accounts: dict[int, Account] = field(default_factory=dict)
    now: int = NOW
    born: int = 0

    def open(self) -> None:
        """Another channel; a few with fees or claimed amounts of an odd size."""
        n, rng = self.born, self.rng
        self.born += 1
        fresh = channel(
            n,
            instance=self.instance,
            payout=rng.randrange(4),
            amount=rng.randint(3_000_000, 90_000_000),
            claimed=0,
            fee_bps=rng.choice([0, 1, 50, 100, 9_999, 10_000]),
            stake=rng.random() < 0.8,
        )
        self.channels[n] = fresh
        self.accounts[n] = Account(fresh.held.amount)

    def scene(self) -> tuple[list[int], Scene]:
        """The numbers of the channels that a random transaction moves, and the transaction."""
        rng = self.rng
        count = min(len(self.channels), rng.choice([1, 1, 2, 2, 3, 4]))
        numbers = rng.sample(sorted(self.channels), count)
        # Neighbours of one payout are common, so that runs join and break.
        numbers.sort(
            key=lambda n: (
                (self.channels[n].stage.consts.payout, n) if rng.random() < 0.6 else (b"", n)
            )
        )
        channels = [self.channels[n] for n in numbers]
        lower, upper = self.now, self.now + 60_000
        pairs = [self._step(n, each, lower) for n, each in zip(numbers, channels, strict=True)]
        signers = sorted({s for _, who in pairs for s in who})
        scene = Scene(
            channels,
            [step for step, _ in pairs],
            signers,
            lower,
            upper,
            self.instance,
            funded=rng.random() < 0.5,
        )
        return numbers, scene.laid_out()

    def _step(self, n: int, each: twin.Channel, lower: int) -> tuple[twin.Step, list[bytes]]:
        """A step that is allowed, and who must sign it."""
        rng, stage = self.rng, each.stage
        voucher = self._voucher(n, each)
        who = [a for a in range(40) if provider(a).payout() == stage.consts.payout]
        ender = [adapter(who[0])]
        wants: list[tuple[twin.Step, list[bytes]]] = [(twin.Finish(), ender)]
        if voucher is not None:
            wants += [(voucher, [])] * 6 + [(twin.Finish(voucher), ender)]
        if isinstance(stage, twin.Open):
            wants += [(twin.TopUp(rng.randint(1, 9_000_000)), [consumer(n)])] * 2
            wants += [(twin.Close(), [consumer(n)])]
        elif stage.expire_at_ms <= lower:
            wants += [(twin.Finish(voucher), [])] * 2
        return rng.choice(wants)

    def _voucher(self, n: int, each: twin.Channel) -> twin.Claim | None:
        spare = each.held.amount - (LEAST if self.instance.unit is None else 0)
        if spare <= 0:
            return None
        rng, claimed = self.rng, each.stage.claimed
        take_to = claimed + (spare if rng.random() < 0.1 else rng.randint(1, max(1, spare // 3)))
        return claim(n, take_to + rng.choice([0, 0, 1, 10**6]), take_to)

    def apply(self, numbers: list[int], steps: Sequence[twin.Step], wills: list[twin.Will]) -> None:
        """The chain after an accepted transaction; money is counted, channels replaced."""
        for n, step, will in zip(numbers, steps, wills, strict=True):
            before, account = self.channels[n], self.accounts[n]
            account.paid += will.pay
            account.bounty += will.bounty
            account.signed = max(account.signed, _cum(step))
            assert account.paid + account.bounty <= account.signed
            match will.output:
                case twin.Continuing(after):
                    account.deposited += after.held.amount - before.held.amount + will.taken
                    assert after.stage.claimed >= before.stage.claimed
                    assert after.stage.consts == before.stage.consts
                    assert after.address == before.address
                    self.channels[n] = after
                case twin.Refund(_, held):
                    account.refunded = held.amount
                    assert account.deposited == account.paid + account.bounty + account.refunded
                    del self.channels[n]
                    self.open()
        self.now += self.rng.choice([1_000, 60_000, PERIOD])

    # --- what goes wrong --------------------------------------------------------------------
    def spoil(self, scene: Scene) -> Scene:
        """*scene* with one or two things changed."""
        for _ in range(self.rng.choice([1, 1, 2])):
            scene = self.rng.choice(_SPOILERS)(self.rng, scene)
        return scene


def _cum(step: twin.Step) -> int:
    """What the session key signed for, in a step with a voucher."""
    match step:
        case twin.Claim(cum) | twin.Finish(twin.Claim(cum)):
            return cum
        case _:
            return 0


Spoiler = Callable[[random.Random, Scene], Scene]


def _output(change: Callable[[random.Random, twin.Output], twin.Output]) -> Spoiler:
    def apply(rng: random.Random, scene: Scene) -> Scene:
        outputs = list(scene.outputs)
        if outputs:
            at = rng.randrange(len(outputs))
            outputs[at] = change(rng, outputs[at])
        return replace(scene, outputs=outputs)

    return apply


def _step(change: Callable[[random.Random, twin.Step], twin.Step]) -> Spoiler:
    def apply(rng: random.Random, scene: Scene) -> Scene:
        steps = list(scene.steps)
        if steps:
            at = rng.randrange(len(steps))
            steps[at] = change(rng, steps[at])
        return replace(scene, steps=steps)

    return apply


def _claim(rng: random.Random, x: twin.Claim) -> twin.Claim:
    return rng.choice(
        [
            replace(x, cum=x.cum + rng.choice([-1, 1, 2**64])),
            replace(x, take_to=x.take_to + rng.choice([-1, 1, 10**7])),
            replace(x, take_to=0),
            replace(x, signature=x.signature[:-1]),
            replace(x, signature=bytes([x.signature[0] ^ 4]) + x.signature[1:]),
            claim(rng.randrange(40), x.cum, x.take_to),
        ]
    )


def _wrong_step(rng: random.Random, step: twin.Step) -> twin.Step:
    match step:
        case twin.Claim():
            return rng.choice([_claim(rng, step), twin.Finish(step), twin.Close()])
        case twin.Finish(None):
            return rng.choice([twin.Close(), twin.TopUp(1)])
        case twin.Finish(last):
            assert last is not None
            return rng.choice([twin.Finish(), last, twin.Finish(_claim(rng, last))])
        case twin.TopUp(amount):
            return twin.TopUp(rng.choice([0, -1, amount + 1, -amount]))
        case twin.Close():
            return rng.choice([twin.TopUp(5), twin.Finish()])


def _wrong_stage(rng: random.Random, out: twin.Output) -> twin.Output:
    stage = out.stage
    if stage is None:
        return replace(out, loaded=True)
    if rng.random() < 0.3:
        return replace(out, stage=None)
    consts = rng.choice(
        [
            replace(stage.consts, payout=provider(7).payout()),
            replace(stage.consts, consumer_vkh=h28("thief")),
            replace(stage.consts, fee_bps=stage.consts.fee_bps + 1),
            stage.consts,
        ]
    )
    return replace(
        out, stage=replace(stage, consts=consts, claimed=stage.claimed - rng.choice([0, 1]))
    )


def _wrong_address(rng: random.Random, out: twin.Output) -> twin.Output:
    where = out.address
    thief = Credential(h28("thief"))
    moved = rng.choice(
        [replace(where, stake=thief), replace(where, payment=thief), replace(where, stake=None)]
    )
    return replace(out, address=moved)


def _take_above(rng: random.Random, step: twin.Step) -> twin.Step:
    match step:
        case twin.Claim():
            return replace(step, take_to=step.cum + rng.choice([1, 10**6]))
        case twin.Finish(twin.Claim() as last):
            return twin.Finish(replace(last, take_to=last.cum + 1))
        case _:
            return step


def _consumers_want(rng: random.Random, scene: Scene) -> Scene:
    """One step becomes the consumer's, who signs, whatever the stage."""
    steps = list(scene.steps)
    if steps:
        steps[rng.randrange(len(steps))] = rng.choice([twin.TopUp(5), twin.TopUp(0), twin.Close()])
    return replace(scene, steps=steps, signers=[*scene.signers, *scene.owners])


def _pay_less(_: random.Random, scene: Scene) -> Scene:
    """Every payout is one short."""

    def short(out: twin.Output) -> twin.Output:
        paid = out.address.payout() in PROVIDERS
        return replace(out, held=out.held.plus(-1)) if paid else out

    return replace(scene, outputs=[short(out) for out in scene.outputs])


def _shuffle(rng: random.Random, scene: Scene) -> Scene:
    outputs = list(scene.outputs)
    rng.shuffle(outputs)
    return replace(scene, outputs=outputs)


def _merge(rng: random.Random, scene: Scene) -> Scene:
    """Drop one output, and let another pay for both."""
    outputs = list(scene.outputs)
    if len(outputs) > 1:
        gone = outputs.pop(rng.randrange(len(outputs)))
        at = rng.randrange(len(outputs))
        outputs[at] = replace(outputs[at], held=outputs[at].held.plus(gone.held.amount))
    return replace(scene, outputs=outputs)


_SPOILERS: list[Spoiler] = [
    _output(lambda rng, o: replace(o, held=o.held.plus(rng.choice([-1, 1, 10**6])))),
    _output(lambda _, o: replace(o, loaded=True)),
    _output(_wrong_stage),
    _output(_wrong_address),
    _step(_wrong_step),
    _step(_wrong_step),
    _step(_take_above),
    _consumers_want,
    _pay_less,
    lambda _, s: replace(s, steps=list(reversed(s.steps))),
    lambda _, s: replace(s, steps=[*s.steps, twin.Finish()]),
    lambda _, s: replace(s, steps=s.steps[:-1]),
    lambda rng, s: replace(s, signers=[x for x in s.signers if rng.random() < 0.3]),
    lambda rng, s: replace(
        s, signers=[*s.signers, consumer(rng.randrange(40)), adapter(rng.randrange(4))]
    ),
    lambda rng, s: replace(s, lower_ms=rng.choice([None, NOW - 1, (s.lower_ms or NOW) + PERIOD])),
    lambda rng, s: replace(s, upper_ms=rng.choice([None, (s.upper_ms or NOW) + 1])),
    _shuffle,
    _merge,
    lambda _, s: replace(s, outputs=s.outputs[:-1]),
    lambda _, s: replace(s, mints=True),
    lambda _, s: replace(s, withdrawals=2),
]
