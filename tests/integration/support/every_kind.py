"""A devnet with every kind of transaction on it that its ledger takes, for what must hold of every
answer.

The ledger's cases give plain, scripted, minting, registering and withdrawing ones, the odd cases
odd encodings; here are metadata, CIP-25 and CIP-68, datums of odd shapes, delegations of stake and
votes, burning, an account's end. Beside it: ``support_every_script`` (languages, native scripts,
reference scripts, addresses, auxiliary data) and ``support_every_office`` (pools, DReps, proposals,
votes).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import cbor2

from contracts.devnet import Devnet
from contracts.devnet.addresses import describe
from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import ADA, Draft, Party, blake2b, out, pay, ref, script_hash
from tests.integration.support.every_office import add_offices
from tests.integration.support.every_script import add_scripts
from tests.integration.support.ledger_cases import ALICE, BOB, CASES, KEY_DEPOSIT, World
from tests.integration.support.odd_cases import ACCEPTED

Submit = Callable[[str, Draft], str]
HOLDER = Party("holder")
DELEGATOR, POOL = Party("delegator"), Party("pool")
POOL_DEPOSIT = 500 * ADA
CIP25 = {"name": "Tally 1", "image": ["ipfs://", "abc"], "mediaType": "image/png"}
LABEL_100, LABEL_222, LABEL_333 = (
    bytes.fromhex(one) for one in ("000643b0", "000de140", "0014df10")
)


@dataclass(frozen=True)
class Everything:
    """What was made, by name: transactions (hex) and units of assets."""

    txs: dict[str, str]
    units: dict[str, str]


def base(party: Party) -> bytes:
    """An address with the party's key as both parts."""
    return b"\x00" + party.vkh + party.vkh


def policy_of(party: Party) -> Any:
    return [0, party.vkh]


def policy_id(party: Party) -> bytes:
    return script_hash(cbor2.dumps(policy_of(party)), 0)


def with_metadata(draft: Draft, metadata: dict[int, Any]) -> Draft:
    digest = blake2b(cbor2.dumps(metadata))
    return draft.set(7, digest).put(auxiliary=metadata)


def minted(
    world: World, names: dict[bytes, int], metadata: dict[int, Any] | None = None, **more: Any
) -> Draft:
    """Tokens under ALICE's key, to HOLDER's base address."""
    bundle = {policy_id(ALICE): names}
    source = world.coin(ALICE, 20 * ADA)
    target = out(base(HOLDER), [5 * ADA, bundle], **more)
    change = out(ALICE.raw, 20 * ADA - 5 * ADA - 300_000)
    draft = Draft(
        {0: [ref(source)], 1: [target, change], 2: 300_000, 9: bundle},
        (ALICE,),
        witness={1: [policy_of(ALICE)]},
    )
    return with_metadata(draft, metadata) if metadata else draft


def certified(world: World, certificates: list[Any], deposit: int, *signers: Party) -> Draft:
    draft = pay(world.coin(ALICE, 1_000 * ADA), ALICE, 1_000 * ADA, [], fee=200_000 + deposit)
    return draft.set(2, 200_000).set(4, certificates).put(signers=(ALICE, *signers))


def build(devnet: Devnet, cases: Collection[str] | None = None) -> Everything:
    """Fills a devnet that makes a block of each transaction. cases: which of the ledger's cases to
    send; None for all.
    """
    world = World(devnet)
    txs: dict[str, str] = {}

    def submit(name: str, draft: Draft) -> str:
        txs[name] = devnet.submit(draft.signed())
        return txs[name]

    for case in CASES:
        if cases is None or case.name in cases:
            control, _ = case.build(world)
            submit(case.name, control)
    for name, odd in ACCEPTED.items():
        submit(name, odd(world))
    units = _tokens(world, submit)
    _datums(world, submit)
    _accounts(world, submit)
    add_scripts(world, submit)
    add_offices(world, submit)
    return Everything(txs, units)


