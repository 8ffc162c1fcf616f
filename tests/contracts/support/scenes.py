"""Channels, keys and whole transactions for the contract's tests.

A ``Scene`` is a transaction in the twin's words; ``Scene.tx()`` writes it as settle sees it.
Nothing here judges: outputs are laid out as ``channel.expect`` says, and the compiled bytes decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

import uplc
from uplc import ast as u

from contracts import blueprint
from contracts.channel.compiler import Ada, Token, compile_settle
from contracts.channel.terms import Build
from marketplace.domain.keys import Signer
from marketplace.domain.money import channel as twin
from marketplace.domain.money.address import Address, Credential
from marketplace.domain.money.voucher import voucher_message
from tests.contracts.support import context as c

PERIOD = 3_600_000
NOW = 1_800_000_000_000


def h28(*parts: object) -> bytes:
    """A 28-byte hash for a name."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=28).digest()


@dataclass(frozen=True)
class Instance:
    """One compiled instance of the channel; ``unit`` is its token, None for lovelace."""

    name: str
    unit: tuple[bytes, bytes] | None

    @property
    def scripts(self) -> blueprint.Scripts:
        return blueprint.ada() if self.unit is None else blueprint.token(*self.unit)

    def settle(self, build: Build | None = None) -> bytes:
        """The deployed bytes, or another build of the same source."""
        return self.scripts.settle_cbor if build is None else _build(self, build)

    def value(self, held: twin.Held) -> c.Value:
        value: dict[tuple[bytes, bytes], int] = {c.ADA: held.lovelace}
        if self.unit is not None and held.tokens:
            value[self.unit] = held.tokens
        return value

    def held(self, amount: int) -> twin.Held:
        return twin.Held(amount) if self.unit is None else twin.Held(2_500_000, amount)


@lru_cache(maxsize=64)
def _build(instance: Instance, build: Build) -> bytes:
    if instance.unit is None:
        return compile_settle(Ada(), build)
    program = uplc.unflatten(compile_settle(Token(), build))
    parameters = (u.PlutusByteString(part) for part in instance.unit)
    applied: bytes = uplc.flatten(uplc.tools.apply(program, *parameters))
    return applied


ADA = Instance("ada", None)
TOKEN = Instance("token", (h28("policy"), b"USDM"))


# --- people -----------------------------------------------------------------------------------
@cache
def session(n: int) -> Signer:
    """The session key of channel *n*."""
    return Signer(hashlib.sha256(b"session %d" % n).digest())


def consumer(n: int) -> bytes:
    return h28("consumer", n)


def adapter(n: int) -> bytes:
    return h28("adapter", n)


@cache
def provider(n: int) -> Address:
    """Where provider *n* is paid: bases, enterprise addresses and scripts in turn."""
    payment = Credential(h28("payout", n), n % 4 == 3)
    stake = None if n % 2 else Credential(h28("payout stake", n), n % 4 == 2)
    return Address(payment, stake)


PROVIDERS = {provider(n).payout(): provider(n) for n in range(40)}


def claim(n: int, cum: int, take_to: int | None = None) -> twin.Claim:
    """A claim with a voucher that channel *n*'s key signed for *cum*."""
    signature = session(n).sign(voucher_message(cum))
    return twin.Claim(cum, cum if take_to is None else take_to, signature)


def channel(
    n: int,
    *,
    instance: Instance = ADA,
    payout: int = 0,
    amount: int = 50_000_000,
    claimed: int = 1_000_000,
    fee_bps: int = 50,
    expire_at_ms: int | None = None,
    stake: bool = True,
) -> twin.Channel:
    """Channel *n*: its own session key, consumer and stake key; adapter and payout of provider."""
    consts = twin.Consts(
        session(n).verify_key,
        adapter(payout),
        provider(payout).payout(),
        consumer(n),
        PERIOD,
        fee_bps,
    )
    stage: twin.Stage = twin.Open(consts, claimed)
    if expire_at_ms is not None:
        stage = twin.Closing(consts, claimed, expire_at_ms)
    part = Credential(h28("stake", n), n % 5 == 4) if stake else None
    lock = Credential(instance.scripts.stub_hash, is_script=True)
    return twin.Channel(Address(lock, part), stage, instance.held(amount))


# --- as Plutus Data ---------------------------------------------------------------------------
def credential_data(x: Credential) -> c.Data:
    return c.script_credential(x.hash) if x.is_script else c.key_credential(x.hash)


