"""The second opinion: Aiken's UPLC machine, compiled to WebAssembly, run by wasmtime.

It is given a whole transaction in CBOR and builds the script context by itself, so a mistake in
``support_context.py`` would show as well.  Installed by ``npm ci`` in ``tests/contracts/aiken``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cbor2
import pytest
import wasmtime
from uplc import ast as u

from tests.contracts.support import context as c
from tests.contracts.support.scenes import Instance

HERE = Path(__file__).parents[1]
WASM = HERE / "aiken/node_modules/@lucid-evolution/uplc/dist/node/uplc_tx_bg.wasm"
PARAMETERS = HERE.parent.parent / "contracts/devnet/parameters.json"
SPEND, REWARD = 0, 3
BUDGET_STEPS, BUDGET_MEM = 10_000_000_000, 16_500_000


def need_aiken() -> None:
    """Skip without the package; fail where everything must run."""
    if WASM.exists():
        return
    reason = "Aiken's evaluator is not installed; run: npm ci --prefix tests/contracts/aiken"
    if os.environ.get("TALLY_REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


# --- the transaction in CBOR --------------------------------------------------------------------
def _plutus(data: c.Data) -> bytes:
    encoded: bytes = u.plutus_cbor_dumps(data)
    return encoded


def _raw(data: c.Data) -> Any:
    return cbor2.loads(_plutus(data))


def _credential(data: c.Data) -> tuple[int, bytes]:
    assert isinstance(data, u.PlutusConstr)
    content = data.fields[0]
    assert isinstance(content, u.PlutusByteString)
    return data.constructor, content.value


def _address(data: c.Data) -> bytes:
    """Shelley bytes of a test network."""
    assert isinstance(data, u.PlutusConstr)
    kind, payment = _credential(data.fields[0])
    stake = data.fields[1]
    assert isinstance(stake, u.PlutusConstr)
    if stake.constructor == 1:
        return bytes([0x60 | kind << 4]) + payment
    inner = stake.fields[0]
    assert isinstance(inner, u.PlutusConstr)
    stake_kind, stake_hash = _credential(inner.fields[0])
    return bytes([kind << 4 | stake_kind << 5]) + payment + stake_hash


def _assets(value: c.Value) -> dict[bytes, dict[bytes, int]]:
    assets: dict[bytes, dict[bytes, int]] = {}
    for (policy, name), amount in sorted(value.items()):
        if (policy, name) != c.ADA:
            assets.setdefault(policy, {})[name] = amount
    return assets


def _output(out: c.Out) -> dict[int, Any]:
    assets, lovelace = _assets(out.value), out.value[c.ADA]
    written: dict[int, Any] = {
        0: _address(out.address),
        1: [lovelace, assets] if assets else lovelace,
    }
    if out.datum is not None:
        assert isinstance(out.datum, u.PlutusConstr)
        content = out.datum.fields[0]
        if out.datum.constructor == 2:
            written[2] = [1, cbor2.CBORTag(24, _plutus(content))]
        else:
            assert isinstance(content, u.PlutusByteString)
            written[2] = [0, content.value]
    if out.script is not None:
        # Any script will do: its hash differs from the context's, and both are refused alike.
        written[3] = cbor2.CBORTag(24, cbor2.dumps([3, bytes.fromhex("46010100220041")]))
    return written


def transaction(instance: Instance, tx: c.Tx) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """(CBOR of *tx*, its inputs as pairs of CBOR). One slot is one millisecond from the epoch."""
    inputs = sorted(tx.inputs, key=lambda i: (i.tx_id, i.index))
    references = [[i.tx_id, i.index] for i in inputs]
    body: dict[int, Any] = {0: references, 1: [_output(o) for o in tx.outputs], 2: 200_000}
    if tx.upper is not None:
        body[3] = tx.upper
    accounts = [(*_credential(who), amount) for who, amount in tx.withdrawals]
    if accounts:
        # The ledger orders credentials with scripts before keys.
        ordered = sorted(accounts, key=lambda a: (not a[0], a[1]))
        rewards = [(bytes([0xE0 | kind << 4]) + who, amount) for kind, who, amount in ordered]
        body[5] = dict(rewards)
    if tx.lower is not None:
        body[8] = tx.lower
    if tx.mint:
        body[9] = _assets(tx.mint)
    if tx.signers:
        body[14] = sorted(tx.signers)
    rewarded = list(body.get(5, {}))
    ours = bytes([0xF0]) + instance.scripts.settle_hash
    redeemers: dict[tuple[int, int], Any] = {}
    for at, each in enumerate(inputs):
        kind, payment = _credential(each.out.address.fields[0])  # type: ignore[union-attr]
        if kind == 1 and payment == instance.scripts.stub_hash:
            redeemers[SPEND, at] = [0, [BUDGET_MEM, BUDGET_STEPS]]
    redeemers[REWARD, rewarded.index(ours)] = [_raw(tx.redeemer), [BUDGET_MEM, BUDGET_STEPS]]
    scripts = [cbor2.loads(x) for x in (instance.scripts.settle_cbor, instance.scripts.stub_cbor)]
    witnesses = {5: redeemers, 7: [cbor2.dumps(x) for x in scripts]}
    encoded = cbor2.dumps([body, witnesses, True, None])
    pairs = [
        (cbor2.dumps(r), cbor2.dumps(_output(i.out)))
        for r, i in zip(references, inputs, strict=True)
    ]
    return encoded, pairs


# --- WebAssembly --------------------------------------------------------------------------------
class Refused(Exception):
    """The machine says no; the message is its own."""


class _View:
    """A Uint8Array over the machine's memory."""

    def __init__(self, start: int, size: int | None) -> None:
        self.start, self.size = start, size


