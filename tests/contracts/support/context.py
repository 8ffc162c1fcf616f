"""Transactions as settle sees them, built by hand, and the machine that judges them.

``Tx`` holds just what a script context holds; ``Tx.context()`` writes it as Plutus Data (V3,
ledger order for inputs); ``run()`` evaluates compiled bytes on it with the CEK machine and
mainnet's cost model.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import uplc
from uplc import ast as u
from uplc.cost_model import default_budget
from uplc.machine import Machine
from uplc.tools import (
    UniqueVariableTransformer,
    default_builtin_cost_model_plutus_v3,
    default_cek_machine_cost_model_plutus_v3,
)

logging.getLogger("uplc.machine").setLevel(logging.CRITICAL)

Data = u.PlutusData
ADA = (b"", b"")
Value = Mapping[tuple[bytes, bytes], int]


def constr(tag: int, *fields: Data) -> Data:
    return u.PlutusConstr(tag, list(fields))


def integer(n: int) -> Data:
    return u.PlutusInteger(n)


def octets(b: bytes) -> Data:
    return u.PlutusByteString(b)


def listing(*items: Data) -> Data:
    return u.PlutusList(list(items))


def maybe(x: Data | None) -> Data:
    return constr(1) if x is None else constr(0, x)


def key_credential(key_hash: bytes) -> Data:
    return constr(0, octets(key_hash))


def script_credential(script_hash: bytes) -> Data:
    return constr(1, octets(script_hash))


def address(credential: Data, stake: Data | None = None) -> Data:
    return constr(0, credential, maybe(None if stake is None else constr(0, stake)))


def value_data(value: Value) -> Data:
    """Lovelace first, then policies and names in the ledger's order; zeros are kept as given."""
    policies: dict[bytes, dict[Data, Data]] = {}
    for policy, name in sorted(value):
        policies.setdefault(policy, {})[octets(name)] = integer(value[policy, name])
    return u.PlutusMap({octets(policy): u.PlutusMap(names) for policy, names in policies.items()})


@dataclass(frozen=True)
class Out:
    """A transaction output.  ``datum`` is the whole OutputDatum; ``None`` is no datum."""

    address: Data
    value: Value
    datum: Data | None = None
    script: bytes | None = None

    def data(self) -> Data:
        return constr(
            0,
            self.address,
            value_data(self.value),
            constr(0) if self.datum is None else self.datum,
            maybe(None if self.script is None else octets(self.script)),
        )


def inline(datum: Data) -> Data:
    return constr(2, datum)


@dataclass(frozen=True)
class In:
    """A spent output with its reference."""

    tx_id: bytes
    index: int
    out: Out

    def data(self) -> Data:
        return constr(0, constr(0, octets(self.tx_id), integer(self.index)), self.out.data())


def _bound(at: int | None, infinite: int, closed: bool) -> Data:
    extended = constr(infinite) if at is None else constr(1, integer(at))
    return constr(0, extended, constr(1 if closed else 0))


@dataclass(frozen=True)
class Tx:
    """What settle is shown.  ``lower``/``upper`` in POSIX ms; ``None`` is infinite."""

    inputs: Sequence[In] = ()
    outputs: Sequence[Out] = ()
    redeemer: Data = field(default_factory=listing)
    signers: Sequence[bytes] = ()
    withdrawals: Sequence[tuple[Data, int]] = ()
    mint: Value = field(default_factory=dict)
    lower: int | None = None
    upper: int | None = None

    def with_(self, **changes: object) -> Tx:
        return replace(self, **changes)  # type: ignore[arg-type]

    def data(self) -> Data:
        nothing = u.PlutusMap({})
        return constr(
            0,
            listing(*(i.data() for i in sorted(self.inputs, key=lambda i: (i.tx_id, i.index)))),
            listing(),
            listing(*(o.data() for o in self.outputs)),
            integer(200_000),
            value_data(self.mint),
            listing(),
            u.PlutusMap({c: integer(amount) for c, amount in self.withdrawals}),
            constr(
                0,
                _bound(self.lower, 0, self.lower is not None),
                _bound(self.upper, 2, self.upper is None),
            ),
            listing(*(octets(s) for s in sorted(self.signers))),
            nothing,
            nothing,
            octets(bytes(32)),
            nothing,
            listing(),
            constr(1),
            constr(1),
        )

    def context(self, purpose: Data, redeemer: Data | None = None) -> Data:
        return constr(0, self.data(), self.redeemer if redeemer is None else redeemer, purpose)


def rewarding(credential: Data) -> Data:
    return constr(2, credential)


@dataclass(frozen=True)
class Verdict:
    """What the machine said.  ``trace`` holds guard codes of a trace build."""

    ok: bool
    mem: int
    steps: int
    trace: tuple[str, ...]


class _Renamed(u.Program):
    """A program whose variables have names of their own already. The machine gives them such names
    anew at every run, which took nearly half of it; with no fields to visit it leaves this one
    alone.
    """

    _fields: ClassVar[list[str]] = []


@lru_cache(maxsize=256)
def _program(script: bytes) -> u.Program:
    renamed: u.Program = UniqueVariableTransformer().visit(uplc.unflatten(script))  # type: ignore[assignment]
    return renamed


def run(script: bytes, context: Data) -> Verdict:
    """Evaluate *script* (CBOR around flat) on *context*: V3 wants unit, anything else refuses."""
    machine = Machine(
        default_budget(),
        default_cek_machine_cost_model_plutus_v3(),
        default_builtin_cost_model_plutus_v3(),
        slippage=10_000,  # count steps, and pay for them together: a third of the time otherwise
    )
    applied = uplc.tools.apply(_program(script), context)
    result = machine.eval(_Renamed(applied.version, applied.term))
    ok = isinstance(result.result, u.BuiltinUnit)
    return Verdict(ok, result.cost.memory, result.cost.cpu, tuple(result.logs))
