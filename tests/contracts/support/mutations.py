"""Labelled mutations: each one value away from an accepted control, each with the guard it meets.

Guard 0 is a refusal without a number (a builtin that fails on what it is given).

Over 400 lines: the list of all mutations is read as one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from uplc import ast as u

from marketplace.domain.money import channel as twin
from marketplace.domain.money.address import Address, Credential
from tests.contracts.support import context as c
from tests.contracts.support.scenes import (
    NOW,
    PERIOD,
    Instance,
    Scene,
    adapter,
    address_data,
    channel_out,
    claim,
    consumer,
    controls,
    funding,
    h28,
    provider,
    session,
    stage_data,
    step_data,
)

Change = Callable[[c.Tx], c.Tx]


@dataclass(frozen=True)
class Mutation:
    """*change* applied to *control* is refused at *guard*.

    Not ``alone``: another guard would refuse it too, were this one gone (outputs out of place
    break several rules at once).
    """

    label: str
    guard: int
    control: str
    change: Change
    alone: bool = True

    def __str__(self) -> str:
        return f"{self.control}: {self.label}"


# --- changes ----------------------------------------------------------------------------------
def output(at: int, change: Callable[[c.Out], c.Out]) -> Change:
    def apply(tx: c.Tx) -> c.Tx:
        outputs = list(tx.outputs)
        outputs[at] = change(outputs[at])
        return tx.with_(outputs=outputs)

    return apply


def step(at: int, changed: c.Data) -> Change:
    def apply(tx: c.Tx) -> c.Tx:
        steps = list(_steps(tx))
        steps[at] = changed
        return tx.with_(redeemer=c.listing(*steps))

    return apply


def _steps(tx: c.Tx) -> list[c.Data]:
    redeemer = tx.redeemer
    assert isinstance(redeemer, u.PlutusList)
    return list(redeemer.value)


def channel_input(at: int, change: Callable[[c.Out], c.Out]) -> Change:
    """Change the *at*-th script-locked input, in ledger order."""

    def apply(tx: c.Tx) -> c.Tx:
        ordered = sorted(tx.inputs, key=lambda i: (i.tx_id, i.index))
        locked = [i for i in ordered if _locked(i.out)]
        chosen = locked[at]
        changed = replace(chosen, out=change(chosen.out))
        return tx.with_(inputs=[changed if i is chosen else i for i in ordered])

    return apply


def _locked(out: c.Out) -> bool:
    where = out.address
    assert isinstance(where, u.PlutusConstr)
    credential = where.fields[0]
    assert isinstance(credential, u.PlutusConstr)
    return credential.constructor == 1


def more(change: int, unit: tuple[bytes, bytes]) -> Callable[[c.Out], c.Out]:
    """*change* more of *unit*; a token that falls to 0 leaves no entry, as in the ledger."""

    def apply(out: c.Out) -> c.Out:
        value = {**out.value, unit: out.value.get(unit, 0) + change}
        return replace(out, value={k: n for k, n in value.items() if n or k == c.ADA})

    return apply


def both(*changes: Change) -> Change:
    def apply(tx: c.Tx) -> c.Tx:
        for change in changes:
            tx = change(tx)
        return tx

    return apply


def _signers(*signers: bytes) -> Change:
    return lambda tx: tx.with_(signers=signers)


def _swap(a: int, b: int) -> Change:
    def apply(tx: c.Tx) -> c.Tx:
        outputs = list(tx.outputs)
        outputs[a], outputs[b] = outputs[b], outputs[a]
        return tx.with_(outputs=outputs)

    return apply


def _drop(at: int) -> Change:
    return lambda tx: tx.with_(outputs=[o for i, o in enumerate(tx.outputs) if i != at])


# --- families ---------------------------------------------------------------------------------
def _addresses(where: Address) -> dict[str, Address]:
    """Every address one part away."""
    payment = where.payment
    flipped = Credential(payment.hash, not payment.is_script)
    stolen = Address(payment, Credential(h28("thief")))
    changed = {
        "payment hash": replace(where, payment=replace(payment, hash=h28("thief"))),
        "payment kind": replace(where, payment=flipped),
        "stake part stolen": stolen,
    }
    if where.stake is not None:
        changed["stake part gone"] = replace(where, stake=None)
        turned = replace(where.stake, is_script=not where.stake.is_script)
        changed["stake part of the other kind"] = replace(where, stake=turned)
    return changed


def _extras(instance: Instance) -> dict[str, Callable[[c.Out], c.Out]]:
    """What an output may not carry."""
    return {
        "reference script": lambda o: replace(o, script=h28("script")),
        "foreign token": more(1, (h28("dust"), b"dust")),
        "foreign token, least policy": more(1, (bytes(28), b"")),
        "token of a sister name": more(1, ((instance.unit or (h28("p"), b""))[0], b"A")),
    }


def _values(instance: Instance) -> dict[str, Callable[[c.Out], c.Out]]:
    unit = instance.unit or c.ADA
    changes = {"one less": more(-1, unit), "one more": more(1, unit)}
    if instance.unit is not None:
        changes |= {"a lovelace less": more(-1, c.ADA), "a lovelace more": more(1, c.ADA)}
    return changes


def _stages(stage: twin.Stage) -> dict[str, twin.Stage]:
    """Every stage one value away."""
    consts = stage.consts
    changed = {
        "session_vk": replace(consts, session_vk=session(99).verify_key),
        "adapter_vkh": replace(consts, adapter_vkh=h28("thief")),
        "payout": replace(consts, payout=provider(9).payout()),
        "consumer_vkh": replace(consts, consumer_vkh=h28("thief")),
        "close_period": replace(consts, close_period_ms=consts.close_period_ms - 1),
        "fee_bps": replace(consts, fee_bps=consts.fee_bps + 1),
    }
    stages: dict[str, twin.Stage] = {name: replace(stage, consts=x) for name, x in changed.items()}
    stages["claimed less"] = replace(stage, claimed=stage.claimed - 1)
    stages["claimed more"] = replace(stage, claimed=stage.claimed + 1)
    if isinstance(stage, twin.Closing):
        stages["expire_at earlier"] = replace(stage, expire_at_ms=stage.expire_at_ms - 1)
        stages["expire_at later"] = replace(stage, expire_at_ms=stage.expire_at_ms + 1)
        stages["open again"] = twin.Open(consts, stage.claimed)
    else:
        stages["closing"] = twin.Closing(consts, stage.claimed, NOW)
    return stages


def _continuing(instance: Instance, control: str, scene: Scene, at: int = 0) -> Iterator[Mutation]:
    """Everything that may be wrong with a continuing output."""
    out = scene.outputs[at]
    assert out.stage is not None
    data = stage_data(out.stage)

    def one(label: str, change: Callable[[c.Out], c.Out]) -> Mutation:
        return Mutation(label, 10, control, output(at, change))

    for label, where in _addresses(out.address).items():
        moved = address_data(where)
        yield one(label, lambda o, moved=moved: replace(o, address=moved))
    for label, stage in _stages(out.stage).items():
        datum = c.inline(stage_data(stage))
        yield one(f"datum, {label}", lambda o, datum=datum: replace(o, datum=datum))
    for label, change in {**_extras(instance), **_values(instance)}.items():
        yield one(label, change)
    yield one("datum missing", lambda o: replace(o, datum=None))
    yield one("datum by hash", lambda o: replace(o, datum=c.constr(1, c.octets(bytes(32)))))
    yield one("datum not a constructor", lambda o: replace(o, datum=c.inline(c.integer(0))))
    assert isinstance(data, u.PlutusConstr)
    longer = c.inline(c.constr(data.constructor, *data.fields, c.integer(0)))
    yield one("datum with a field more", lambda o: replace(o, datum=longer))


def _refund(instance: Instance, control: str, scene: Scene) -> Iterator[Mutation]:
    """Everything that may be wrong with a refund."""

    def one(label: str, change: Callable[[c.Out], c.Out]) -> Mutation:
        return Mutation(f"refund, {label}", 10, control, output(0, change))

    for label, where in _addresses(scene.outputs[0].address).items():
        moved = address_data(where)
        yield one(label, lambda o, moved=moved: replace(o, address=moved))
    for label, change in {**_extras(instance), **_values(instance)}.items():
        yield one(label, change)
    datum = c.inline(stage_data(scene.channels[0].stage))
    yield one("with a datum", lambda o: replace(o, datum=datum))


def _payout(instance: Instance, control: str, scene: Scene, at: int) -> Iterator[Mutation]:
    """Everything that may be wrong with a payout."""
    for label, where in _addresses(scene.outputs[at].address).items():
        moved = address_data(where)
        change = output(at, lambda o, moved=moved: replace(o, address=moved))
        yield Mutation(f"payout {at}, {label}", 11, control, change)
    short = output(at, more(-1, instance.unit or c.ADA))
    yield Mutation(f"payout {at}, one less", 12, control, short)
    for label, change in _extras(instance).items():
        yield Mutation(f"payout {at}, {label}", 13, control, output(at, change))
    loaded = output(at, lambda o: replace(o, datum=c.inline(c.integer(0))))
    yield Mutation(f"payout {at}, with a datum", 13, control, loaded)
    hashed = output(at, lambda o: replace(o, datum=c.constr(1, c.octets(bytes(32)))))
    yield Mutation(f"payout {at}, with a datum's hash", 13, control, hashed)


def _vouchers(control: str, tag: int) -> Iterator[Mutation]:
    """Steps with a voucher: the control takes 4 of 4 ADA where 1 is claimed."""

    def with_(cum: int, take_to: int, signature: bytes) -> Change:
        return step(0, c.constr(tag, c.integer(cum), c.integer(take_to), c.octets(signature)))

    good = claim(0, 4_000_000).signature
    yield Mutation(
        "another channel's voucher",
        8,
        control,
        with_(4_000_000, 4_000_000, claim(1, 4_000_000).signature),
    )
    yield Mutation("voucher raised by one", 8, control, with_(4_000_001, 4_000_000, good))
    yield Mutation(
        "a bit of the signature",
        8,
        control,
        with_(4_000_000, 4_000_000, bytes([good[0] ^ 1]) + good[1:]),
    )
    v2 = session(0).sign(b"tally/v2" + (4_000_000).to_bytes(8, "big"))
    yield Mutation("another version's voucher", 8, control, with_(4_000_000, 4_000_000, v2))
    little = session(0).sign(b"tally/v1" + (4_000_000).to_bytes(8, "little"))
    yield Mutation("little-endian voucher", 8, control, with_(4_000_000, 4_000_000, little))
    untagged = session(0).sign((4_000_000).to_bytes(8, "big"))
    yield Mutation("untagged voucher", 8, control, with_(4_000_000, 4_000_000, untagged))
    yield Mutation("signature too short", 0, control, with_(4_000_000, 4_000_000, good[:63]))
    yield Mutation("signature too long", 0, control, with_(4_000_000, 4_000_000, good + b"\0"))
    yield Mutation("cum above 8 bytes", 0, control, with_(2**64 + 4_000_000, 4_000_000, good))
    yield Mutation("no voucher", 0, control, step(0, c.constr(tag)))
    lower = claim(0, 3_999_999)
    yield Mutation(
        "take above the voucher", 7, control, with_(3_999_999, 4_000_000, lower.signature)
    )


def _taking(instance: Instance) -> Iterator[Mutation]:
    """Takes that do not grow: the output follows the step, so that only the guard stands.

    On the channel whose fee is the whole, since what is taken back would also be owed negatively.
    """
    scene = controls(instance)["whole fee"]
    before = scene.channels[0]
    takes = {"take nothing": 1_000_000, "take back": 999_999, "take a negative": -1}
    for label, take_to in takes.items():
        stage = replace(before.stage, claimed=take_to)
        held = before.held.plus(before.stage.claimed - take_to)
        onward = channel_out(instance, twin.Channel(before.address, stage, held))
        changed = both(
            step(0, step_data(claim(0, 4_000_000, take_to))),
            output(0, lambda _, onward=onward: onward),
        )
        yield Mutation(label, 6, "whole fee", changed)


def _fees(instance: Instance) -> Iterator[Mutation]:
    """fee_bps just above 10000, in the datum of input and output alike."""
    scene = controls(instance)["whole fee"]
    first = scene.channels[0]
    consts = replace(first.stage.consts, fee_bps=10_001)

    def greedy(stage: twin.Stage) -> c.Data:
        return c.inline(stage_data(replace(stage, consts=consts)))

    after = scene.outputs[0].stage
    assert after is not None
    yield Mutation(
        "fee_bps of 10001",
        9,
        "whole fee",
        both(
            channel_input(0, lambda o: replace(o, datum=greedy(first.stage))),
            output(0, lambda o: replace(o, datum=greedy(after))),
            # What the others of the run are owed is short by the negative term; alone it is a
            # payout of a negative amount, which any output meets.
            lambda tx: tx.with_(
                outputs=[
                    tx.outputs[0],
                    c.Out(address_data(provider(0)), instance.value(instance.held(1))),
                ]
            ),
        ),
    )


def _by_consumer(instance: Instance) -> Iterator[Mutation]:
    closing = twin.Closing
    for control in ("top up", "close"):
        scene = controls(instance)[control]
        before, after = scene.channels[0].stage, scene.outputs[0].stage
        assert after is not None
        yield Mutation("unsigned", 14, control, _signers())
        yield Mutation("signed by the adapter", 14, control, _signers(adapter(0)))
        yield Mutation(
            "signed by another consumer", 14, control, _signers(consumer(1), consumer(2))
        )
        started = closing(before.consts, before.claimed, NOW)
        # TopUp keeps the stage; Close writes its own expire_at whatever the stage was.
        ended = started if control == "top up" else after
        yield Mutation(
            "from Closing",
            15,
            control,
            both(
                channel_input(0, lambda o, d=c.inline(stage_data(started)): replace(o, datum=d)),
                output(0, lambda o, d=c.inline(stage_data(ended)): replace(o, datum=d)),
            ),
        )
    scene = controls(instance)["top up"]
    unit = instance.unit or c.ADA
    for label, amount in {"of nothing": 0, "that takes away": -1}.items():
        change = output(0, more(amount - 5_000_000, unit))
        yield Mutation(label, 16, "top up", both(step(0, step_data(twin.TopUp(amount))), change))
    yield Mutation("an unknown sixth step", 17, "close", step(0, c.constr(5)))
    yield Mutation("infinite upper bound", 0, "close", lambda tx: tx.with_(upper=None))
    yield Mutation("upper bound a slot later", 10, "close", lambda tx: tx.with_(upper=NOW + 1000))
    yield Mutation("upper bound a slot earlier", 10, "close", lambda tx: tx.with_(upper=NOW - 1000))


def _finishing(instance: Instance) -> Iterator[Mutation]:
    for control in ("finish", "finish closing", "finish claiming"):
        # Without the adapter a Closing channel is judged by the clock, and there is none here.
        guard = 0 if control == "finish closing" else 18
        yield Mutation("unsigned", guard, control, _signers())
        yield Mutation("signed by the consumer", guard, control, _signers(consumer(0)))
        yield Mutation("signed by another adapter", guard, control, _signers(adapter(1)))
    odd = c.constr(2, *_stage_fields(controls(instance)["finish expired"]))
    change = channel_input(0, lambda o: replace(o, datum=c.inline(odd)))
    yield Mutation("a third stage", 18, "finish expired", change)
    for control in ("finish expired", "finish expired claiming"):
        yield Mutation("a millisecond early", 18, control, lambda tx: tx.with_(lower=NOW - 1))
        yield Mutation("a slot early", 18, control, lambda tx: tx.with_(lower=NOW - 1000))
        yield Mutation("infinite lower bound", 0, control, lambda tx: tx.with_(lower=None))
        yield Mutation(
            "only the upper bound is late",
            0,
            control,
            lambda tx: tx.with_(lower=None, upper=NOW + PERIOD),
        )


def _stage_fields(scene: Scene) -> list[c.Data]:
    data = stage_data(scene.channels[0].stage)
    assert isinstance(data, u.PlutusConstr)
    return list(data.fields)


def _transaction(instance: Instance) -> Iterator[Mutation]:
    """The transaction around the steps."""
    other = (c.key_credential(h28("other")), 0)
    script = (c.script_credential(h28("other")), 5)
    yield Mutation(
        "a second withdrawal by a key",
        4,
        "claim",
        lambda tx: tx.with_(withdrawals=[*tx.withdrawals, other]),
    )
    yield Mutation(
        "a second withdrawal by a script",
        4,
        "claim",
        lambda tx: tx.with_(withdrawals=[*tx.withdrawals, script]),
    )
    yield Mutation("mints", 3, "claim", lambda tx: tx.with_(mint={(h28("m"), b""): 1}))
    yield Mutation("burns", 3, "finish", lambda tx: tx.with_(mint={(h28("m"), b""): -1}))
    yield Mutation(
        "a step too many",
        5,
        "claim",
        lambda tx: tx.with_(redeemer=c.listing(*_steps(tx), c.constr(2))),
    )
    yield Mutation(
        "a step too few",
        0,
        "two of one payout",
        lambda tx: tx.with_(redeemer=c.listing(*_steps(tx)[:1])),
    )
    yield Mutation("no steps", 0, "claim", lambda tx: tx.with_(redeemer=c.listing()))
    yield Mutation("redeemer not a list", 0, "claim", lambda tx: tx.with_(redeemer=c.integer(0)))
    yield Mutation("no outputs", 0, "claim", lambda tx: tx.with_(outputs=[]))
    yield Mutation("payout missing", 0, "claim", lambda tx: tx.with_(outputs=tx.outputs[:1]))
    foreign = c.In(
        b"\x01" * 32, 0, c.Out(c.address(c.script_credential(h28("foreign"))), {c.ADA: 3_000_000})
    )
    yield Mutation(
        "a foreign script's input", 0, "claim", lambda tx: tx.with_(inputs=[*tx.inputs, foreign])
    )
    for name, datum in {
        "missing": None,
        "by hash": c.constr(1, c.octets(bytes(32))),
        "not a channel": c.inline(c.integer(1)),
        "of an empty constructor": c.inline(c.constr(0)),
    }.items():
        change = channel_input(0, lambda o, datum=datum: replace(o, datum=datum))
        yield Mutation(f"the channel's datum {name}", 0, "claim", change)
    short_key = replace(controls(instance)["claim"].channels[0].stage.consts, session_vk=bytes(31))
    datum = c.inline(stage_data(twin.Open(short_key, 1_000_000)))
    yield Mutation(
        "a session key of 31 bytes", 0, "claim", channel_input(0, lambda o: replace(o, datum=datum))
    )


def _order() -> Iterator[Mutation]:
    """Outputs and steps permuted, outputs shared."""
    yield Mutation("outputs swapped", 10, "two of one payout", _swap(0, 1))
    yield Mutation(
        "payout before the second channel", 10, "two of one payout", _swap(1, 2), alone=False
    )
    yield Mutation("payouts swapped", 11, "two payouts", _swap(1, 2), alone=False)
    yield Mutation("first payout dropped", 11, "two payouts", _drop(1), alone=False)
    yield Mutation("one output for two channels", 10, "two of one payout", _drop(1), alone=False)
    yield Mutation("two payouts made one", 11, "interleaved payouts", _drop(1), alone=False)
    yield Mutation(
        "a run's payout left for the end", 11, "run broken by a top up", _drop(1), alone=False
    )
    yield Mutation(
        "steps swapped",
        8,
        "two of one payout",
        lambda tx: tx.with_(redeemer=c.listing(*reversed(_steps(tx)))),
        alone=False,
    )
    yield Mutation("first two outputs swapped", 10, "every step", _swap(0, 1))
    yield Mutation("payout and top-up swapped", 11, "every step", _swap(2, 3), alone=False)
    yield Mutation(
        "change in front",
        10,
        "claim",
        lambda tx: tx.with_(outputs=[funding(), *tx.outputs]),
        alone=False,
    )


@cache
def mutations(instance: Instance) -> list[Mutation]:
    """All of them; labels are unique within a control."""
    scenes = controls(instance)
    found = [
        *(
            m
            for name in ("claim", "claim closing", "top up", "close")
            for m in _continuing(instance, name, scenes[name])
        ),
        *_continuing(instance, "claim part", scenes["claim part"]),
        *(
            m
            for name in ("finish", "finish closing", "finish claiming", "finish expired")
            for m in _refund(instance, name, scenes[name])
        ),
        *_payout(instance, "claim", scenes["claim"], 1),
        *_payout(instance, "two of one payout", scenes["two of one payout"], 2),
        *_payout(instance, "interleaved payouts", scenes["interleaved payouts"], 1),
        *_payout(instance, "finish claiming", scenes["finish claiming"], 1),
        Mutation(
            "payout of 1, one less",
            12,
            "claim a little",
            output(1, more(-1, instance.unit or c.ADA)),
        ),
        *_vouchers("claim", 0),
        *_vouchers("claim closing", 0),
        *_vouchers("finish claiming", 1),
        *_taking(instance),
        *_fees(instance),
        *_by_consumer(instance),
        *_finishing(instance),
        *_transaction(instance),
        *_order(),
    ]
    return found


@cache
def variants(instance: Instance) -> dict[str, tuple[str, Change]]:
    """Changes of a control that do no harm, and are accepted."""
    unit = instance.unit or c.ADA
    sister = ((instance.unit or (h28("p"), b""))[0], b"A")
    plain = c.In(b"\x02" * 32, 7, funding(3))
    settle = c.script_credential(instance.scripts.settle_hash)
    stranger = h28("stranger")
    return {
        "a token of the least policy in the channel": (
            "claim",
            channel_input(0, more(1, (bytes(28), b""))),
        ),
        "a sister name in the channel": ("claim", channel_input(0, more(1, sister))),
        "dust in a finished channel": ("finish", channel_input(0, more(7, (bytes(28), b"x")))),
        "a reference script in the channel": (
            "claim",
            channel_input(0, lambda o: replace(o, script=h28("s"))),
        ),
        "a payout of one more": ("claim", output(1, more(1, unit))),
        "the payout has more lovelace": ("claim", output(1, more(10**6, c.ADA))),
        "free outputs after": ("claim", lambda tx: tx.with_(outputs=[*tx.outputs, *tx.outputs])),
        "more signers": (
            "finish",
            lambda tx: tx.with_(signers=[*tx.signers, stranger, bytes(28), b"\xff" * 28]),
        ),
        "a reward balance": ("claim", lambda tx: tx.with_(withdrawals=[(settle, 7)])),
        "more key inputs": ("two payouts", lambda tx: tx.with_(inputs=[*tx.inputs, plain])),
        "bounds of any size": ("claim", lambda tx: tx.with_(lower=0, upper=2**60)),
    }
