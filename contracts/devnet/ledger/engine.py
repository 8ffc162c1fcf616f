"""The ledger's rules: Scalus inside this process, in V8 by mini-racer. The only file that knows
either.

States are immutable handles: ``apply`` returns a new one, so a rollback is nothing but going on
from an older handle. ``Engine`` is not thread-safe: the node calls it under its lock. ``Evaluator``
is.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import py_mini_racer

from contracts.devnet.ledger.mend import mended
from contracts.devnet.ledger.refusal import LedgerRefusal, named
from contracts.devnet.parameters import COST_MODELS
from contracts.devnet.register import DREP_DEPOSIT, Register
from contracts.devnet.transaction import Tx

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
    const view = new Uint8Array(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength);
    for (const b of view) escaped += String.fromCharCode(b);
    return decodeURIComponent(escape(escaped));
  }
}
"""
_CALL_SECONDS = 60.0
# The largest that a transaction may use takes some three seconds on a machine with time for it.
_EVALUATE_SECONDS = 20.0
# Certificates of pools and DReps: Scalus 0.17.0 judges by those that a state was made with, and
# notes no new ones.
_FORGOTTEN = (3, 4, 16, 17)
_MODELS = [COST_MODELS[name] for name in ("PlutusV1", "PlutusV2", "PlutusV3")]


@dataclass(frozen=True, slots=True)
class Units:
    """Execution units of one redeemer. tag: spend, mint, certificate, withdrawal, vote or
    propose.
    """

    tag: str
    index: int
    memory: int
    steps: int


