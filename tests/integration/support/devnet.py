"""Transactions for the devnet's tests, put together by hand so that each field can be set wrong on
its own.

Nothing here is pycardano: what the tests of the ledger's rules send is plain CBOR of the Conway
CDDL, signed by PyNaCl.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import cbor2
from nacl.signing import SigningKey
from uplc.tools import flatten, parse

from contracts.devnet import addresses
from contracts.devnet.parameters import COST_MODELS
from contracts.devnet.transaction import OutRef

ADA = 1_000_000
# Succeeds when the redeemer is the integer 42: the context is Constr(info, redeemer, purpose).
ANSWER_42 = """(program 1.1.0 (lam ctx (force [(force (builtin ifThenElse))
    [(builtin equalsInteger) (con integer 42) [(builtin unIData) [(force (builtin headList)) [(force (builtin tailList))
        [(force (force (builtin sndPair))) [(builtin unConstrData) ctx]]]]]]
    (delay (con unit ())) (delay (error))])))"""
ALWAYS = "(program 1.1.0 (lam ctx (con unit ())))"


def blake2b(data: bytes, size: int = 32) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()


def compiled(source: str) -> bytes:
    """A PlutusV3 script's bytes as they stand in a witness set."""
    return flatten(parse(source))


def script_hash(script: bytes, language: int = 3) -> bytes:
    return blake2b(bytes([language]) + script, 28)


class FrozenClock:
    """Time that stands still unless a test moves it. now: POSIX milliseconds."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True)
class Party:
    """A key with its enterprise address on the test network."""

    name: str

    @property
    def key(self) -> SigningKey:
        return SigningKey(blake2b(self.name.encode()))

    @property
    def vk(self) -> bytes:
        return bytes(self.key.verify_key)

    @property
    def vkh(self) -> bytes:
        return blake2b(self.vk, 28)

    @property
    def raw(self) -> bytes:
        return b"\x60" + self.vkh

    @property
    def address(self) -> str:
        return addresses.describe(self.raw).text

    @property
    def stake(self) -> bytes:
        """This key's reward account."""
        return b"\xe0" + self.vkh


def script_address(script: bytes, language: int = 3) -> bytes:
    return b"\x70" + script_hash(script, language)


@dataclass(frozen=True)
class Raw:
    """CBOR that stands in a transaction as it is, for encodings that a library would not write."""

    encoded: bytes


def dumps(value: Any) -> bytes:
    """CBOR in the library's encoding, but for what is ``Raw``."""
    return cbor2.dumps(value, default=lambda encoder, raw: encoder.write(raw.encoded))


def language_views(languages: tuple[int, ...]) -> bytes:
    """What the script data hash says of cost models (Alonzo's CDDL): version 1 as bytes within
    bytes, and last, as its key is longest.
    """
    entries = [
        cbor2.dumps(one - 1) + cbor2.dumps(COST_MODELS[f"PlutusV{one}"])
        for one in languages
        if one > 1
    ]
    if 1 in languages:
        costs = b"".join(cbor2.dumps(one) for one in COST_MODELS["PlutusV1"])
        entries.append(cbor2.dumps(b"\x00") + cbor2.dumps(b"\x9f" + costs + b"\xff"))
    return bytes([0xA0 + len(entries)]) + b"".join(entries)


Mutation = Callable[["Draft"], "Draft"]


@dataclass(frozen=True)
class Draft:
    """A transaction before it is signed. body and witness by CDDL key; redeemers by (tag, index).

    The script data hash is derived when ``redeemers`` is not empty, unless the body sets it;
    languages: of the Plutus scripts that are run, oldest first. raw_redeemers and raw_body: the
    very bytes to send instead of a tidy encoding (the body's signature and the script data hash are
    made over them).
    """

    body: dict[int, Any]
    signers: tuple[Party, ...]
    redeemers: dict[tuple[int, int], tuple[Any, tuple[int, int]]] = field(default_factory=dict)
    witness: dict[int, Any] = field(default_factory=dict)
    auxiliary: Any = None
    valid: bool = True
    spoil: Callable[[bytes], bytes] = bytes
    languages: tuple[int, ...] = (3,)
    raw_redeemers: bytes | None = None
    raw_body: Callable[[dict[int, Any]], bytes] = dumps

    def put(self, **changes: Any) -> Draft:
        return replace(self, **changes)

    def set(self, key: int, value: Any) -> Draft:
        """This draft with one field of the body set, or taken away if None."""
        body = {k: v for k, v in {**self.body, key: value}.items() if v is not None}
        return replace(self, body=body)

    def output(self, index: int, lovelace: int) -> Draft:
        """This draft with another amount in one output."""
        outputs = [dict(one) for one in self.body[1]]
        outputs[index][1] = lovelace
        return self.set(1, outputs)

    def shift(self, lovelace: int, source: int = -1) -> Draft:
        """This draft with lovelace moved from the fee into an output, so that it stays balanced."""
        outputs = [dict(one) for one in self.body[1]]
        outputs[source][1] += lovelace
        return self.set(1, outputs).set(2, self.body[2] - lovelace)

    def signed(self) -> bytes:
        body, witness = dict(self.body), dict(self.witness)
        if self.redeemers:
            tidy = dumps({key: list(value) for key, value in self.redeemers.items()})
            listed = self.raw_redeemers or tidy
            witness[5] = Raw(listed)
            views = language_views(self.languages)
            datums = dumps(witness[4]) if 4 in witness else b""
            body.setdefault(11, blake2b(listed + datums + views))
            if body[11] == b"":
                del body[11]
        raw = self.raw_body(body)
        witness[0] = [
            [party.vk, self.spoil(party.key.sign(blake2b(raw)).signature)] for party in self.signers
        ]
        if not witness[0]:
            del witness[0]
        return dumps([Raw(raw), witness, self.valid, self.auxiliary])


def ref(out: OutRef) -> list[Any]:
    """An input as CBOR has it."""
    return [bytes.fromhex(out.tx), out.ix]


def out(address: bytes, lovelace: Any, **more: Any) -> dict[int, Any]:
    """A post-Alonzo output. datum: inline Plutus data; datum_hash: 32 bytes; script: a V3 reference
    script, or [language, body].
    """
    made: dict[int, Any] = {0: address, 1: lovelace}
    if "datum" in more:
        made[2] = [1, cbor2.CBORTag(24, cbor2.dumps(more["datum"]))]
    if "datum_hash" in more:
        made[2] = [0, more["datum_hash"]]
    if "script" in more:
        script = more["script"] if isinstance(more["script"], list) else [3, more["script"]]
        made[3] = cbor2.CBORTag(24, cbor2.dumps(script))
    return made


def pay(
    source: OutRef, owner: Party, held: int, outputs: list[dict[int, Any]], fee: int = 200_000
) -> Draft:
    """A payment from one output of ``owner``'s; the change is the last output."""
    change = held - fee - sum(one[1] for one in outputs)
    return Draft({0: [ref(source)], 1: [*outputs, out(owner.raw, change)], 2: fee}, (owner,))
