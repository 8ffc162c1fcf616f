"""Evaluation over the devnet's face: bounded, outside the lock, the chain first, and failures in
the shape of Ogmios.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cbor2
import httpx
import pytest

from contracts.devnet import Served, node, serve
from contracts.devnet.addresses import describe
from contracts.devnet.ledger.evaluation import evaluated
from contracts.devnet.parameters import PARAMETERS
from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import ADA, ANSWER_42, compiled, out, pay, ref, script_address
from tests.integration.support.ledger_cases import ALICE, World
from tests.requires import need_devnet

ENDLESS = compiled("(program 1.1.0 (lam ctx [(lam x [x x]) (lam x [x x])]))")
SCRIPT = compiled(ANSWER_42)
EVALUATE = "/utils/txs/evaluate"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    need_devnet()
    with serve(block_ms=200) as one:
        yield one


@pytest.fixture(scope="module")
def world(served: Served) -> World:
    return World(served.devnet)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as one:
        yield one


def answer(client: httpx.Client, content: bytes | str, path: str = EVALUATE) -> dict[str, Any]:
    kind = "json" if path.endswith("/utxos") else "cbor"
    headers = {"Content-Type": f"application/{kind}"}
    return client.post(path, content=content, headers=headers).raise_for_status().json()


def spending(source: OutRef, collateral: OutRef, script: bytes | None, redeemer: int = 42) -> bytes:
    """Spends one script's output; unsigned, as what is evaluated mostly is."""
    body = {0: [ref(source)], 1: [out(ALICE.raw, ADA)], 2: 200_000, 13: [ref(collateral)]}
    witness: dict[int, Any] = {5: {(0, 0): [redeemer, [1, 1]]}}
    if script is not None:
        witness[7] = [script]
    return cbor2.dumps([body, witness, True, None])


def with_outputs(raw: bytes, *entries: Any) -> str:
    return json.dumps({"cbor": raw.hex(), "additionalUtxoSet": list(entries)})


def ghost(ref: OutRef, address: bytes, **more: Any) -> list[Any]:
    output = {"address": describe(address).text, "value": {"coins": 3 * ADA}, **more}
    return [{"txId": ref.tx, "index": ref.ix}, output]