class ScriptFailure(Exception):
    """An evaluation has no result. at: (tag, index) of the redeemer where it ended, None if it did
    not come to scripts.
    """

    def __init__(self, reason: str, logs: list[str], at: tuple[str, int] | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.logs = logs
        self.at = at


class State:
    """One immutable ledger state, kept in V8 for as long as Python refers to it. register: what it
    was made of, beside its outputs.
    """

    __slots__ = ("__weakref__", "number", "register")

    def __init__(self, number: int, register: Register) -> None:
        self.number = number
        self.register = register


_TAGS = {
    "Spend": "spend",
    "Mint": "mint",
    "Cert": "certificate",
    "Reward": "withdrawal",
    "Voting": "vote",
    "Proposing": "propose",
}


class _V8:
    """Scalus in a V8 of its own. Not thread-safe. whole: no call ended in the middle."""

    def __init__(self, source: str) -> None:
        self.whole = True
        self._v8 = py_mini_racer.MiniRacer()
        # Left to the interpreter's end, V8's own destructor would wait for a thread that no longer
        # runs.
        self._free = weakref.finalize(self, self._v8.close)
        glue = (Path(__file__).resolve().parent / "glue.js").read_text()
        for script in (_SHIM, mended(source), glue):
            self._v8.eval(script)

    def call(self, function: str, *arguments: Any, seconds: float = _CALL_SECONDS) -> Any:
        text = ",".join(json.dumps(argument) for argument in arguments)
        whole, self.whole = self.whole, False
        answer = self._v8.eval(f"JSON.stringify({function}({text}) ?? null)", timeout_sec=seconds)
        self.whole = whole
        assert isinstance(answer, str)
        return json.loads(answer)

    def close(self) -> None:
        self._free()


class Evaluator:
    """Exact units of a transaction's scripts, bounded by what a transaction may use. Any thread may
    call it; they take turns.

    It has a V8 of its own, so that no block and no submitted transaction waits for an evaluation,
    and one serves every devnet of a process, for loading Scalus takes seconds; it is loaded when it
    is first asked.
    """

    def __init__(self, source: Callable[[], str], seconds: float = _EVALUATE_SECONDS) -> None:
        self._source = source
        self._seconds = seconds
        self._lock = threading.Lock()
        self._v8: _V8 | None = None

    def evaluate(self, zero_time_ms: int, tx: bytes, utxos: bytes) -> list[Units]:
        """Units of every redeemer, whatever the transaction declares. zero_time_ms: POSIX
        milliseconds of slot 0.

        Raises ``ScriptFailure`` with the first script that fails, or runs past the bound.
        """
        with self._lock:
            if self._v8 is None:
                self._v8 = _V8(self._source())
            try:
                asked = (zero_time_ms, _MODELS, tx.hex(), utxos.hex())
                answer = self._v8.call("tallyEvaluate", *asked, seconds=self._seconds)
            except py_mini_racer.JSTimeoutException:
                self._v8.close()
                self._v8 = None  # what an interrupted evaluation leaves behind is not worth asking
                why = f"the evaluation took longer than {self._seconds:g} seconds"
                raise ScriptFailure(why, [], None) from None
        if "error" in answer:
            at = answer["at"] and (_TAGS[answer["at"][0]], int(answer["at"][1]))
            raise ScriptFailure(answer["error"], answer["logs"], at)
        return [
            Units(_TAGS[tag], index, int(memory), int(steps))
            for tag, index, memory, steps in answer["redeemers"]
        ]


# What the last engine that was closed left, for the next: loading Scalus and its first transactions
# take a second and more, and a process may have one devnet after another.
_spare: list[_V8] = []


def _loaded(source: Callable[[], str]) -> _V8:
    try:
        return _spare.pop()
    except IndexError:
        return _V8(source())


class Engine:
    """Scalus with one time axis. zero_time_ms: POSIX milliseconds of slot 0."""

    def __init__(self, source: Callable[[], str], zero_time_ms: int) -> None:
        """*source*: gives the ledger's JavaScript; not asked where one is loaded already."""
        self._v8: _V8 | None = _loaded(source)
        self._released: list[int] = []
        self._call("tallyStart", zero_time_ms)

    def state(self, utxos: bytes, register: Register) -> State:
        """A state from a CBOR map of inputs to outputs, and who is registered."""
        return self._kept(self._call("tallyState", utxos.hex(), *_listed(register)), register)

    def apply(self, state: State, slot: int, tx: Tx) -> State:
        """The state after ``tx`` at ``slot``. Raises ``LedgerRefusal``; ``state`` itself never
        changes.
        """
        answer = self._call("tallyApply", state.number, slot, tx.raw.hex())
        if "error" in answer:
            raise LedgerRefusal(named(answer["error"]), answer["logs"])
        after = self._kept(answer["state"], state.register.after(tx))
        drawn = any(amount for _, amount in tx.withdrawals)
        if not tx.valid or not (drawn or any(one.kind in _FORGOTTEN for one in tx.certificates)):
            return after
        # Scalus 0.17.0 checks that a withdrawal is the whole balance and then leaves the balance as
        # it was: it could be drawn again.
        number = self._call("tallySettled", after.number, *_listed(after.register))
        return self._kept(number, after.register)

    def utxos(self, state: State) -> bytes:
        """Every unspent output, as the ledger itself holds it: a CBOR map of inputs to outputs."""
        return bytes.fromhex(self._call("tallyUtxos", state.number))

    def close(self) -> None:
        """Gives V8 up; no state may be used afterwards."""
        v8, self._v8 = self._v8, None
        if v8 is None:
            return
        if v8.whole and not _spare:
            v8.call("tallyForget")
            _spare.append(v8)
        else:
            v8.close()

    def _kept(self, number: int, register: Register) -> State:
        state = State(number, register)
        # The collector may run anywhere, even inside a call into V8: note the number here and free
        # it in the next call.
        weakref.finalize(state, self._released.append, number).atexit = False
        return state

    def _call(self, function: str, *arguments: Any) -> Any:
        assert self._v8 is not None, "the engine is closed"
        if self._released:
            released, self._released[:] = self._released[:], []
            self._v8.call("tallyRelease", released)
        return self._v8.call(function, *arguments)


def _listed(register: Register) -> tuple[list[Any], ...]:
    """Accounts, pools and DReps as the glue takes them."""
    accounts = [
        {
            "credentialType": "script" if is_script else "key",
            "credentialHash": key.hex(),
            "rewards": str(one.rewards),
            "pool": None if one.pool is None else one.pool.hex(),
        }
        for (is_script, key), one in register.accounts.items()
    ]
    pools = [{"params": raw.hex()} for raw in register.pools.values()]
    dreps = [
        {
            "credentialType": "script" if is_script else "key",
            "credentialHash": key.hex(),
            "deposit": str(DREP_DEPOSIT),
        }
        for is_script, key in register.dreps
    ]
    return accounts, pools, dreps
