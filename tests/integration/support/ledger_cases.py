"""One invalid transaction per ledger rule, each one value away from a control that the ledger
accepts.

A case makes a control from fresh outputs, and the same transaction with one thing wrong. Where a
rule concerns a sum (fee, change) the lovelace moved between the two is the one value. ``reason`` is
a part of the ledger's own message.

Over 400 lines: one table of the ledger's rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cbor2

from contracts.devnet import Devnet
from contracts.devnet.addresses import stake_address
from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import (
    ADA,
    ANSWER_42,
    Draft,
    Party,
    blake2b,
    compiled,
    out,
    pay,
    ref,
    script_address,
    script_hash,
)

ALICE, BOB, CAROL = Party("alice"), Party("bob"), Party("carol")
SCRIPT = compiled(ANSWER_42)
KEY_DEPOSIT = 2 * ADA
# The ledger leaves the validity flag's byte out of a transaction's size (cardano-ledger,
# toCBORForSizeComputation).
UNCOUNTED = 1
MIN_OUTPUT = 857_690  # (160 + 39 bytes of an enterprise output in map form) * 4310


class World:
    """A devnet with what the cases share: a reference script, and fresh coins on demand.

    margin: slots between what holds and what does not; more than one where time goes on by itself.
    """

    def __init__(self, devnet: Devnet, margin: int = 1) -> None:
        self.devnet = devnet
        self.margin = margin
        source = self.coin(ALICE, 50 * ADA)
        made = pay(source, ALICE, 50 * ADA, [out(ALICE.raw, 10 * ADA, script=SCRIPT)])
        self.reference = OutRef(devnet.submit(made.signed()), 0)
        probe = self.spend().signed()
        (units,) = devnet.evaluate(probe)
        self.units = (units.memory, units.steps)

    def coin(self, owner: Party, lovelace: int) -> OutRef:
        return self.devnet.faucet(owner.address, lovelace)

    def locked(self, lovelace: int, **more: object) -> OutRef:
        """A fresh output at the script's address."""
        held = lovelace + 5 * ADA
        made = pay(
            self.coin(ALICE, held), ALICE, held, [out(script_address(SCRIPT), lovelace, **more)]
        )
        return OutRef(self.devnet.submit(made.signed()), 0)

    def payment(self) -> Draft:
        return pay(self.coin(ALICE, 10 * ADA), ALICE, 10 * ADA, [out(BOB.raw, 2 * ADA)])

    def spend(self, fee: int = 400_000) -> Draft:
        """Spends a script's output by reference script; collateral is exact."""
        lock = self.locked(3 * ADA, datum=0)
        collateral = self.coin(ALICE, 5 * ADA)
        needed = -(-fee * 3 // 2)
        body = {
            0: [ref(lock)],
            1: [out(ALICE.raw, 3 * ADA - fee)],
            2: fee,
            13: [ref(collateral)],
            16: out(ALICE.raw, 5 * ADA - needed),
            17: needed,
            18: [ref(self.reference)],
        }
        units = getattr(self, "units", (100_000, 100_000_000))
        return Draft(body, (ALICE,), {(0, 0): (42, units)})

    def mint(self) -> Draft:
        """Mints under a native script that BOB signs and that holds from slot 0."""
        policy = [1, [[0, BOB.vkh], [4, 0]]]
        name = {script_hash(cbor2.dumps(policy), 0): {b"T": 5}}
        draft = self.payment()
        output = {**draft.body[1][0], 1: [2 * ADA, name]}
        draft = draft.set(1, [output, draft.body[1][1]]).set(9, name).set(8, 0)
        return draft.put(signers=(ALICE, BOB), witness={1: [policy]})

    def registered(self, owner: Party) -> Draft:
        """Registers a stake key with Conway's certificate, which names its deposit and needs the
        key's signature.
        """
        held = 10 * ADA
        draft = pay(self.coin(ALICE, held), ALICE, held, [], fee=200_000 + KEY_DEPOSIT)
        certificate = [7, [0, owner.vkh], KEY_DEPOSIT]
        return draft.set(2, 200_000).set(4, [certificate]).put(signers=(ALICE, owner))

    def heard(self, owner: Party) -> Draft:
        """Registers a stake key that votes for nobody: without that choice a key's rewards stay
        where they are.
        """
        draft = self.registered(owner)
        return draft.set(4, [[12, [0, owner.vkh], [2], KEY_DEPOSIT]])

    def slot(self) -> int:
        return self.devnet.slot()


@dataclass(frozen=True)
class Case:
    """build: (control, mutant); reason: what the ledger says of the mutant."""

    name: str
    reason: str
    build: Callable[[World], tuple[Draft, Draft]]


CASES: list[Case] = []


def case(
    reason: str,
) -> Callable[[Callable[[World], tuple[Draft, Draft]]], Callable[[World], tuple[Draft, Draft]]]:
    def add(
        build: Callable[[World], tuple[Draft, Draft]],
    ) -> Callable[[World], tuple[Draft, Draft]]:
        CASES.append(Case(build.__name__, reason, build))
        return build

    return add


# --- money ---


@case("is less than minimum required")
def fee_one_below_the_minimum(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    exact = 155381 + 44 * (len(draft.signed()) - UNCOUNTED)
    control = draft.shift(draft.body[2] - exact)
    assert len(control.signed()) == len(draft.signed())
    return control, control.shift(1)


@case("Value not conserved")
def one_lovelace_made(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft, draft.output(1, draft.body[1][1][1] + 1)


@case("Value not conserved")
def one_lovelace_lost(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft, draft.output(1, draft.body[1][1][1] - 1)


@case("Value not conserved")
def one_token_made(world: World) -> tuple[Draft, Draft]:
    draft = world.mint()
    (policy,) = draft.body[9]
    outputs = [{**draft.body[1][0], 1: [2 * ADA, {policy: {b"T": 6}}]}, draft.body[1][1]]
    return draft, draft.set(1, outputs)


@case("too small")
def output_one_below_its_minimum(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    change = draft.body[1][1][1] + 2 * ADA - MIN_OUTPUT
    control = draft.output(0, MIN_OUTPUT).output(1, change)
    return control, control.output(0, MIN_OUTPUT - 1).output(1, change + 1)


@case("size")
def value_too_large(world: World) -> tuple[Draft, Draft]:
    """A value may take 5000 bytes: with 256 instead of 255 of the last asset it is one byte
    longer.
    """
    draft = world.mint()
    (policy,) = draft.body[9]

    def minted(last: int) -> Draft:
        names = {i.to_bytes(32, "big"): 1 for i in range(141)} | {b"x" * 23: last}
        bundle = {policy: names}
        first = {**draft.body[1][0], 1: [30 * ADA, bundle]}
        change = {**draft.body[1][1], 1: 100 * ADA - 30 * ADA - 2 * ADA}
        return draft.set(0, [ref(source)]).set(1, [first, change]).set(2, 2 * ADA).set(9, bundle)

    source = world.coin(ALICE, 100 * ADA)
    assert len(cbor2.dumps(minted(255).body[1][0][1])) == 5000
    return minted(255), minted(256)


# --- time ---


@case("outside the validity interval")
def past_its_end(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft.set(3, world.slot() + world.margin), draft.set(3, world.slot())


@case("outside the validity interval")
def before_its_start(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft.set(8, world.slot()), draft.set(8, world.slot() + world.margin)


# --- inputs ---


@case("Missing inputs")
def unknown_input(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    ((tx, ix),) = draft.body[0]
    return draft, draft.set(0, [[tx, ix + 7]])


@case("Missing inputs")
def spent_twice(world: World) -> tuple[Draft, Draft]:
    first = world.payment()
    world.devnet.submit(first.signed())
    draft = world.payment()
    return draft, draft.set(0, first.body[0])


@case("Missing inputs")
def unknown_reference_input(world: World) -> tuple[Draft, Draft]:
    draft = world.payment().set(18, [ref(world.reference)])
    ((tx, ix),) = draft.body[18]
    return draft, draft.set(18, [[tx, ix + 7]])


@case("intersects with reference inputs")
def input_also_as_reference(world: World) -> tuple[Draft, Draft]:
    draft = world.payment().set(18, [ref(world.reference)])
    return draft, draft.set(18, draft.body[0])


# --- signatures ---


@case("Missing key hashes")
def one_signature_missing(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    both = draft.set(0, [*draft.body[0], ref(world.coin(BOB, 2 * ADA))]).put(signers=(ALICE, BOB))
    both = both.output(1, both.body[1][1][1] + 2 * ADA)
    return both, both.put(signers=(ALICE,))


@case("Missing key hashes")
def signed_by_another(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft, draft.put(signers=(BOB,))


@case("Invalid verified signatures")
def signature_spoiled(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft, draft.put(spoil=lambda signature: bytes([signature[0] ^ 1]) + signature[1:])


@case("Missing key hashes")
def required_signer_missing(world: World) -> tuple[Draft, Draft]:
    draft = world.payment().set(14, [CAROL.vkh])
    return draft.put(signers=(ALICE, CAROL)), draft


# --- network ---


@case("Wrong network id")
def body_for_mainnet(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft.set(15, 0), draft.set(15, 1)


@case("Wrong network address")
def output_on_mainnet(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    mainnet = {**draft.body[1][0], 0: b"\x61" + BOB.vkh}
    return draft, draft.set(1, [mainnet, draft.body[1][1]])


# --- size and metadata ---


@case("size")
def one_byte_too_long(world: World) -> tuple[Draft, Draft]:
    base = world.payment().shift(-2 * ADA)

    def long(last: int) -> Draft:
        metadata = {0: [b"m" * 64] * 244 + [b"m" * last]}
        draft = base.set(7, blake2b(cbor2.dumps(metadata))).put(auxiliary=metadata)
        return draft

    longest = next(n for n in range(64) if len(long(n).signed()) == 16384)
    return long(longest), long(longest + 1)


@case("Invalid auxiliary data hash")
def metadata_with_another_hash(world: World) -> tuple[Draft, Draft]:
    draft = world.payment().put(auxiliary={0: "x"})
    return draft.set(7, blake2b(cbor2.dumps({0: "x"}))), draft.set(7, blake2b(b"y"))


@case("Missing auxiliary data hash")
def metadata_without_a_hash(world: World) -> tuple[Draft, Draft]:
    draft = world.payment().put(auxiliary={0: "x"})
    return draft.set(7, blake2b(cbor2.dumps({0: "x"}))), draft


def _with_metadata(draft: Draft, metadata: dict[int, Any]) -> Draft:
    return draft.set(7, blake2b(cbor2.dumps(metadata))).put(auxiliary=metadata)


@case("InvalidMetadata")
def metadata_text_one_too_long(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return _with_metadata(draft, {1: "x" * 64}), _with_metadata(draft, {1: "x" * 65})


@case("InvalidMetadata")
def metadata_bytes_one_too_long(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return _with_metadata(draft, {1: b"x" * 64}), _with_metadata(draft, {1: b"x" * 65})


# --- minting ---


@case("Missing or extra script hashes")
def mint_without_its_script(world: World) -> tuple[Draft, Draft]:
    draft = world.mint()
    return draft, draft.put(witness={})


@case("Invalid native scripts")
def mint_unsigned_by_its_policy(world: World) -> tuple[Draft, Draft]:
    draft = world.mint()
    return draft, draft.put(signers=(ALICE,))


@case("Invalid native scripts")
def mint_outside_its_policys_time(world: World) -> tuple[Draft, Draft]:
    draft = world.mint()
    return draft, draft.set(8, None)


@case("Missing or extra script hashes")
def script_nobody_needs(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft, draft.put(witness={1: [[0, BOB.vkh]]})


# --- stake accounts ---


@case("Stake certificates")
def registered_twice(world: World) -> tuple[Draft, Draft]:
    world.devnet.submit(world.registered(Party("twice")).signed())
    return world.registered(Party("once")), world.registered(Party("twice"))


@case("Stake certificates")
def registered_for_another_deposit(world: World) -> tuple[Draft, Draft]:
    draft = world.registered(Party("deposit"))
    cheap = [7, [0, Party("deposit").vkh], KEY_DEPOSIT - 1]
    return draft, draft.set(4, [cheap]).output(0, draft.body[1][0][1] + 1)


@case("Stake certificates")
def deregistered_without_registration(world: World) -> tuple[Draft, Draft]:
    world.devnet.submit(world.registered(Party("leaves")).signed())
    draft = world.payment().put(signers=(ALICE, Party("leaves"), Party("never")))
    draft = draft.output(1, draft.body[1][1][1] + KEY_DEPOSIT)

    def leaving(who: Party) -> Draft:
        return draft.set(4, [[8, [0, who.vkh], KEY_DEPOSIT]])

    return leaving(Party("leaves")), leaving(Party("never"))


@case("StakeKeyHasNonZeroAccountBalanceDELEG")
def deregistered_with_rewards(world: World) -> tuple[Draft, Draft]:
    rich, poor = Party("leaves rewards"), Party("leaves nothing")
    for one in (rich, poor):
        world.devnet.submit(world.heard(one).signed())
    world.devnet.reward(stake_address(rich.vkh, is_script=False), ADA)
    draft = world.payment().put(signers=(ALICE, rich, poor))
    draft = draft.output(1, draft.body[1][1][1] + KEY_DEPOSIT)

    def leaving(who: Party) -> Draft:
        return draft.set(4, [[8, [0, who.vkh], KEY_DEPOSIT]])

    return leaving(poor), leaving(rich)


@case("Withdrawals validation")
def withdrawal_by_a_stranger(world: World) -> tuple[Draft, Draft]:
    world.devnet.submit(world.heard(Party("member")).signed())
    draft = world.payment().put(signers=(ALICE, Party("member"), Party("stranger")))
    return draft.set(5, {Party("member").stake: 0}), draft.set(5, {Party("stranger").stake: 0})


@case("do not drain")
def withdrawal_of_a_part(world: World) -> tuple[Draft, Draft]:
    owner = Party("rewarded")
    world.devnet.submit(world.heard(owner).signed())
    world.devnet.reward(stake_address(owner.vkh, is_script=False), 3 * ADA)
    draft = world.payment().put(signers=(ALICE, owner))
    change = draft.body[1][1][1]
    whole = draft.set(5, {owner.stake: 3 * ADA}).output(1, change + 3 * ADA)
    return whole, draft.set(5, {owner.stake: 3 * ADA - 1}).output(1, change + 3 * ADA - 1)


# --- scripts ---


@case("no collateral inputs provided")
def no_collateral(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.set(13, None).set(16, None).set(17, None)


@case("is insufficient")
def collateral_one_short(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    back = draft.body[16]
    short = draft.set(16, {**back, 1: back[1] + 1}).set(17, draft.body[17] - 1)
    return draft, short


@case("does not match expected")
def total_collateral_untrue(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.set(17, draft.body[17] + 1)


@case("collateral")
def collateral_of_a_script(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.set(13, [ref(world.locked(5 * ADA, datum=0))])


@case("Too many collateral inputs")
def four_collaterals(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    more = [ref(world.coin(ALICE, 1 * ADA)) for _ in range(3)]

    def with_collaterals(count: int) -> Draft:
        extra = (count - 1) * ADA
        back = {**draft.body[16], 1: draft.body[16][1] + extra}
        return draft.set(13, [*draft.body[13], *more[: count - 1]]).set(16, back)

    return with_collaterals(3), with_collaterals(4)


@case("Invalid script data hash")
def script_data_hash_untrue(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.set(11, blake2b(b"another"))


@case("Invalid script data hash")
def script_data_hash_missing(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.set(11, b"")


@case("Out of budget")
def one_unit_of_memory_too_few(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    memory, steps = world.units
    return draft, draft.put(redeemers={(0, 0): (42, (memory - 1, steps))})


@case("Out of budget")
def one_step_too_few(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    memory, steps = world.units
    return draft, draft.put(redeemers={(0, 0): (42, (memory, steps - 1))})


@case("exceed the maximum")
def memory_over_the_maximum(world: World) -> tuple[Draft, Draft]:
    draft = world.spend(fee=1_800_000)
    _, steps = world.units
    return (
        draft.put(redeemers={(0, 0): (42, (16_500_000, steps))}),
        draft.put(redeemers={(0, 0): (42, (16_500_001, steps))}),
    )


@case("Error evaluated")
def script_says_no(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.put(redeemers={(0, 0): (41, world.units)})


@case("extra redeemers: Set((Spend,1))")
def redeemer_for_nothing(world: World) -> tuple[Draft, Draft]:
    draft = world.spend(fee=500_000)
    return draft, draft.put(redeemers={**draft.redeemers, (0, 1): (42, world.units)})


@case("missing redeemers: Set((Spend,0))")
def redeemer_missing(world: World) -> tuple[Draft, Draft]:
    """A key's input stands first in both; the redeemer points at it instead of the script's."""
    draft = world.spend()
    return draft, draft.put(redeemers={(1, 0): (42, world.units)})


@case("extra redeemers: Set((Spend,0))")
def reference_script_left_out(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.set(18, None)


@case("MissingRequiredDatums")
def datum_of_a_hash_left_out(world: World) -> tuple[Draft, Draft]:
    datum = cbor2.dumps(7)
    lock = world.locked(3 * ADA, datum_hash=blake2b(datum))
    draft = world.spend().set(0, [ref(lock)])
    return draft.put(witness={4: [7]}), draft


@case("MissingRequiredDatums")
def datum_of_another_hash(world: World) -> tuple[Draft, Draft]:
    lock = world.locked(3 * ADA, datum_hash=blake2b(cbor2.dumps(7)))
    draft = world.spend().set(0, [ref(lock)])
    return draft.put(witness={4: [7]}), draft.put(witness={4: [8]})


@case("NotAllowedSupplementalDatums")
def datum_nobody_needs(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.put(witness={4: [7]})


@case("invalid flag")
def declared_invalid(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    return draft, draft.put(valid=False)