def address_data(x: Address) -> c.Data:
    return c.address(
        credential_data(x.payment), None if x.stake is None else credential_data(x.stake)
    )


def consts_data(x: twin.Consts) -> c.Data:
    hashes = (x.session_vk, x.adapter_vkh, x.payout, x.consumer_vkh)
    return c.listing(
        *(c.octets(part) for part in hashes), c.integer(x.close_period_ms), c.integer(x.fee_bps)
    )


def stage_data(x: twin.Stage) -> c.Data:
    parts = (consts_data(x.consts), c.integer(x.claimed))
    if isinstance(x, twin.Closing):
        return c.constr(1, *parts, c.integer(x.expire_at_ms))
    return c.constr(0, *parts)


def step_data(step: twin.Step) -> c.Data:
    def voucher(x: twin.Claim) -> tuple[c.Data, ...]:
        return c.integer(x.cum), c.integer(x.take_to), c.octets(x.signature)

    match step:
        case twin.Claim():
            return c.constr(0, *voucher(step))
        case twin.Finish(None):
            return c.constr(2)
        case twin.Finish(last):
            assert last is not None
            return c.constr(1, *voucher(last))
        case twin.TopUp(amount):
            return c.constr(3, c.integer(amount))
        case twin.Close():
            return c.constr(4)


def output_data(instance: Instance, x: twin.Output) -> c.Out:
    """``loaded`` becomes a reference script."""
    datum = None if x.stage is None else c.inline(stage_data(x.stage))
    script = b"\x01" * 28 if x.loaded else None
    return c.Out(address_data(x.address), instance.value(x.held), datum, script)


def channel_out(instance: Instance, x: twin.Channel) -> c.Out:
    return output_data(instance, twin.Output(x.address, x.held, x.stage))


def as_output(instance: Instance, expected: twin.Expected) -> twin.Output:
    """An output that meets *expected* exactly."""
    match expected:
        case twin.Continuing(x):
            return twin.Output(x.address, x.held, x.stage)
        case twin.Refund(address, held):
            return twin.Output(address, held)
        case twin.Payout(payout, owed):
            held = instance.held(owed)
            return twin.Output(PROVIDERS[payout], held)


CHANGE = 20_000_000


def funding(n: int = 0) -> c.Out:
    """A plain output of a settler's key."""
    return c.Out(c.address(c.key_credential(h28("settler", n))), {c.ADA: CHANGE})


