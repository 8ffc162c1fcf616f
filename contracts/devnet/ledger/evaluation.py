"""What a transaction's scripts would use, and in which way they fail: the answers of Ogmios'
EvaluateTransaction, before their JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from contracts.devnet.decoding import output
from contracts.devnet.index.rows import script_of
from contracts.devnet.index.store import utxo_map
from contracts.devnet.ledger.engine import Evaluator, ScriptFailure, Units
from contracts.devnet.transaction import Output, OutRef, Script, Tx

_TAGS = ("spend", "mint", "certificate", "withdrawal", "vote", "propose")
Pointer = tuple[str, int]


class EvaluationRefusal(Exception):
    """An evaluation without a result. Which of these it is, is its class."""


class UnknownInputs(EvaluationRefusal):
    """Outputs that neither the chain nor the caller knows."""

    def __init__(self, refs: list[OutRef]) -> None:
        super().__init__(", ".join(f"{ref.tx}#{ref.ix}" for ref in refs))
        self.refs = refs


class Undecodable(EvaluationRefusal):
    """These bytes are no transaction."""


class CannotCreateContext(EvaluationRefusal):
    """No script could be run, for a reason that is no script's."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Of one redeemer. kind: the failure's name in Ogmios 5 (validatorFailed,
    missingRequiredScripts, missingRequiredDatums, extraRedeemers,
    nonScriptInputReferencedByRedeemer). missing: the hash of the script or datum that is, or the
    input that no script guards.
    """

    kind: str
    error: str = ""
    traces: list[str] = field(default_factory=list[str])
    missing: str = ""


class ScriptFailures(EvaluationRefusal):
    """Scripts that fail, or cannot be run, by redeemer."""

    def __init__(self, failures: dict[Pointer, Failure]) -> None:
        super().__init__(
            "; ".join(f"{tag}:{ix}: {one.error}" for (tag, ix), one in failures.items())
        )
        self.failures = failures


Find = Callable[[OutRef], bytes | None]


def evaluated(
    evaluator: Evaluator, zero_time_ms: int, tx: Tx, found: Mapping[OutRef, bytes]
) -> list[Units]:
    """Units of every redeemer; found: the raw outputs that the transaction spends and refers to.
    Raises ``EvaluationRefusal``.
    """
    outputs = {ref: output(raw) for ref, raw in found.items()}
    missing = _unrunnable(tx, outputs)
    if missing:
        raise ScriptFailures(missing)
    try:
        return evaluator.evaluate(zero_time_ms, tx.raw, utxo_map(list(found.items())))
    except ScriptFailure as failure:
        if failure.at is None:
            raise CannotCreateContext(failure.reason) from failure
        one = Failure("validatorFailed", failure.reason, failure.logs)
        raise ScriptFailures({failure.at: one}) from failure


def resolved(tx: Tx, find: Find) -> dict[OutRef, bytes]:
    """The outputs that a transaction spends and refers to. Raises ``UnknownInputs``."""
    refs = dict.fromkeys((*tx.inputs, *tx.references, *tx.collateral))
    found = {ref: raw for ref in refs if (raw := find(ref)) is not None}
    unknown = [ref for ref in refs if ref not in found]
    if unknown:
        raise UnknownInputs(unknown)
    return found


def _unrunnable(tx: Tx, outputs: dict[OutRef, Output]) -> dict[Pointer, Failure]:
    """Redeemers that point at nothing, at what no script guards, or at a script or a datum that is
    not there.
    """
    scripts = _scripts(tx, outputs)
    found: dict[Pointer, Failure] = {}
    for one in tx.redeemers:
        failure = _failure(tx, one.tag, one.index, outputs, scripts)
        if failure is not None:
            found[_TAGS[one.tag], one.index] = failure
    return found


def _scripts(tx: Tx, outputs: dict[OutRef, Output]) -> dict[str, Script]:
    """Those of the witness set and of the outputs that are spent or referred to."""
    read = [one.script for ref, one in outputs.items() if ref in (*tx.inputs, *tx.references)]
    return {one.hash: one for one in (*tx.scripts, *(one for one in read if one is not None))}


def _failure(
    tx: Tx, tag: int, index: int, outputs: dict[OutRef, Output], scripts: dict[str, Script]
) -> Failure | None:
    if tag >= len(_TAGS):
        return None
    spent = outputs[tx.inputs[index]] if tag == 0 and index < len(tx.inputs) else None
    if spent is not None and not spent.address[0] & 0x10:
        at = tx.inputs[index]
        why = "this input is guarded by no script"
        return Failure("nonScriptInputReferencedByRedeemer", why, missing=f"{at.tx}#{at.ix}")
    try:
        name = script_of(
            tx, tag, index, {ref: one.address[1:29].hex() for ref, one in outputs.items()}
        )
    except IndexError:
        return Failure("extraRedeemers", "this redeemer points at nothing")
    if name is None:
        return Failure("extraRedeemers", "this redeemer points at nothing that a script guards")
    if name not in scripts:
        return Failure("missingRequiredScripts", f"script {name} is not there", missing=name)
    datum = None if spent is None or spent.inline_datum is not None else spent.datum_hash
    if datum is not None and datum not in tx.datum_hashes:
        return Failure("missingRequiredDatums", f"datum {datum} is not there", missing=datum)
    return None
