"""Transactions that an indexer over the ledger once took wrongly, or not at all: each with what
cardano-ledger does of it.

``REFUSED``: a control that is accepted, a mutant that is one value away, and the ledger's name for
what is wrong. ``ACCEPTED``: odd encodings and addresses that are valid.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cbor2

from contracts.devnet.parameters import EPOCH_LENGTH, PARAMETERS
from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import (
    ADA,
    Draft,
    Party,
    Raw,
    blake2b,
    compiled,
    dumps,
    out,
    pay,
    ref,
    script_address,
)
from tests.integration.support.ledger_cases import ALICE, BOB, KEY_DEPOSIT, World

DREP_DEPOSIT, POOL_DEPOSIT, ACTION_DEPOSIT = 500 * ADA, 500 * ADA, 100_000 * ADA
FAILS = compiled("(program 1.1.0 (lam ctx (error)))")


def byron(magic: int | None) -> bytes:
    """A bootstrap address with a test network's magic, or mainnet's without one."""
    attributes = {} if magic is None else {2: cbor2.dumps(magic)}
    payload = cbor2.dumps([b"\x07" * 28, attributes, 0])
    return cbor2.dumps([cbor2.CBORTag(24, payload), zlib.crc32(payload)])


@dataclass(frozen=True)
class Refused:
    name: str
    reason: str
    build: Callable[[World], tuple[Draft, Draft]]


REFUSED: list[Refused] = []
ACCEPTED: dict[str, Callable[[World], Draft]] = {}
_Builder = Callable[[World], tuple[Draft, Draft]]


def refused(reason: str) -> Callable[[_Builder], _Builder]:
    def add(build: _Builder) -> _Builder:
        REFUSED.append(Refused(build.__name__, reason, build))
        return build

    return add


def accepted(build: Callable[[World], Draft]) -> Callable[[World], Draft]:
    ACCEPTED[build.__name__] = build
    return build


# --- sets ---


def _twice(world: World, key: int, element: Any) -> tuple[Draft, Draft]:
    draft = world.payment()
    control = draft.set(key, [element]).shift(-20_000)
    return control, control.set(key, [element, element])


@refused("DecoderFailure")
def an_input_twice(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    return draft, draft.set(0, [*draft.body[0], *draft.body[0]])


@refused("DecoderFailure")
def an_input_twice_in_a_tagged_set(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    twice = cbor2.CBORTag(258, [*draft.body[0], *draft.body[0]])
    return draft.set(0, cbor2.CBORTag(258, draft.body[0])), draft.set(0, twice)


@refused("DecoderFailure")
def a_reference_input_twice(world: World) -> tuple[Draft, Draft]:
    return _twice(world, 18, ref(world.reference))


@refused("DecoderFailure")
def a_required_signer_twice(world: World) -> tuple[Draft, Draft]:
    return _twice(world, 14, ALICE.vkh)


@refused("DecoderFailure")
def a_collateral_input_twice(world: World) -> tuple[Draft, Draft]:
    return _twice(world, 13, ref(world.coin(ALICE, 5 * ADA)))


@refused("DecoderFailure")
def a_key_twice_in_the_body(world: World) -> tuple[Draft, Draft]:
    draft = world.payment().shift(-20_000)

    def twice(body: dict[int, Any]) -> bytes:
        pairs = b"".join(dumps(key) + dumps(value) for key, value in body.items())
        return bytes([0xA0 + len(body) + 1]) + pairs + dumps(2) + dumps(body[2])

    return draft, draft.put(raw_body=twice)


# --- outputs ---


@refused("DecoderFailure")
def an_output_to_a_reward_account(world: World) -> tuple[Draft, Draft]:
    draft = world.payment()
    wrong = [{**draft.body[1][0], 0: BOB.stake}, draft.body[1][1]]
    return draft, draft.set(1, wrong)


@refused("WrongNetwork")
def an_output_to_mainnets_byron(world: World) -> tuple[Draft, Draft]:
    draft = world.payment().shift(-20_000)
    change = draft.body[1][1]
    first = draft.body[1][0]
    return draft.set(1, [{**first, 0: byron(42)}, change]), draft.set(
        1, [{**first, 0: byron(None)}, change]
    )


@refused("DecoderFailure")
def a_token_of_quantity_zero(world: World) -> tuple[Draft, Draft]:
    control = world.mint().shift(-20_000)
    (name,) = control.body[9]
    first, change = control.body[1]
    wrong = {**change, 1: [change[1], {name: {b"T": 0}}]}
    return control, control.set(1, [first, wrong])


# --- time ---


@refused("OutsideForecast")
def a_script_six_days_ahead(world: World) -> tuple[Draft, Draft]:
    draft = world.spend()
    hour = 3600
    return draft.set(3, world.slot() + 24 * hour), draft.set(3, world.slot() + 6 * 24 * hour)


# --- accounts, DReps, governance: each of a key of its own ---


def _certified(world: World, owner: Party, deposit: int, *certificates: list[Any]) -> Draft:
    held = 10 * ADA + max(0, deposit)
    draft = pay(world.coin(ALICE, held), ALICE, held, [], fee=300_000 + deposit)
    return draft.set(2, 300_000).set(4, list(certificates)).put(signers=(ALICE, owner))


def _registered(world: World, owner: Party) -> None:
    world.devnet.submit(
        _certified(world, owner, KEY_DEPOSIT, [7, [0, owner.vkh], KEY_DEPOSIT]).signed()
    )


def _voice(world: World, name: str) -> Party:
    """A registered DRep."""
    owner = Party(name)
    certificate = [16, [0, owner.vkh], DREP_DEPOSIT, None]
    world.devnet.submit(_certified(world, owner, DREP_DEPOSIT, certificate).signed())
    return owner


def pool(world: World, owner: Party) -> Draft:
    """Registers a pool; its rewards go to its owner's account."""
    relays: list[Any] = []
    margin = cbor2.CBORTag(30, [1, 2])
    head = [3, owner.vkh, b"\x05" * 32, ADA, 170 * ADA, margin, owner.stake]
    certificate = [*head, [owner.vkh], relays, None]
    return _certified(world, owner, POOL_DEPOSIT, certificate)


