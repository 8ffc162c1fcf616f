"""Rules of Cardano's ledger that the engine does not have: what is asked before a transaction
reaches it.

Names are those of cardano-ledger's failures (protocol 10). Everything else (money, scripts,
signatures, sizes) is the engine's. Not checked by either, and so told in the documentation: which
body may vote on which action, constitution and committee, pools' and DReps' expiry, epochs'
boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cbor2

from contracts.devnet import addresses, cbor
from contracts.devnet.ledger.refusal import LedgerRefusal
from contracts.devnet.parameters import EPOCH_LENGTH, PARAMETERS, SAFE_ZONE
from contracts.devnet.register import DREP_DEPOSIT, KEY_DREP, SCRIPT_DREP, Register, credential
from contracts.devnet.transaction import Certificate, Tx

_ACTION_DEPOSIT = int(PARAMETERS["gov_action_deposit"])
_LEAST_POOL_COST = int(PARAMETERS["min_pool_cost"])
_E_MAX: int = PARAMETERS["e_max"]
_COMMITTEE, _POOL_VOTER = (0, 1), 4
# Fields of a body that are sets: the ledger decodes none with an element twice (since protocol 9).
_SETS = {
    0: "inputs",
    4: "certificates",
    13: "collateral inputs",
    14: "required signers",
    18: "reference inputs",
    20: "proposals",
}
_WORD64 = 2**64


def check(tx: Tx, register: Register, slot: int, tip_slot: int) -> None:
    """Raises ``LedgerRefusal``. slot: the current one; tip_slot: the newest block's, from which the
    future is known.
    """
    _decoded(tx.raw)
    _addressed(tx)
    _foreseen(tx, tip_slot)
    if tx.valid:  # a failing script's transaction does nothing but give up its collateral
        _withdrawn(tx, register)
        found = register.drained(tx)
        for one in tx.certificates:
            _certified(found, one, slot // EPOCH_LENGTH)
            found = found.certified(one)
        _governed(tx, found)


def refuse(name: str, text: str) -> LedgerRefusal:
    return LedgerRefusal(f"{name}: {text}", [])


# --- what the ledger's decoders refuse ---


def _decoded(raw: bytes) -> None:
    body_raw = cbor.elements(raw)[0]
    body: dict[int, bytes] = {}
    for key_raw, value in cbor.pairs(body_raw):
        key = cbor.uint(key_raw)
        if key in body:
            raise refuse("DecoderFailure", f"the body has key {key} twice")
        body[key] = value
    for key, name in _SETS.items():
        values = [_plain(one) for one in cbor.elements(body[key])] if key in body else []
        if len(set(values)) < len(values):
            raise refuse("DecoderFailure", f"an element stands twice in the set of {name}")
    for one in (*cbor.elements(body[1]), *([body[16]] if 16 in body else [])):
        _quantities(one)
    if 9 in body:
        _bundle(body[9], -(2**63), 2**63)


def _plain(raw: bytes) -> bytes:
    """One encoding for equal values; bytes that the library cannot read again stay what they
    are.
    """
    try:
        return cbor2.dumps(cbor2.loads(raw), canonical=True)
    except Exception:  # noqa: BLE001 - an element of an odd kind, which the engine refuses
        return raw


def _quantities(output: bytes) -> None:
    if cbor.is_map(output):
        keys = [cbor.uint(key) for key, _ in cbor.pairs(output)]
        if len(set(keys)) < len(keys):
            raise refuse("DecoderFailure", "an output has a key twice")
        value = next(value for key, value in cbor.pairs(output) if cbor.uint(key) == 1)
    else:
        value = cbor.elements(output)[1]
    if cbor.head(value, 0)[0] == 4:
        _bundle(cbor.elements(value)[1], 1, _WORD64)


def _bundle(raw: bytes, least: int, beyond: int) -> None:
    policies: set[bytes] = set()
    for policy_raw, names_raw in cbor.pairs(raw):
        policy, names = cbor2.loads(policy_raw), set[bytes]()
        for name_raw, quantity_raw in cbor.pairs(names_raw):
            name, quantity = cbor2.loads(name_raw), cbor2.loads(quantity_raw)
            if quantity == 0:
                raise refuse("DecoderFailure", "MultiAsset cannot contain zeros")
            if not least <= quantity < beyond:
                raise refuse("DecoderFailure", f"quantity {quantity} of an asset is out of range")
            if name in names:
                raise refuse("DecoderFailure", "an asset stands twice in a value")
            names.add(name)
        if policy in policies or not names:
            raise refuse("DecoderFailure", "a policy stands twice in a value, or has no asset")
        policies.add(policy)


def _addressed(tx: Tx) -> None:
    back = tx.collateral_return
    for one in (*tx.outputs, *([] if back is None else [back])):
        try:
            at = addresses.describe(one.address)
        except addresses.BadAddress as problem:
            raise refuse("DecoderFailure", f"an output's address: {problem}") from problem
        if not at.testnet:
            raise refuse("WrongNetwork", f"Wrong network address: {at.text} is one of mainnet")


# --- time ---


def horizon(tip_slot: int) -> int:
    """The first slot whose time is not certain: a node knows its future for the safe zone, up to
    the end of the epoch that ends it.
    """
    return -(-(tip_slot + SAFE_ZONE) // EPOCH_LENGTH) * EPOCH_LENGTH


def _foreseen(tx: Tx, tip_slot: int) -> None:
    if tx.redeemers and tx.end is not None and tx.end > horizon(tip_slot):
        text = f"the upper bound, slot {tx.end}, lies past the forecast's, slot {horizon(tip_slot)}"
        raise refuse("OutsideForecast", text)


# --- accounts, pools, DReps, governance ---


def _withdrawn(tx: Tx, register: Register) -> None:
    for address, _ in tx.withdrawals:
        is_script, key = credential(address)
        held = register.accounts.get((is_script, key))
        if not is_script and held is not None and held.drep is None:
            text = f"the account of key {key.hex()} has delegated its vote to nobody"
            raise refuse("ConwayWdrlNotDelegatedToDRep", text)


def _certified(register: Register, one: Certificate, epoch: int) -> None:
    for broken, name in _broken(register, one, epoch):
        if broken():
            raise refuse(name, f"certificate of kind {one.kind}")


_Check = tuple[Callable[[], bool], str]


def _broken(register: Register, one: Certificate, epoch: int) -> Iterator[_Check]:
    if one.kind in (2, 10, 11, 13):
        yield lambda: one.pool not in register.pools, "DelegateeStakePoolNotRegisteredDELEG"
    if one.drep is not None and one.drep[0] in (KEY_DREP, SCRIPT_DREP):
        to = (one.drep[0] == SCRIPT_DREP, one.drep[1])
        yield lambda: to not in register.dreps, "DelegateeDRepNotRegisteredDELEG"
    if one.kind in (2, 9, 10):
        yield lambda: one.credential not in register.accounts, "StakeKeyNotRegisteredDELEG"
    if one.kind == 3:
        parts = cbor2.loads(one.raw)
        yield lambda: parts[4] < _LEAST_POOL_COST, "StakePoolCostTooLowPOOL"
        yield lambda: bool(parts[6][0] & 15), "WrongNetworkPOOL"
    if one.kind == 4:
        last = cbor2.loads(one.raw)[2]
        yield lambda: one.pool not in register.pools, "StakePoolNotRegisteredOnKeyPOOL"
        yield lambda: not epoch < last <= epoch + _E_MAX, "StakePoolRetirementWrongEpochPOOL"
    if one.kind in (14, 15):
        yield lambda: True, "ConwayCommitteeIsUnknown"  # this chain has no committee
    if one.kind == 16:
        yield lambda: one.deposit != DREP_DEPOSIT, "ConwayDRepIncorrectDeposit"
        yield lambda: one.subject in register.dreps, "ConwayDRepAlreadyRegistered"
    if one.kind in (17, 18):
        yield lambda: one.subject not in register.dreps, "ConwayDRepNotRegistered"
    if one.kind == 17:
        yield lambda: one.deposit != DREP_DEPOSIT, "ConwayDRepIncorrectRefund"


def _governed(tx: Tx, register: Register) -> None:
    for kind, key in tx.voters:
        known = key in register.pools if kind == _POOL_VOTER else (kind == 3, key) in register.dreps
        if kind in _COMMITTEE or not known:
            raise refuse("VotersDoNotExist", f"voter {key.hex()} is not registered")
    for action in tx.votes_on:
        if action not in register.actions:
            raise refuse("GovActionsDoNotExist", f"{action.tx}#{action.ix}")
    for one in tx.proposals:
        if one.deposit != _ACTION_DEPOSIT:
            text = f"a proposal's deposit is {_ACTION_DEPOSIT}, not {one.deposit}"
            raise refuse("ProposalDepositIncorrect", text)
        if credential(one.account) not in register.accounts:
            text = f"reward account {one.account.hex()} is not registered"
            raise refuse("ProposalReturnAccountDoesNotExist", text)
