"""Every way in which a script, or an odd address, gets onto a chain that the ledger takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cbor2

from contracts.devnet.addresses import stake_address
from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import (
    ADA,
    Draft,
    blake2b,
    compiled,
    out,
    pay,
    ref,
    script_address,
    script_hash,
)
from tests.integration.support.ledger_cases import ALICE, BOB, CAROL, KEY_DEPOSIT, World
from tests.integration.support.odd_cases import byron, failing

Submit = Callable[[str, Draft], str]
UNIT = "(con unit ())"
# Yes to everything. Before version 3 a script is given its datum, its redeemer and the context, and
# none of them where there is no datum.
SPENDS = {
    1: compiled(f"(program 1.0.0 (lam d (lam r (lam ctx {UNIT}))))"),
    2: compiled(f"(program 1.0.0 (lam d (lam r (lam ctx {UNIT}))))"),
    3: compiled(f"(program 1.1.0 (lam ctx {UNIT}))"),
}
MINTS = {
    1: compiled(f"(program 1.0.0 (lam r (lam ctx {UNIT})))"),
    2: compiled(f"(program 1.0.0 (lam r (lam ctx {UNIT})))"),
    3: SPENDS[3],
}
WITNESS = {1: 3, 2: 6, 3: 7}
UNITS = (200_000, 200_000_000)
FEE = 600_000
_ALL = [1, [[0, ALICE.vkh], [4, 0]]]
NATIVE: dict[str, Any] = {
    "sig": [0, ALICE.vkh],
    "all": _ALL,
    "any": [2, [[0, ALICE.vkh], [0, CAROL.vkh]]],
    "at least": [3, 1, [[0, ALICE.vkh], _ALL]],
    "after": [1, [[0, ALICE.vkh], [4, 1]]],
    "before": [1, [[0, ALICE.vkh], [5, 10**9]]],
}


def native_hash(script: Any) -> bytes:
    return script_hash(cbor2.dumps(script), 0)


def guarded(world: World, draft: Draft) -> Draft:
    """With ALICE's collateral, and its return."""
    lost = FEE * 2
    coin = world.coin(ALICE, 5 * ADA)
    return draft.set(13, [ref(coin)]).set(16, out(ALICE.raw, 5 * ADA - lost)).set(17, lost)


def add_scripts(world: World, submit: Submit) -> None:
    """Scripts of every language: for reference, spent from, minting, on accounts; and outputs to
    every kind of address.
    """
    _references(world, submit)
    for language in SPENDS:
        _spent(world, submit, language)
        _minted(world, submit, language)
    _natively(world, submit)
    _account(world, submit)
    submit("a failing script", failing(world)[0])
    _addresses(world, submit)
    _auxiliary(world, submit)


def _references(world: World, submit: Submit) -> None:
    held = 30 * ADA
    for name, script in NATIVE.items():
        outs = [out(BOB.raw, 3 * ADA, script=[0, script])]
        submit(f"reference, {name}", pay(world.coin(ALICE, held), ALICE, held, outs))
    for language, script in SPENDS.items():
        outs = [out(BOB.raw, 3 * ADA, script=[language, script], datum=[b"x", {1: 2}])]
        submit(f"reference, V{language}", pay(world.coin(ALICE, held), ALICE, held, outs))


def _spent(world: World, submit: Submit, language: int) -> None:
    """Locked under a datum's hash, with more lovelace in between, and taken with script and datum
    beside.
    """
    script, datum, held = SPENDS[language], 7, 20 * ADA
    lock = out(script_address(script, language), 5 * ADA, datum_hash=blake2b(cbor2.dumps(datum)))
    locked = OutRef(
        submit(f"locked, V{language}", pay(world.coin(ALICE, held), ALICE, held, [lock])), 0
    )
    body = {0: [ref(locked)], 1: [out(ALICE.raw, 5 * ADA - FEE)], 2: FEE}
    witness = {WITNESS[language]: [script], 4: [datum]}
    draft = Draft(body, (ALICE,), {(0, 0): (datum, UNITS)}, witness, languages=(language,))
    submit(f"spent, V{language}", guarded(world, draft))