@refused("ConwayWdrlNotDelegatedToDRep")
def a_keys_withdrawal_without_a_drep(world: World) -> tuple[Draft, Draft]:
    with_vote, without = Party("with a vote"), Party("without a vote")
    for one in (with_vote, without):
        _registered(world, one)
    abstain = [9, [0, with_vote.vkh], [2]]
    world.devnet.submit(_certified(world, with_vote, 0, abstain).signed())
    draft = world.payment().shift(-40_000).put(signers=(ALICE, with_vote, without))
    return draft.set(5, {with_vote.stake: 0}), draft.set(5, {without.stake: 0})


@refused("DelegateeStakePoolNotRegisteredDELEG")
def a_delegation_to_no_pool(world: World) -> tuple[Draft, Draft]:
    owner, keeper = Party("delegator"), Party("pool keeper")
    _registered(world, owner)
    world.devnet.submit(pool(world, keeper).signed())
    to = [2, [0, owner.vkh], keeper.vkh]
    return _certified(world, owner, 0, to), _certified(world, owner, 0, [*to[:2], b"\x09" * 28])


def _kept(world: World, name: str) -> Party:
    """A registered pool, whose owner has an account."""
    keeper = Party(name)
    _registered(world, keeper)
    world.devnet.submit(pool(world, keeper).signed())
    return keeper


@refused("StakePoolRetirementWrongEpochPOOL")
def a_pools_end_too_far_away(world: World) -> tuple[Draft, Draft]:
    keeper = _kept(world, "leaves late")
    epoch, most = world.slot() // EPOCH_LENGTH, int(PARAMETERS["e_max"])

    def leaving(last: int) -> Draft:
        return _certified(world, keeper, 0, [4, keeper.vkh, last])

    return leaving(epoch + most), leaving(epoch + most + 1)


@refused("StakePoolNotRegisteredOnKeyPOOL")
def a_strangers_end_as_a_pool(world: World) -> tuple[Draft, Draft]:
    keeper, nobody = _kept(world, "keeps a pool"), Party("keeps none")
    last = world.slot() // EPOCH_LENGTH + 2
    return _certified(world, keeper, 0, [4, keeper.vkh, last]), _certified(
        world, nobody, 0, [4, nobody.vkh, last]
    )


@refused("ValueNotConservedUTxO")
def a_pools_deposit_twice(world: World) -> tuple[Draft, Draft]:
    """A pool that registers anew has paid already."""
    keeper = _kept(world, "comes again")
    again = pool(world, keeper).body[4]
    return _certified(world, keeper, 0, *again), _certified(world, keeper, POOL_DEPOSIT, *again)


@refused("ConwayDRepIncorrectRefund")
def a_dreps_end_for_more(world: World) -> tuple[Draft, Draft]:
    voice = _voice(world, "leaves")
    end = [17, [0, voice.vkh], DREP_DEPOSIT]
    more = [*end[:2], DREP_DEPOSIT + 1]
    return _certified(world, voice, -DREP_DEPOSIT, end), _certified(
        world, voice, -DREP_DEPOSIT - 1, more
    )


@refused("DelegateeDRepNotRegisteredDELEG")
def a_delegation_to_no_drep(world: World) -> tuple[Draft, Draft]:
    owner, voice = Party("elector"), _voice(world, "elected")
    _registered(world, owner)
    to = [9, [0, owner.vkh], [0, voice.vkh]]
    return _certified(world, owner, 0, to), _certified(
        world, owner, 0, [*to[:2], [0, b"\x09" * 28]]
    )


