"""Evaluations of bodies that are nearly right: each is answered in the shape of Blockfrost or
Ogmios, never by a fault of ours.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import cbor2
import httpx
import pytest

from contracts.devnet import Served, serve
from contracts.devnet.addresses import describe
from tests.integration.support.devnet import ADA, ref
from tests.integration.support.ledger_cases import ALICE, BOB, World
from tests.requires import need_devnet

EVALUATE = "/utils/txs/evaluate"
ROUNDS = 300
NUMBERS = [0, 1, -1, 23, 2**16, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**64), 10**30]
SHAPES = ({"Content-Type": "application/cbor"}, {"Content-Type": "application/json"})


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    need_devnet()
    with serve(block_ms=0) as one:
        yield one


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as one:
        yield one


class Odd:
    """Values of every kind of CBOR or JSON, from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def ledger(self, depth: int = 0) -> Any:
        """One that CBOR can hold."""
        dice, kind = self.dice, self.dice.randrange(7 if depth < 3 else 4)
        match kind:
            case 0:
                return dice.choice(NUMBERS)
            case 1:
                return dice.randbytes(dice.choice([0, 1, 27, 28, 29, 32, 33, 57]))
            case 2:
                return dice.choice(["", "text", "\0", "é" * 32])
            case 3:
                return dice.choice([None, True, False, 1.5])
            case 4:
                return [self.ledger(depth + 1) for _ in range(dice.randrange(4))]
            case 5:
                keys = dice.sample([0, 1, 2, 3, b"", b"k" * 28, "t"], dice.randrange(3))
                return {key: self.ledger(depth + 1) for key in keys}
            case _:
                return cbor2.CBORTag(dice.choice([2, 24, 30, 121, 258]), self.ledger(depth + 1))

    def bent(self, value: Any) -> Any:
        """*value* with one thing somewhere in it that does not belong there."""
        dice = self.dice
        if dice.random() < 0.2:
            return self.ledger()
        if isinstance(value, cbor2.CBORTag):
            return cbor2.CBORTag(value.tag, self.bent(value.value))
        if isinstance(value, dict) and value:
            key = dice.choice(list(value))
            return {**value, key: self.bent(value[key])}
        if isinstance(value, list | tuple) and value:
            at = dice.randrange(len(value))
            return [*value[:at], self.bent(value[at]), *value[at + 1 :]]
        return self.ledger()


def parts(world: World, dice: random.Random) -> tuple[dict[int, Any], dict[int, Any]]:
    """Body and witnesses of a transaction that runs a script, with fields to bend that it does not
    need.
    """
    draft = dice.choice([world.mint, world.spend])()
    body, witness = dict(draft.body), dict(cbor2.loads(draft.signed())[1])
    key = ALICE.vkh
    more: dict[int, Any] = {
        4: [[9, [0, key], [1, key]]], 5: {b"\xf0" + key: 0}, 14: [key],
        16: {0: BOB.raw, 1: ADA}, 18: [ref(world.reference)],
        19: {(2, key): {(b"\x11" * 32, 0): [1, None]}}, 20: [[1, b"\xe0" + key, [6], ["x", key]]],
    }  # fmt: skip
    field = dice.choice([None, *more])
    if field is not None:
        body[field] = more[field]
    plain: dict[int, Any] = {1: [[0, key]], 3: [b"\x01"], 4: [1], 6: [b"\x01"], 7: [b"\x01"]}
    field = dice.choice([None, *plain])
    if field is not None:
        witness[field] = plain[field]
    if dice.random() < 0.3:
        body[1] = [
            *body[1],
            {0: ALICE.raw, 1: ADA, 3: cbor2.CBORTag(24, cbor2.dumps([3, b"\x01"]))},
        ]
    return body, witness


def checked(answer: httpx.Response) -> str:
    """What kind of answer it was; it has the shape of one."""
    said = answer.json()
    if answer.status_code == 400:
        assert said["status_code"] == 400 and said["error"] == "Bad Request", said
        return "400"
    assert answer.status_code == 200, (answer.status_code, said)
    assert said["type"] in ("jsonwsp/response", "jsonwsp/fault") and said["servicename"] == "ogmios"
    return str(said["type"])


def test_an_odd_transaction_is_answered_as_ogmios_would(
    served: Served, client: httpx.Client
) -> None:
    world, odd, found = World(served.devnet), Odd(7), Counter[str]()
    for _ in range(ROUNDS):
        body, witness = parts(world, odd.dice)
        if odd.dice.random() < 0.5:
            key = odd.dice.choice(list(body))
            body[key] = odd.bent(body[key])
        else:
            key = odd.dice.choice(list(witness))
            witness[key] = odd.bent(witness[key])
        raw = cbor2.dumps([body, witness, True, None])
        found[checked(client.post(EVALUATE, content=raw, headers=SHAPES[0]))] += 1
    assert found["jsonwsp/response"] > 30 and found["jsonwsp/fault"] > 30, found


def test_odd_outputs_beside_a_transaction_are_refused(served: Served, client: httpx.Client) -> None:
    world, odd, found = World(served.devnet), Odd(8), Counter[str]()
    raw = world.spend().signed()
    spent = cbor2.loads(raw)[0][0]
    tx, index = (spent.value if isinstance(spent, cbor2.CBORTag) else spent)[0]
    text, policy = describe(ALICE.raw).text, "01" * 28
    outputs: list[Any] = [
        [{"txId": tx.hex(), "index": index},
         {"address": text, "value": {"coins": 3, "assets": {f"{policy}.00": 1}}, "datum": "00"}],
        {"transaction": {"id": tx.hex()}, "index": index, "address": text, "datumHash": "00" * 32,
         "value": {"ada": {"lovelace": 3}, policy: {"00": 1}}, "script": {"native": {"all": []}}},
        {"transaction": {"id": "22" * 32}, "index": 0, "address": text,
         "value": {"ada": {"lovelace": 3}}, "script": {"language": "plutus:v3", "cbor": "4100"}},
    ]  # fmt: skip
    deep = json.loads("[" * 200 + "]" * 200)

    def jsonable(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, cbor2.CBORTag):
            return jsonable(value.value)
        if isinstance(value, dict):
            return {str(key): jsonable(one) for key, one in value.items()}
        return [jsonable(one) for one in value] if isinstance(value, list) else value

    for _ in range(ROUNDS):
        asked: Any = {"cbor": raw.hex(), "additionalUtxoSet": [odd.dice.choice(outputs)]}
        text = json.dumps(jsonable(odd.bent(odd.dice.choice([asked, {**asked, "x": deep}]))))
        answer = client.post(f"{EVALUATE}/utxos", content=text, headers=SHAPES[1])
        found[checked(answer)] += 1
    nested: Any = []
    for _ in range(300):
        nested = {"all": [nested]}
    script = {**outputs[1], "script": {"native": nested}}
    for text in (
        "[" * 100_000, '{"cbor": 1e999}', '{"cbor": "00", "additionalUtxoSet": [[{}, {}]]}',
        json.dumps({"cbor": raw.hex(), "additionalUtxoSet": [script]}),
        f'{{"cbor": "{raw.hex()}", "additionalUtxoSet": [[{{"txId": [], "index": 1e999}}, {{}}]]}}',
    ):  # fmt: skip
        found[checked(client.post(f"{EVALUATE}/utxos", content=text, headers=SHAPES[1]))] += 1
    assert found["400"] > 100, found