def test_an_endless_script_holds_nobody_up(
    world: World, served: Served, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three at once, held where the scripts run: reads, payments and blocks go on until they are
    let go, and each then ends at what a transaction may use.
    """
    held = 20 * ADA
    made = pay(
        world.coin(ALICE, held),
        ALICE,
        held,
        [out(script_address(ENDLESS), 3 * ADA, datum=0, script=ENDLESS)],
    )
    locked = OutRef(served.devnet.submit(made.signed()), 0)
    raw = spending(locked, world.coin(ALICE, 5 * ADA), None)
    begun, go_on = threading.Event(), threading.Event()

    def waits(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return evaluated(*given)

    monkeypatch.setattr(node, "evaluated", waits)
    with ThreadPoolExecutor(3) as room:
        running = [room.submit(answer, client, raw) for _ in range(3)]
        try:
            assert begun.wait(60)
            for _ in range(4):
                client.get("/blocks/latest").raise_for_status()
                world.coin(ALICE, 2 * ADA)
                served.devnet.mint()
            assert not any(one.done() for one in running)
        finally:
            go_on.set()
        found = [one.result() for one in running]
    for one in found:
        ((failure,),) = one["result"]["EvaluationFailure"]["ScriptFailures"].values()
        assert PARAMETERS["max_tx_ex_mem"] in failure["validatorFailed"]["error"]


def test_the_chain_comes_first_and_given_outputs_after_it(
    world: World, client: httpx.Client
) -> None:
    locked, collateral = world.locked(3 * ADA, datum=0), world.coin(ALICE, 5 * ADA)
    body = cbor2.loads(spending(locked, collateral, None))
    body[0][18] = [ref(world.reference)]
    raw = cbor2.dumps(body)
    # As clients send it: every input again, without what only the chain knows of it.
    again = [ghost(locked, script_address(SCRIPT)), ghost(world.reference, ALICE.raw)]
    found = answer(client, with_outputs(raw, *again), f"{EVALUATE}/utxos")
    assert set(found["result"]["EvaluationResult"]) == {"spend:0"}
    assert found["result"] == answer(client, raw)["result"]


@pytest.mark.parametrize("wrapped", [0, 1, 2])
def test_scripts_of_given_outputs_are_read(
    world: World, client: httpx.Client, wrapped: int
) -> None:
    inner = cbor2.loads(SCRIPT)
    assert isinstance(inner, bytes)
    body = [inner, SCRIPT, cbor2.dumps(SCRIPT)][wrapped].hex()
    unknown, holder = OutRef("ab" * 32, 0), OutRef("cd" * 32, 1)
    tx = cbor2.loads(spending(unknown, world.coin(ALICE, 5 * ADA), None))
    tx[0][18] = [ref(holder)]
    raw = cbor2.dumps(tx)
    datum = {"datum": cbor2.dumps(0).hex()}
    five = [
        ghost(unknown, script_address(SCRIPT), **datum),
        ghost(holder, ALICE.raw, script={"plutus:v3": body}),
    ]
    six = [
        {
            "transaction": {"id": one[0]["txId"]},
            "index": one[0]["index"],
            **one[1],
            "value": {"ada": {"lovelace": 3 * ADA}},
        }
        for one in five
    ]
    six[1]["script"] = {"language": "plutus:v3", "cbor": body}
    for entries in (five, six):
        found = answer(client, with_outputs(raw, *entries), f"{EVALUATE}/utxos")
        assert set(found["result"]["EvaluationResult"]) == {"spend:0"}


def test_failures_have_the_shape_of_ogmios(world: World, client: httpx.Client) -> None:
    locked, collateral = world.locked(3 * ADA, datum=0), world.coin(ALICE, 5 * ADA)
    good, bad = (spending(locked, collateral, SCRIPT, one) for one in (42, 41))
    for content in (good, good.hex(), base64.b64encode(good)):
        assert "EvaluationResult" in answer(client, content)["result"]

    def failure(content: bytes) -> Any:
        return answer(client, content)["result"]["EvaluationFailure"]

    (one,) = failure(bad)["ScriptFailures"]["spend:0"]
    assert set(one["validatorFailed"]) == {"error", "traces"}
    (one,) = failure(spending(locked, collateral, None))["ScriptFailures"]["spend:0"]
    assert one == {"missingRequiredScripts": {"missing": ["spend:0"], "resolved": {}}}
    unknown = spending(OutRef("ab" * 32, 7), collateral, SCRIPT)
    assert failure(unknown) == {"UnknownInputs": [{"txId": "ab" * 32, "index": 7}]}
    plain = spending(world.coin(ALICE, 3 * ADA), collateral, SCRIPT)
    (one,) = failure(plain)["ScriptFailures"]["spend:0"]
    assert set(one) == {"nonScriptInputReferencedByRedeemer"}
    fault = answer(client, b"\x84\x00")
    assert (fault["type"], fault["fault"]["code"]) == ("jsonwsp/fault", "client")


def test_version_6_has_the_shape_of_ogmios_6(world: World, client: httpx.Client) -> None:
    locked, collateral = world.locked(3 * ADA, datum=0), world.coin(ALICE, 5 * ADA)
    path = f"{EVALUATE}?version=6"
    found = answer(client, spending(locked, collateral, SCRIPT), path)
    (one,) = found["result"]
    assert found["jsonrpc"] == "2.0" and one["validator"] == {"purpose": "spend", "index": 0}
    assert set(one["budget"]) == {"memory", "cpu"}
    failed = answer(client, spending(locked, collateral, SCRIPT, 41), path)["error"]
    assert failed["code"] == 3010 and failed["data"][0]["error"]["code"] == 3012
    unknown = answer(client, spending(OutRef("ab" * 32, 7), collateral, SCRIPT), path)["error"]
    assert unknown["data"]["unknownOutputReferences"][0]["index"] == 7
    assert answer(client, b"\x84\x00", path)["error"]["code"] == -32602