@refused("ConwayDRepIncorrectDeposit")
def a_drep_for_one_ada(world: World) -> tuple[Draft, Draft]:
    owner = Party("cheap")
    whole = [16, [0, owner.vkh], DREP_DEPOSIT, None]
    cheap = [16, [0, owner.vkh], ADA, None]
    return _certified(world, owner, DREP_DEPOSIT, whole), _certified(world, owner, ADA, cheap)


def _proposal(world: World, account: Party, deposit: int) -> Draft:
    anchor = ["https://example.com", b"\x01" * 32]
    held = 10 * ADA + deposit
    draft = pay(world.coin(ALICE, held), ALICE, held, [], fee=300_000 + deposit)
    return draft.set(2, 300_000).set(20, [[deposit, account.stake, [6], anchor]])


@refused("ProposalDepositIncorrect")
def a_proposal_for_one_lovelace(world: World) -> tuple[Draft, Draft]:
    owner = Party("proposer")
    _registered(world, owner)
    return _proposal(world, owner, ACTION_DEPOSIT), _proposal(world, owner, 1)


@refused("VotersDoNotExist")
def a_vote_of_nobody(world: World) -> tuple[Draft, Draft]:
    owner, voice, nobody = Party("mover"), _voice(world, "voter"), Party("nobody")
    _registered(world, owner)
    action = OutRef(world.devnet.submit(_proposal(world, owner, ACTION_DEPOSIT).signed()), 0)
    draft = world.payment().shift(-40_000).put(signers=(ALICE, voice, nobody))

    def voted(by: Party) -> Draft:
        vote = dumps([2, by.vkh]), dumps(ref(action)) + dumps([1, None])
        return draft.set(19, Raw(b"\xa1" + vote[0] + b"\xa1" + vote[1]))

    return voted(voice), voted(nobody)


# --- odd and valid ---


@accepted
def a_byron_output(world: World) -> Draft:
    draft = world.payment().shift(-20_000)
    return draft.set(1, [{**draft.body[1][0], 0: byron(42)}, draft.body[1][1]])


@accepted
def a_pointer_of_many_bytes(world: World) -> Draft:
    """Slot 256, transaction 16512, certificate 3146: each number's highest part comes first
    (CIP-19).
    """
    draft = world.payment().shift(-20_000)
    pointer = b"\x40" + ALICE.vkh + b"\x82\x00" + b"\x81\x81\x00" + b"\x98\x4a"
    return draft.set(1, [{**draft.body[1][0], 0: pointer}, draft.body[1][1]])


def _metadata(number: int) -> Callable[[World], Draft]:
    def build(world: World) -> Draft:
        raw = cbor2.dumps({1: number})
        return world.payment().shift(-20_000).set(7, blake2b(raw)).put(auxiliary=Raw(raw))

    return build


for _number in (2**63, 2**64 - 1, -(2**63) - 1, -(2**64)):
    ACCEPTED[f"metadata_of_{_number}"] = _metadata(_number)


def _open(pairs: list[tuple[Any, Any]]) -> bytes:
    return b"\xbf" + b"".join(dumps(key) + dumps(value) for key, value in pairs) + b"\xff"


@accepted
def a_body_without_a_length(world: World) -> Draft:
    def encoded(body: dict[int, Any]) -> bytes:
        return _open(list(body.items()))

    return world.payment().put(raw_body=encoded)


@accepted
def outputs_without_lengths(world: World) -> Draft:
    draft = world.payment()
    first, change = draft.body[1]
    old = b"\x9f" + dumps(change[0]) + dumps(change[1]) + b"\xff"
    outputs = b"\x9f" + _open(list(first.items())) + old + b"\xff"
    return draft.set(1, Raw(outputs))


@accepted
def redeemers_with_one_pointer(world: World) -> Draft:
    draft = world.spend(fee=450_000)
    ((pointer, (_, units)),) = draft.redeemers.items()
    return draft.put(raw_redeemers=cbor2.dumps([[*pointer, one, units] for one in (41, 42)]))


def failing(world: World, held: int = 15 * ADA) -> tuple[Draft, OutRef, OutRef]:
    """A transaction that says itself that its script fails; the output that it does not get, and
    the collateral that it loses.
    """
    amount = held + 5 * ADA
    address = script_address(FAILS)
    made = pay(
        world.coin(ALICE, amount), ALICE, amount, [out(address, held, datum=0, script=FAILS)]
    )
    locked = OutRef(world.devnet.submit(made.signed()), 0)
    collateral = world.coin(ALICE, 5 * ADA)
    body = {
        0: [ref(locked)],
        1: [out(BOB.raw, held - 400_000)],
        2: 400_000,
        13: [ref(collateral)],
        16: out(ALICE.raw, 4 * ADA),
        17: ADA,
    }
    draft = Draft(body, (ALICE,), {(0, 0): (42, (100_000, 100_000_000))}, valid=False)
    return draft, locked, collateral
