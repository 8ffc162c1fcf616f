"""Evaluation as Blockfrost serves it: it hands the answers of Ogmios through, of version 5 or,
where asked (``?version=6``), 6.

A failing script is a result, not an HTTP error. Sources: Ogmios' API reference for both versions,
Blockfrost's documentation.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, cast

import cbor2
from fastapi import APIRouter, Query, Request

from contracts.devnet import addresses
from contracts.devnet.decoding import output
from contracts.devnet.face.common import Answer, Chain, body_of
from contracts.devnet.ledger.engine import Units
from contracts.devnet.ledger.evaluation import (
    CannotCreateContext,
    EvaluationRefusal,
    Failure,
    Pointer,
    ScriptFailures,
    Undecodable,
    UnknownInputs,
)
from contracts.devnet.transaction import OutRef

router = APIRouter(prefix="/utils/txs/evaluate")
# One at a time anyway: those that wait must not hold the threads that everything else is answered
# by.
_ROOM = ThreadPoolExecutor(max_workers=1, thread_name_prefix="devnet-evaluate")
_Version = Annotated[int, Query(ge=5, le=6)]
_PURPOSES = {"certificate": "publish", "withdrawal": "withdraw"}
_LANGUAGES = {"plutus:v1": 1, "plutus:v2": 2, "plutus:v3": 3}
_EXECUTION = "Some scripts of the transactions terminated with error(s)."


@router.post("", dependencies=[body_of("application/cbor")])
async def evaluate(chain: Chain, request: Request, version: _Version = 5) -> dict[str, Any]:
    """The body is the transaction: CBOR, or its base16 or base64 text."""
    return await _answer(chain, _transaction(await request.body()), [], version)


@router.post("/utxos", dependencies=[body_of("application/json")])
async def evaluate_with(chain: Chain, request: Request, version: _Version = 5) -> dict[str, Any]:
    """JSON body: cbor (base16 or base64) and additionalUtxoSet, outputs that the chain may not
    have, in the shape of either version.
    """
    try:
        asked = json.loads(await request.body())
        raw = _transaction(asked["cbor"].encode("ascii"))
        told = cast("list[Any]", asked.get("additionalUtxoSet") or [])
        extra = [_extra(one) for one in told]
    except Exception as problem:  # any JSON may arrive here, and what reads it raises many kinds
        raise Answer(400, f"Invalid request body: {problem!r}") from problem
    return await _answer(chain, raw, extra, version)


async def _answer(
    chain: Chain, raw: bytes, extra: list[tuple[OutRef, bytes]], version: int
) -> dict[str, Any]:
    try:
        loop = asyncio.get_running_loop()
        units = await loop.run_in_executor(_ROOM, chain.evaluate, raw, extra)
    except EvaluationRefusal as refusal:
        return _refused5(refusal) if version == 5 else _refused6(refusal)
    if version == 6:
        return _rpc(result=[_budget(one) for one in units])
    found = {f"{u.tag}:{u.index}": {"memory": u.memory, "steps": u.steps} for u in units}
    return _wsp({"EvaluationResult": found})


def _budget(one: Units) -> dict[str, Any]:
    budget = {"memory": one.memory, "cpu": one.steps}
    return {"validator": _validator((one.tag, one.index)), "budget": budget}


# --- what is asked ---


def _transaction(body: bytes) -> bytes:
    """Base16, base64 or the bytes themselves."""
    text = body.strip()
    for decode in (lambda: bytes.fromhex(text.decode("ascii")), lambda: _from_base64(text)):
        try:
            return decode()
        except ValueError:
            continue
    return body


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from problem


def _extra(entry: Any) -> tuple[OutRef, bytes]:
    if isinstance(entry, dict):
        told = cast("dict[str, Any]", entry)
        name, index = told["transaction"]["id"], told["index"]
    else:
        ref, told = cast("list[dict[str, Any]]", entry)
        name, index = ref["txId"], ref["index"]
    raw = _output(told)
    output(raw)  # one that a ledger could hold
    return OutRef(bytes.fromhex(name).hex(), int(index)), raw


def _output(told: dict[str, Any]) -> bytes:
    coins, bundle = _value(told["value"])
    text: str = told["address"]
    known = text.startswith("addr")
    fields: dict[int, Any] = {
        0: addresses.decode(text, "addr_test") if known else addresses.byron_bytes(text),
        1: [coins, bundle] if bundle else coins,
    }
    if told.get("datum"):
        fields[2] = [1, cbor2.CBORTag(24, bytes.fromhex(told["datum"]))]
    elif told.get("datumHash"):
        fields[2] = [0, bytes.fromhex(told["datumHash"])]
    if told.get("script"):
        fields[3] = cbor2.CBORTag(24, cbor2.dumps(_script(told["script"])))
    return cbor2.dumps(fields)


def _value(value: dict[str, Any]) -> tuple[int, dict[bytes, dict[bytes, int]]]:
    """Version 5: {coins, assets by "policy.name"}; version 6: {ada: {lovelace}, policy: {name:
    quantity}}.
    """
    bundle: dict[bytes, dict[bytes, int]] = {}
    if "coins" in value:
        assets = cast("dict[str, Any]", value.get("assets") or {})
        for unit, quantity in assets.items():
            policy, _, name = unit.partition(".")
            bundle.setdefault(bytes.fromhex(policy), {})[bytes.fromhex(name)] = int(quantity)
        return int(value["coins"]), bundle
    for policy, names in value.items():
        if policy != "ada":
            bundle[bytes.fromhex(policy)] = {bytes.fromhex(n): int(q) for n, q in names.items()}
    return int(value["ada"]["lovelace"]), bundle


def _script(script: dict[str, Any]) -> list[Any]:
    """As an output has it: [kind, body]. Version 5: {"plutus:v3": hex} or {"native": ...}; version
    6: {language, cbor or json}.
    """
    if "language" in script:
        language: str = script["language"]
        body: Any = script.get("cbor", script.get("json"))
    else:
        ((language, body),) = script.items()
    if language == "native":
        return [0, cbor2.loads(bytes.fromhex(body)) if isinstance(body, str) else _native(body)]
    raw = bytes.fromhex(body)
    # Clients differ in how often they wrap a script's bytes; the ledger's is once, beside the
    # output's own encoding.
    try:
        while isinstance(inner := cbor2.loads(raw), bytes):
            raw = inner
    except (cbor2.CBORDecodeError, ValueError, OverflowError):
        pass
    return [_LANGUAGES[language], cbor2.dumps(raw)]


def _native(script: Any) -> list[Any]:
    if isinstance(script, str):
        return [0, bytes.fromhex(script)]
    ((name, value),) = script.items()
    if name in ("all", "any"):
        return [1 if name == "all" else 2, [_native(one) for one in value]]
    if name in ("startsAt", "expiresAt"):
        return [4 if name == "startsAt" else 5, int(value)]
    return [3, int(name), [_native(one) for one in value]]


# --- what is answered ---


def _wsp(result: dict[str, Any]) -> dict[str, Any]:
    head = {"type": "jsonwsp/response", "version": "1.0", "servicename": "ogmios"}
    return {**head, "methodname": "EvaluateTx", "result": result, "reflection": None}


def _rpc(**content: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "evaluateTransaction", **content, "id": None}


def _refused5(refusal: EvaluationRefusal) -> dict[str, Any]:
    if isinstance(refusal, Undecodable):
        fault = {"code": "client", "string": f"Invalid request: {refusal}."}
        head = {"type": "jsonwsp/fault", "version": "1.0", "servicename": "ogmios"}
        return {**head, "fault": fault, "reflection": None}
    if isinstance(refusal, ScriptFailures):
        found = {f"{t}:{i}": [_failure5((t, i), one)] for (t, i), one in refusal.failures.items()}
        return _wsp({"EvaluationFailure": {"ScriptFailures": found}})
    if isinstance(refusal, UnknownInputs):
        unknown = [{"txId": ref.tx, "index": ref.ix} for ref in refusal.refs]
        return _wsp({"EvaluationFailure": {"UnknownInputs": unknown}})
    assert isinstance(refusal, CannotCreateContext)
    why = {"CannotCreateEvaluationContext": {"reason": str(refusal)}}
    return _wsp({"EvaluationFailure": why})


def _failure5(at: Pointer, one: Failure) -> dict[str, Any]:
    pointer = f"{at[0]}:{at[1]}"
    told: dict[str, Any] = {
        "validatorFailed": {"error": one.error, "traces": one.traces},
        "missingRequiredScripts": {"missing": [pointer], "resolved": {}},
        "missingRequiredDatums": {"missing": [one.missing], "provided": []},
        "nonScriptInputReferencedByRedeemer": _reference(one.missing, "txId"),
        "extraRedeemers": [pointer],
    }
    return {one.kind: told[one.kind]}


def _reference(text: str, name: str) -> dict[str, Any]:
    tx, _, index = text.partition("#")
    return {name: tx, "index": int(index or 0)}


def _refused6(refusal: EvaluationRefusal) -> dict[str, Any]:
    if isinstance(refusal, Undecodable):
        return _error(
            -32602, "Invalid transaction; it is not well-formed.", {"conway": str(refusal)}
        )
    if isinstance(refusal, ScriptFailures):
        found = [
            {"validator": _validator(at), "error": _failure6(at, one)}
            for at, one in refusal.failures.items()
        ]
        return _error(3010, _EXECUTION, found)
    if isinstance(refusal, UnknownInputs):
        unknown = [{"transaction": {"id": ref.tx}, "index": ref.ix} for ref in refusal.refs]
        text = "The transaction contains unknown UTxO references as inputs."
        return _error(3117, text, {"unknownOutputReferences": unknown})
    text = "Unable to create the evaluation context from the given transaction."
    return _error(3004, text, {"reason": str(refusal)})


def _error(code: int, message: str, data: Any) -> dict[str, Any]:
    return _rpc(error={"code": code, "message": message, "data": data})


def _validator(at: Pointer) -> dict[str, Any]:
    return {"purpose": _PURPOSES.get(at[0], at[0]), "index": at[1]}


def _failure6(at: Pointer, one: Failure) -> dict[str, Any]:
    tx, _, index = one.missing.partition("#")
    unsuitable = {"transaction": {"id": tx}, "index": int(index or 0)}
    code, data = {
        "validatorFailed": (3012, {"validationError": one.error, "traces": one.traces}),
        "missingRequiredScripts": (3011, {"missingScripts": [_validator(at)]}),
        "missingRequiredDatums": (3111, {"missingDatums": [one.missing]}),
        "nonScriptInputReferencedByRedeemer": (3013, {"unsuitableOutputReference": unsuitable}),
        "extraRedeemers": (3110, {"extraneousRedeemers": [_validator(at)]}),
    }[one.kind]
    return {"code": code, "message": one.error or one.kind, "data": data}