# --- scenes -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Scene:
    """A transaction in the twin's words.

    Channels stand in ledger order; ``funded`` puts key inputs before, between and after them.
    """

    channels: Sequence[twin.Channel]
    steps: Sequence[twin.Step]
    signers: Sequence[bytes] = ()
    lower_ms: int | None = None
    upper_ms: int | None = None
    instance: Instance = ADA
    outputs: Sequence[twin.Output] = field(default=())
    mints: bool = False
    withdrawals: int = 1
    funded: bool = True

    @property
    def witness(self) -> twin.Witness:
        return twin.Witness(frozenset(self.signers), self.lower_ms, self.upper_ms)

    @property
    def owners(self) -> list[bytes]:
        """The consumers of the channels."""
        return [each.stage.consts.consumer_vkh for each in self.channels]

    def laid_out(self) -> Scene:
        """With the outputs that the steps demand."""
        pairs = zip(self.channels, self.steps, strict=True)
        wills = [twin.will(each, step, self.witness) for each, step in pairs]
        return replace(self, outputs=[as_output(self.instance, e) for e in twin.expect(wills)])

    def judged(self) -> twin.Transaction:
        """As the twin sees it, change included."""
        held = twin.Held(CHANGE, None if self.instance.unit is None else 0)
        change = twin.Output(Address(Credential(h28("settler", 0))), held)
        outputs = [*self.outputs, change] if self.funded else self.outputs
        return twin.Transaction(
            self.channels, self.steps, outputs, self.witness, self.mints, self.withdrawals
        )

    def tx(self) -> c.Tx:
        """As settle sees it, with a change output at the end."""
        inputs = [
            c.In(hashlib.sha256(b"%d" % (i // 2)).digest(), i % 2, channel_out(self.instance, x))
            for i, x in enumerate(self.channels)
        ]
        order = sorted((i.tx_id, i.index) for i in inputs)
        inputs = [replace(i, tx_id=t, index=n) for i, (t, n) in zip(inputs, order, strict=True)]
        if self.funded:
            references = (
                (bytes(32), 0),
                (inputs[0].tx_id, 9) if inputs else (bytes(32), 1),
                (b"\xff" * 32, 0),
            )
            inputs += [c.In(t, n, funding(k)) for k, (t, n) in enumerate(references)]
        outputs = [output_data(self.instance, x) for x in self.outputs]
        settle = c.script_credential(self.instance.scripts.settle_hash)
        others = [(c.key_credential(h28("other", n)), n) for n in range(self.withdrawals - 1)]
        return c.Tx(
            inputs,
            [*outputs, funding()] if self.funded else outputs,
            c.listing(*(step_data(s) for s in self.steps)),
            self.signers,
            [(settle, 0), *others],
            {(h28("minted"), b"x"): 1} if self.mints else {},
            self.lower_ms,
            self.upper_ms,
        )


def judge(instance: Instance, tx: c.Tx, build: Build | None = None) -> c.Verdict:
    """Run settle, deployed or another build, on *tx* as its withdrawal."""
    credential = c.script_credential(instance.scripts.settle_hash)
    return c.run(instance.settle(build), tx.context(c.rewarding(credential)))


# --- the healthy transactions -------------------------------------------------------------------
@cache
def controls(instance: Instance) -> dict[str, Scene]:
    """One accepted transaction for each step, and the mixes that joined payouts make
    interesting.
    """

    def ch(n: int, **more: object) -> twin.Channel:
        return channel(n, instance=instance, **more)  # type: ignore[arg-type]

    closing = {"expire_at_ms": NOW}
    consumers = [consumer(0), consumer(1), consumer(2)]
    everyone = [*consumers, adapter(0)]
    top, cl = twin.TopUp(5_000_000), twin.Close()
    scenes = {
        "claim": Scene([ch(0)], [claim(0, 4_000_000)]),
        "claim part": Scene([ch(0)], [claim(0, 4_000_000, 3_000_000)]),
        "claim closing": Scene([ch(0, **closing)], [claim(0, 4_000_000)]),
        "top up": Scene([ch(0)], [top], [consumer(0)]),
        "close": Scene([ch(0)], [cl], [consumer(0)], upper_ms=NOW),
        "finish": Scene([ch(0)], [twin.Finish()], [adapter(0)]),
        "finish closing": Scene([ch(0, **closing)], [twin.Finish()], [adapter(0)]),
        "finish claiming": Scene([ch(0)], [twin.Finish(claim(0, 4_000_000))], [adapter(0)]),
        "finish expired": Scene([ch(0, **closing)], [twin.Finish()], lower_ms=NOW),
        "finish expired claiming": Scene(
            [ch(0, **closing)], [twin.Finish(claim(0, 4_000_000))], lower_ms=NOW
        ),
        "two of one payout": Scene([ch(0), ch(1)], [claim(0, 4_000_000), claim(1, 3_000_000)]),
        "two payouts": Scene([ch(0), ch(1, payout=1)], [claim(0, 4_000_000), claim(1, 4_000_000)]),
        "interleaved payouts": Scene(
            [ch(0), ch(1, payout=1), ch(2)],
            [claim(0, 4_000_000), claim(1, 4_000_000), claim(2, 4_000_000)],
        ),
        "run broken by a top up": Scene(
            [ch(0), ch(1), ch(2)], [claim(0, 4_000_000), top, claim(2, 4_000_000)], consumers
        ),
        "every step": Scene(
            [ch(0), ch(1, **closing), ch(2), ch(3), ch(4, payout=1)],
            [claim(0, 4_000_000), twin.Finish(claim(1, 2_000_000)), top, cl, claim(4, 9_000_000)],
            [*everyone, consumer(3)],
            lower_ms=NOW - 5000,
            upper_ms=NOW + 5000,
        ),
        "claim everything": Scene(
            [ch(0)], [claim(0, 50_000_000 + (instance.unit is not None) * 10**6)]
        ),
        "claim a little": Scene([ch(0)], [claim(0, 1_000_001)]),
        "top up an empty one": Scene(
            [ch(0, amount=0 if instance.unit is not None else 2_000_000)], [top], [consumer(0)]
        ),
        "whole fee": Scene([ch(0, fee_bps=10_000)], [claim(0, 4_000_000)]),
    }
    return {name: replace(s, instance=instance).laid_out() for name, s in scenes.items()}