class Aiken:
    """One instance of the module; ``evaluate`` may be called again and again."""

    def __init__(self) -> None:
        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        module = wasmtime.Module.from_file(engine, str(WASM))
        imports = [self._import(i) for i in module.imports]
        exports = wasmtime.Instance(self.store, module, imports).exports(self.store)
        self.exports: Any = exports
        self.memory: Any = exports["memory"]
        self.table: Any = exports["__wbindgen_export_0"]
        self._call("__wbindgen_start")

    def _call(self, name: str, *arguments: Any) -> Any:
        return self.exports[name](self.store, *arguments)

    def _read(self, start: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, start, start + size))

    def _import(self, wanted: Any) -> Any:
        name = wanted.name
        known: dict[str, Any] = {
            "__wbindgen_string_new": lambda p, n: self._read(p, n).decode(),
            "__wbindgen_memory": lambda: "memory",
            "__wbg_buffer": lambda x: x,
            "__wbg_newwithbyteoffsetandlength": lambda _, p, n: _View(p, n),
            "__wbg_new": self._new,
            "__wbg_length": self._length,
            "__wbg_set": self._set,
            "__wbindgen_throw": self._throw,
            "__wbindgen_init_externref_table": self._init_table,
        }
        plain = name if name in known else name.rsplit("_", 1)[0]
        return wasmtime.Func(self.store, wanted.type, known[plain])

    def _new(self, of: Any) -> Any:
        """``new Uint8Array(x)``: a copy of a view or of bytes, or a view of the whole memory."""
        if isinstance(of, _View):
            assert of.size is not None
            return self._read(of.start, of.size)
        return _View(0, None) if of == "memory" else bytes(of)

    def _length(self, of: Any) -> int:
        if isinstance(of, _View):
            return self.memory.data_len(self.store) if of.size is None else of.size
        return len(of)

    def _set(self, view: _View, source: bytes, offset: int) -> None:
        self.memory.write(self.store, source, view.start + offset)

    def _throw(self, start: int, size: int) -> None:
        raise Refused(self._read(start, size).decode())

    def _init_table(self) -> None:
        first = self.table.grow(self.store, 4, None)
        self.table.set(self.store, 0, None)
        for at, what in enumerate((None, None, True, False)):
            self.table.set(self.store, first + at, what)

    def _bytes(self, content: bytes) -> tuple[int, int]:
        start = self._call("__wbindgen_malloc", len(content), 1)
        self.memory.write(self.store, content, start)
        return start, len(content)

    def _array(self, items: Sequence[bytes]) -> tuple[int, int]:
        start = self._call("__wbindgen_malloc", 4 * len(items), 4)
        for at, item in enumerate(items):
            slot = self._call("__externref_table_alloc")
            self.table.set(self.store, slot, item)
            self.memory.write(self.store, slot.to_bytes(4, "little"), start + 4 * at)
        return start, len(items)

    def evaluate(
        self, tx: bytes, inputs: Sequence[tuple[bytes, bytes]]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """(purpose, index) → (mem, steps) of every redeemer; :class:`Refused` if one fails."""
        arguments = (
            *self._bytes(tx),
            *self._array([reference for reference, _ in inputs]),
            *self._array([output for _, output in inputs]),
            *self._bytes(_cost_models()),
        )
        start, count, error, failed = self._call(
            "eval_phase_two_raw", *arguments, BUDGET_STEPS, BUDGET_MEM, 0, 0, 1
        )
        if failed:
            raise Refused(str(self.table.get(self.store, error)))
        slots = [int.from_bytes(self._read(start + 4 * i, 4), "little") for i in range(count)]
        results = [cbor2.loads(self.table.get(self.store, slot)) for slot in slots]
        self._call("__externref_drop_slice", start, count)
        return {(purpose, at): (mem, steps) for purpose, at, _, (mem, steps) in results}


@cache
def _cost_models() -> bytes:
    parameters = json.loads(PARAMETERS.read_text(encoding="utf-8"))
    return cbor2.dumps({2: parameters["cost_models_raw"]["PlutusV3"]})


@cache
def aiken() -> Aiken:
    """The one instance of this process (loading takes seconds)."""
    return Aiken()