def _minted(world: World, submit: Submit, language: int) -> None:
    script = MINTS[language]
    policy, held = script_hash(script, language), 20 * ADA
    names = {b"": 3, b"\xff" * 32: 2**63 - 1}

    def draft(source: OutRef, coins: int, mint: dict[bytes, int], left: Any) -> Draft:
        body = {0: [ref(source)], 1: [out(ALICE.raw, left)], 2: FEE, 9: {policy: mint}}
        witness = {WITNESS[language]: [script]}
        made = Draft(body, (ALICE,), {(1, 0): ([], UNITS)}, witness, languages=(language,))
        return guarded(world, made)

    left = held - FEE
    first = submit(
        f"minted, V{language}",
        draft(world.coin(ALICE, held), held, names, [left, {policy: names}]),
    )
    burnt = {name: -quantity for name, quantity in names.items()}
    submit(f"burnt, V{language}", draft(OutRef(first, 0), left, burnt, left - FEE))


def _natively(world: World, submit: Submit) -> None:
    """Every native script as a guard and as a policy."""
    for name, script in NATIVE.items():
        held, key = 20 * ADA, native_hash(script)
        bundle = {key: {b"native": 1}}
        lock = out(b"\x70" + key, 5 * ADA)
        made = submit(f"locked, {name}", pay(world.coin(ALICE, held), ALICE, held, [lock]))
        body = {
            0: [ref(OutRef(made, 0))],
            1: [out(ALICE.raw, [5 * ADA - FEE, bundle])],
            2: FEE,
            3: world.slot() + 3600,
            8: world.slot(),
            9: bundle,
        }
        submit(f"spent and minted, {name}", Draft(body, (ALICE,), witness={1: [script]}))


def _account(world: World, submit: Submit) -> None:
    """A script's stake account: registered, delegated, drawn from and closed."""
    script = SPENDS[3]
    who = [1, script_hash(script)]
    account = b"\xf0" + script_hash(script)

    def certified(certificate: list[Any], deposit: int) -> Draft:
        held = 20 * ADA
        change = held - FEE - deposit
        body = {0: [ref(world.coin(ALICE, held))], 1: [out(ALICE.raw, change)], 2: FEE}
        draft = Draft(body, (ALICE,), {(2, 0): (0, UNITS)}, {7: [script]})
        return guarded(world, draft.set(4, [certificate]))

    submit("a script's account", certified([7, who, KEY_DEPOSIT], KEY_DEPOSIT))
    submit("a script's vote", certified([9, who, [3]], 0))
    world.devnet.reward(stake_address(script_hash(script), is_script=True), 3 * ADA)
    held = 20 * ADA
    body = {
        0: [ref(world.coin(ALICE, held))],
        1: [out(ALICE.raw, held + 3 * ADA - FEE)],
        2: FEE,
        5: {account: 3 * ADA},
    }
    draft = Draft(body, (ALICE,), {(3, 0): (0, UNITS)}, {7: [script]})
    submit("a script's withdrawal", guarded(world, draft))
    submit("a script's account closed", certified([8, who, KEY_DEPOSIT], -KEY_DEPOSIT))


def _addresses(world: World, submit: Submit) -> None:
    key, script = ALICE.vkh, script_hash(SPENDS[3])
    kinds = {
        "base, key and key": b"\x00" + key + key,
        "base, script and key": b"\x10" + script + key,
        "base, key and script": b"\x20" + key + script,
        "base, script and script": b"\x30" + script + script,
        "pointer, key": b"\x40" + key + b"\x01\x02\x03",
        "pointer, script": b"\x50" + script + b"\x01\x02\x03",
        "enterprise, key": b"\x60" + key,
        "enterprise, script": b"\x70" + script,
        "Byron": byron(42),
    }
    for name, raw in kinds.items():
        held = 20 * ADA
        submit(f"address, {name}", pay(world.coin(ALICE, held), ALICE, held, [out(raw, 2 * ADA)]))
    old = [BOB.raw, 3 * ADA, blake2b(cbor2.dumps(1))]
    draft = world.payment().shift(-20_000)
    change = draft.body[1][1]
    submit("an output of the older shape", draft.set(1, [old, {**change, 1: change[1] - ADA}]))


def _auxiliary(world: World, submit: Submit) -> None:
    """Metadata in the three shapes that the ledger has had for it, with scripts beside."""
    shapes = {
        "Shelley": {1: "a"},
        "Allegra": [{2: "b"}, [_ALL]],
        "Alonzo": cbor2.CBORTag(259, {0: {3: "c"}, 1: [_ALL], 2: [SPENDS[1]], 4: [SPENDS[3]]}),
    }
    for name, shape in shapes.items():
        draft = replace(world.payment().shift(-100_000), auxiliary=shape)
        submit(f"auxiliary data, {name}", draft.set(7, blake2b(cbor2.dumps(shape))))
