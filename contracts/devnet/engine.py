"""The ledger's rules: Scalus inside this process, in V8 by mini-racer. The only file that knows either.

States are immutable handles: ``apply`` returns a new one, so a rollback is nothing but going on from an older handle.
Not thread-safe: the node calls it under its lock.
"""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import py_mini_racer

from contracts.devnet.parameters import COST_MODELS

# V8 alone has none of what a browser would offer; Scalus uses these and no more.
_SHIM = """
var module = { exports: {} }, exports = module.exports;
var console = { log() {}, warn() {}, error() {}, info() {}, debug() {} };
class TextEncoder {
  encode(text) {
    const escaped = unescape(encodeURIComponent(text));
    return Uint8Array.from(escaped, (c) => c.charCodeAt(0));
  }
}
class TextDecoder {
  decode(bytes) {
    let escaped = "";
    for (const b of new Uint8Array(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength)) escaped += String.fromCharCode(b);
    return decodeURIComponent(escape(escaped));
  }
}
"""
_CALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered stake credential with its reward balance. kind: "key" or "script"; hash: 28 bytes."""

    kind: str
    hash: bytes
    rewards: int = 0


@dataclass(frozen=True, slots=True)
class Units:
    """Execution units of one redeemer. tag: spend, mint, certificate, withdrawal, vote or propose."""

    tag: str
    index: int
    memory: int
    steps: int


class LedgerRefusal(Exception):
    """The ledger does not accept a transaction. reason: the ledger's own words; logs: traces of the failing script."""

    code = "ledger_refused"

    def __init__(self, reason: str, logs: list[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.logs = logs


class State:
    """One immutable ledger state, kept in V8 for as long as Python refers to it."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


_TAGS = {
    "Spend": "spend",
    "Mint": "mint",
    "Cert": "certificate",
    "Reward": "withdrawal",
    "Voting": "vote",
    "Proposing": "propose",
}


class Engine:
    """Scalus with one time axis. zero_time_ms: POSIX milliseconds of slot 0."""

    def __init__(self, source: str, zero_time_ms: int) -> None:
        self._v8 = py_mini_racer.MiniRacer()
        # Left to the interpreter's end, V8's own destructor would wait for a thread that no longer runs.
        self._free = weakref.finalize(self, self._v8.close)
        self._released: list[int] = []
        for script in (_SHIM, source, (Path(__file__).resolve().parent / "glue.js").read_text()):
            self._v8.eval(script)
        models = [COST_MODELS[name] for name in ("PlutusV1", "PlutusV2", "PlutusV3")]
        self._call("tallyStart", zero_time_ms, models)

    def state(self, utxos: bytes, registrations: list[Registration]) -> State:
        """A state from a CBOR map of inputs to outputs and the registered stake credentials."""
        accounts = [
            {
                "credentialType": one.kind,
                "credentialHash": one.hash.hex(),
                "rewards": str(one.rewards),
            }
            for one in registrations
        ]
        return self._kept(
            self._call("tallyState", {"utxos": utxos.hex(), "registrations": accounts})
        )

    def apply(self, state: State, slot: int, tx: bytes) -> State:
        """The state after ``tx`` at ``slot``. Raises ``LedgerRefusal``; ``state`` itself never changes."""
        answer = self._call("tallyApply", state.number, slot, tx.hex())
        if "error" in answer:
            raise LedgerRefusal(answer["error"], answer["logs"])
        return self._kept(answer["state"])

    def evaluate(self, tx: bytes, utxos: bytes) -> list[Units]:
        """Exact units of every redeemer, whatever the transaction declares. Raises ``LedgerRefusal`` if a script fails."""
        answer = self._call("tallyEvaluate", tx.hex(), utxos.hex())
        if "error" in answer:
            raise LedgerRefusal(answer["error"], answer["logs"])
        return [
            Units(_TAGS[tag], index, int(memory), int(steps))
            for tag, index, memory, steps in answer["redeemers"]
        ]

    def utxos(self, state: State) -> bytes:
        """Every unspent output, as the ledger itself holds it: a CBOR map of inputs to outputs."""
        return bytes.fromhex(self._call("tallyUtxos", state.number))

    def close(self) -> None:
        """Frees V8; no state may be used afterwards."""
        self._free()

    def _kept(self, number: int) -> State:
        state = State(number)
        # The collector may run anywhere, even inside a call into V8: note the number here and free it in the next call.
        weakref.finalize(state, self._released.append, number).atexit = False
        return state

    def _call(self, function: str, *arguments: Any) -> Any:
        if self._released:
            released, self._released[:] = self._released[:], []
            self._v8.eval(f"tallyRelease({json.dumps(released)})")
        text = ",".join(json.dumps(argument) for argument in arguments)
        answer = self._v8.eval(
            f"JSON.stringify({function}({text}) ?? null)", timeout_sec=_CALL_SECONDS
        )
        assert isinstance(answer, str)
        return json.loads(answer)