def _tokens(world: World, submit: Submit) -> dict[str, str]:
    policy = policy_id(ALICE)
    v1 = {721: {policy.hex(): {"One": CIP25}, "version": 1}, 674: {"msg": ["hello", "there"]}}
    v2 = {721: {policy: {b"\xff\x01": CIP25}, "version": 2}}
    first = submit("CIP-25, version 1", minted(world, {b"One": 10}, v1))
    submit("CIP-25, version 2", minted(world, {b"\xff\x01": 1}, v2))
    said = cbor2.CBORTag(121, [{b"name": b"Tally 68", b"image": b"ipfs://x", b"odd": 5}, 1, 7])
    names = {LABEL_100 + b"N": 1, LABEL_222 + b"N": 1}
    submit("CIP-68, NFT", minted(world, names, datum=said))
    coin = cbor2.CBORTag(121, [{b"name": b"Coin", b"description": b"d", b"decimals": 6}, 2])
    names = {LABEL_100 + b"C": 1, LABEL_333 + b"C": 1000}
    submit("CIP-68, FT", minted(world, names, datum=coin))
    odd = {5: [1, {"a": b"\x01", 7: "x", b"\x02": -3}], 1: "text", 2**63 - 1: 3}
    submit("odd metadata", with_metadata(world.payment(), odd))

    burnt = {policy: {b"One": -4}}
    body = {
        0: [ref(OutRef(first, 0))],
        1: [out(HOLDER.raw, [5 * ADA - 300_000, {policy: {b"One": 6}}])],
        2: 300_000,
        9: burnt,
    }
    submit("burn", Draft(body, (HOLDER, ALICE), witness={1: [policy_of(ALICE)]}))
    prefix = policy.hex()
    return {
        "v1": prefix + b"One".hex(),
        "v2": prefix + "ff01",
        "nft": prefix + (LABEL_222 + b"N").hex(),
        "ft": prefix + (LABEL_333 + b"C").hex(),
        "reference": prefix + (LABEL_100 + b"N").hex(),
    }


def _datums(world: World, submit: Submit) -> None:
    keyed = cbor2.FrozenDict({1: 2})
    shapes: dict[str, Any] = {
        "a map with a map key": {keyed: [b"v"], b"k": {}},
        "a big integer": -(2**70),
        "long bytes": b"x" * 60,
        "constructor 7": cbor2.CBORTag(1280, [1]),
        "constructor 200": cbor2.CBORTag(102, [200, [b"", []]]),
    }
    for name, shape in shapes.items():
        held = 10 * ADA
        submit(
            name, pay(world.coin(ALICE, held), ALICE, held, [out(BOB.raw, 3 * ADA, datum=shape)])
        )


def _accounts(world: World, submit: Submit) -> None:
    who = [0, DELEGATOR.vkh]
    world.devnet.faucet(describe(base(DELEGATOR)).text, 50 * ADA)
    submit("registered, Shelley's", certified(world, [[0, who]], KEY_DEPOSIT))
    submit("delegated to abstain", certified(world, [[9, who, [2]]], 0, DELEGATOR))
    submit("deregistered", certified(world, [[8, who, KEY_DEPOSIT]], -KEY_DEPOSIT, DELEGATOR))
    submit(
        "registered and delegated",
        certified(world, [[12, who, [3], KEY_DEPOSIT]], KEY_DEPOSIT, DELEGATOR),
    )
    pool = [3, POOL.vkh, blake2b(b"vrf"), 0, 340 * ADA, cbor2.CBORTag(30, [1, 20])]
    pool += [b"\xe0" + DELEGATOR.vkh, [DELEGATOR.vkh], [], None]
    submit("a pool", certified(world, [pool], POOL_DEPOSIT, POOL, DELEGATOR))
    submit("delegated to the pool", certified(world, [[2, who, POOL.vkh]], 0, DELEGATOR))
    drep = [0, POOL.vkh]
    submit("a DRep", certified(world, [[16, drep, POOL_DEPOSIT, None]], POOL_DEPOSIT, POOL))
    submit("delegated to both", certified(world, [[10, who, POOL.vkh, drep]], 0, DELEGATOR))
