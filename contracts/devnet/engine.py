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
from contracts.devnet.transaction import PLAIN_CERTIFICATES, Tx

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


Accounts = dict[tuple[str, bytes], int]


class LedgerRefusal(Exception):
    """The ledger does not accept a transaction. reason: the ledger's own words; logs: traces of the failing script."""

    code = "ledger_refused"

    def __init__(self, reason: str, logs: list[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.logs = logs


class State:
    """One immutable ledger state, kept in V8 for as long as Python refers to it.

    accounts: rewards by registered stake credential; None from the first pool, vote or delegation on, which they do not describe.
    """

    __slots__ = ("__weakref__", "accounts", "number")

    def __init__(self, number: int, accounts: Accounts | None) -> None:
        self.number = number
        self.accounts = accounts


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
        accounts = {(one.kind, one.hash): one.rewards for one in registrations}
        number = self._call("tallyState", utxos.hex(), _listed(accounts))
        return self._kept(number, accounts)

    def apply(self, state: State, slot: int, tx: Tx) -> State:
        """The state after ``tx`` at ``slot``. Raises ``LedgerRefusal``; ``state`` itself never changes."""
        answer = self._call("tallyApply", state.number, slot, tx.raw.hex())
        if "error" in answer:
            raise LedgerRefusal(answer["error"], answer["logs"])
        after = self._kept(answer["state"], _accounts_after(state.accounts, tx))
        if not any(amount for _, amount in tx.withdrawals):
            return after
        # Scalus 0.17.0 checks that a withdrawal is the whole balance and then leaves the balance as it was: it could be drawn again.
        if after.accounts is None:
            why = "this devnet pays no rewards out once a pool, a vote or a delegation exists"
            raise LedgerRefusal(why, [])
        number = self._call("tallySettled", after.number, _listed(after.accounts))
        return self._kept(number, after.accounts)

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

    def _kept(self, number: int, accounts: Accounts | None) -> State:
        state = State(number, accounts)
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


def _listed(accounts: Accounts) -> list[dict[str, str]]:
    return [
        {"credentialType": kind, "credentialHash": key.hex(), "rewards": str(rewards)}
        for (kind, key), rewards in accounts.items()
    ]


def _accounts_after(accounts: Accounts | None, tx: Tx) -> Accounts | None:
    if accounts is None or any(one.kind not in PLAIN_CERTIFICATES for one in tx.certificates):
        return None
    after = dict(accounts)
    for address, amount in tx.withdrawals:
        after["script" if address[0] & 0x10 else "key", address[1:]] -= amount
    for one in tx.certificates:
        assert one.credential is not None, "plain certificates are about stake credentials"
        is_script, key = one.credential
        if one.kind in (0, 7):
            after["script" if is_script else "key", key] = 0
        else:
            after.pop(("script" if is_script else "key", key), None)
    return after
