"""Source to bytes, and bytes to ``plutus.json``: ``python -m contracts.channel.compiler``.

The only module of the product that needs pluthon; at run time ``contracts.blueprint`` reads the
committed file.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import uplc
from pluthon import pluthon_ast as p

from contracts.channel.settle import Ada, Asset, Token, settle, stub
from contracts.channel.terms import Build, Term

BLUEPRINT: Final = Path(__file__).resolve().parent.parent / "plutus.json"
DEPLOYED: Final = Build()
NO_HASH: Final = bytes(28)


def flat(term: Term) -> bytes:
    """A program of Plutus Core 1.1.0 as the ledger takes it: CBOR bytes around flat."""
    program: bytes = uplc.flatten(p.Program((1, 1, 0), term).compile())
    return program


def compile_settle(asset: Asset, build: Build = DEPLOYED) -> bytes:
    """``settle``; for a token still a function of its two parameters."""
    return flat(settle(asset, build))


def compile_stub(settle_hash: bytes) -> bytes:
    return flat(stub(settle_hash))


def script_hash(script: bytes) -> bytes:
    """The 28-byte hash of a Plutus V3 script given as CBOR-wrapped flat."""
    return hashlib.blake2b(b"\x03" + script, digest_size=28).digest()


def _validator(title: str, code: bytes, **more: Any) -> dict[str, Any]:
    body = {"title": title, **more, "compiledCode": code.hex(), "hash": script_hash(code).hex()}
    return body


def _data(title: str, **more: Any) -> dict[str, Any]:
    return {"title": title, "schema": more}


def blueprint() -> dict[str, Any]:
    """The CIP-57 document."""
    steps = _data("steps", **{"$ref": "#/definitions/Steps"})
    datum = _data("channel", **{"$ref": "#/definitions/Channel"})
    ada = compile_settle(Ada())
    return {
        "preamble": {
            "title": "tally/channel",
            "description": "Payment channels settled by a withdraw-zero validator",
            "version": "1.0.0",
            "plutusVersion": "v3",
            "license": "Apache-2.0",
        },
        "validators": [
            _validator("ada.settle", ada, redeemer=steps),
            _validator(
                "ada.stub", compile_stub(script_hash(ada)), datum=datum, redeemer=_data("ignored")
            ),
            _validator(
                "token.settle",
                compile_settle(Token()),
                redeemer=steps,
                parameters=[
                    _data("policy", dataType="bytes", minLength=28, maxLength=28),
                    _data("name", dataType="bytes", maxLength=32),
                ],
            ),
        ],
        "definitions": _definitions(),
    }


def _constructor(title: str, index: int, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "dataType": "constructor", "index": index, "fields": list(fields)}


def _definitions() -> dict[str, Any]:
    def number(title: str) -> dict[str, Any]:
        return {"title": title, "dataType": "integer"}

    def octets(title: str, length: int) -> dict[str, Any]:
        return {"title": title, "dataType": "bytes", "minLength": length, "maxLength": length}

    consts = {"title": "consts", "$ref": "#/definitions/Consts"}
    voucher = (number("cum"), number("take_to"), octets("signature", 64))
    return {
        "Consts": {
            "dataType": "list",
            "items": [
                octets("session_vk", 32),
                octets("adapter_vkh", 28),
                octets("payout", 28),
                octets("consumer_vkh", 28),
                number("close_period_ms"),
                number("fee_bps"),
            ],
        },
        "Channel": {
            "anyOf": [
                _constructor("Open", 0, consts, number("claimed")),
                _constructor("Closing", 1, consts, number("claimed"), number("expire_at_ms")),
            ]
        },
        "Steps": {"dataType": "list", "items": {"$ref": "#/definitions/Step"}},
        "Step": {
            "anyOf": [
                _constructor("Claim", 0, *voucher),
                _constructor("FinishClaiming", 1, *voucher),
                _constructor("Finish", 2),
                _constructor("TopUp", 3, number("amount")),
                _constructor("Close", 4),
            ]
        },
    }


def text() -> str:
    """``plutus.json``, byte for byte."""
    return json.dumps(blueprint(), indent=2) + "\n"


if __name__ == "__main__":
    BLUEPRINT.write_text(text(), encoding="utf-8")
