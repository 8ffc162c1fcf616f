"""A second ledger's rules on transactions that the devnet took: what is recorded, how it is asked,
what it is known to get wrong.

`@cardananium/cquisitor-lib` (cardano-serialization-lib, pallas, Aiken's machine; no code of
Scalus), run by Node in ``tests/ledger``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import cbor2
import pytest

from contracts.devnet.cbor import elements, pairs
from contracts.devnet.decoding import output, read
from contracts.devnet.parameters import PARAMETERS
from contracts.devnet.transaction import Output, OutRef, Tx
from marketplace.chain.build.balancing import Draft
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import plutus, txbytes
from marketplace.chain.transaction.signing import Signed, Unsigned
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.keys import Signer
from tests.requires import need_node, need_second_ledger
from tests.unit.support.costs import todays_parameters

PREVIEW_START_MS = 1_666_656_000_000
"""When preview's slot 0 was: a devnet that begins there has preview's slots, and the second ledger
knows those.
"""
_TAGS = {"Spend": "spend", "Cert": "publish", "Reward": "withdrawal"}


@dataclass(frozen=True)
class Built:
    """How our builder made a transaction: from *draft* with *units*."""

    draft: Draft
    units: dict[str, Units]


@dataclass(frozen=True)
class Recorded:
    """A transaction that the devnet took. *outputs*: those that it spends, pledges and refers to,
    as bytes; *rewards*: the balance of each registered account, as a reward address; *built*: by
    our builder, None for others.
    """

    kind: str
    tx: Tx
    slot: int
    outputs: Mapping[OutRef, bytes]
    rewards: Mapping[bytes, int]
    built: Built | None

    @property
    def settles(self) -> bool:
        """Whether it moves channels."""
        return bool(self.tx.withdrawals)


@dataclass
class Recorder:
    """Everything that a devnet takes from now on, by kind."""

    devnet: Any
    taken: list[Recorded] = field(default_factory=list[Recorded])
    keys: dict[bytes, Signer] = field(default_factory=dict[bytes, Signer])
    _kind: str = "faucet payment"
    _made: dict[OutRef, bytes] = field(default_factory=dict[OutRef, bytes])
    _rewards: dict[bytes, int] = field(default_factory=dict[bytes, int])
    _built: dict[str, Built] = field(default_factory=dict[str, Built])

    @contextmanager
    def kind(self, name: str) -> Generator[None]:
        """What is sent meanwhile is of this kind."""
        before, self._kind = self._kind, name
        yield
        self._kind = before

    def reward(self, account: bytes, lovelace: int) -> None:
        """Credit an account."""
        self.devnet.reward(addresses.to_text(account), lovelace)
        self._rewards[account] += lovelace

    @contextmanager
    def listening(self, patch: pytest.MonkeyPatch) -> Generator[Recorder]:
        """Between builder, wallet and ledger."""
        for raw_ref, raw in _entries(self.devnet.ledger_utxos()):
            self._made[raw_ref] = raw
        submit, finish, sign = self.devnet.submit, Draft.finish, Unsigned.sign

        def submitted(raw: bytes) -> str:
            slot = self.devnet.slot()
            name = submit(raw)
            self._take(read(raw), slot)
            return name

        def finished(draft: Draft, units: dict[str, Units] | None = None) -> Unsigned:
            made = finish(draft, units)
            self._built[made.tx_id.hex()] = Built(draft, units or {})
            return made

        def signed(unsigned: Unsigned, *keys: Signer) -> Signed:
            self.keys |= {key.key_hash: key for key in keys}
            return sign(unsigned, *keys)

        patch.setattr(self.devnet, "submit", submitted)
        patch.setattr(Draft, "finish", finished)
        patch.setattr(Unsigned, "sign", signed)
        yield self

    def _take(self, tx: Tx, slot: int) -> None:
        refs = (*tx.inputs, *tx.references, *tx.collateral)
        outputs = {ref: self._made[ref] for ref in refs}
        self.taken.append(
            Recorded(self._kind, tx, slot, outputs, dict(self._rewards), self._built.get(tx.id))
        )
        self._made |= {OutRef(tx.id, index): one.raw for index, one in tx.made}
        for account, amount in tx.withdrawals:
            self._rewards[account] -= amount
        for one in tx.certificates:
            assert one.kind == 7 and one.credential is not None and one.credential[0]
            self._rewards[addresses.stake_account(one.credential[1], False)] = 0


def _entries(utxos: bytes) -> Iterable[tuple[OutRef, bytes]]:
    for key, raw in pairs(utxos):
        tx_id, index = cbor2.loads(key)
        yield OutRef(tx_id.hex(), index), raw


# ---- the second ledger -------------------------------------------------------------------------
@dataclass(frozen=True)
class Verdict:
    """*errors*: name and details of what phase 1 refuses; *failures*: of phase 2; *units* by
    redeemer, as it counted them; *least*: its least fee, where it says one.
    """

    errors: dict[str, Any]
    failures: dict[str, Any]
    units: dict[str, Units]
    least: int | None

    @property
    def names(self) -> set[str]:
        """All that it refuses, by name."""
        return {*self.errors, *self.failures}


def parameters(today: bool = False) -> dict[str, Any]:
    """The devnet's, or with mainnet's present cost model and protocol 11."""
    p = todays_parameters() if today else PARAMETERS
    models = {f"plutusV{n}": p["cost_models_raw"][f"PlutusV{n}"] for n in (1, 2, 3)}

    def part(number: float | str) -> dict[str, int]:
        exact = Fraction(str(number))
        return {"numerator": exact.numerator, "denominator": exact.denominator}

    def units(scope: str) -> dict[str, int]:
        return {"mem": int(p[f"max_{scope}_ex_mem"]), "steps": int(p[f"max_{scope}_ex_steps"])}

    return {
        "minFeeCoefficientA": p["min_fee_a"], "minFeeConstantB": p["min_fee_b"],
        "maxBlockBodySize": p["max_block_size"], "maxTransactionSize": p["max_tx_size"],
        "maxBlockHeaderSize": p["max_block_header_size"], "stakeKeyDeposit": int(p["key_deposit"]),
        "stakePoolDeposit": int(p["pool_deposit"]), "maxEpochForPoolRetirement": p["e_max"],
        "protocolVersion": [p["protocol_major_ver"], p["protocol_minor_ver"]],
        "minPoolCost": int(p["min_pool_cost"]), "adaPerUtxoByte": int(p["coins_per_utxo_size"]),
        "costModels": models, "maxTxExecutionUnits": units("tx"),
        "executionPrices": {"memPrice": part(p["price_mem"]), "stepPrice": part(p["price_step"])},
        "maxBlockExecutionUnits": units("block"), "maxValueSize": int(p["max_val_size"]),
        "collateralPercentage": p["collateral_percent"],
        "maxCollateralInputs": p["max_collateral_inputs"],
        "governanceActionDeposit": int(p["gov_action_deposit"]),
        "drepDeposit": int(p["drep_deposit"]),
        "referenceScriptCostPerByte": part(p["min_fee_ref_script_cost_per_byte"]),
    }  # fmt: skip


def ask(cases: Sequence[tuple[bytes, Recorded]], today: bool = False) -> list[Verdict]:
    """A verdict for each transaction where another (*Recorded*) was taken: its inputs, its slot."""
    folder = need_second_ledger()
    shared = parameters(today)
    lines = [json.dumps({"tx": raw.hex(), "context": _context(at, shared)}) for raw, at in cases]
    done = subprocess.run(
        [str(need_node()), "validate.mjs"],
        cwd=folder, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(cases)
    return [_verdict(one) for one in told]


def _context(at: Recorded, shared: dict[str, Any]) -> dict[str, Any]:
    accounts = [
        {"bech32Address": addresses.to_text(who), "isRegistered": who in at.rewards,
         "balance": at.rewards.get(who), "payedDeposit": 2_000_000 if who in at.rewards else None}
        for who in _accounts(at.tx)
    ]  # fmt: skip
    nobody = (
        "poolContexts", "drepContexts", "govActionContexts", "lastEnactedGovAction",
        "currentCommitteeMembers", "potentialCommitteeMembers",
    )  # fmt: skip
    return {
        "slot": at.slot, "networkType": "preview", "protocolParameters": shared, "treasuryValue": 0,
        "accountContexts": accounts, **{name: [] for name in nobody},
        "utxoSet": [{"isSpent": False, "utxo": _utxo(ref, raw)} for ref, raw in at.outputs.items()],
    }  # fmt: skip


def _accounts(tx: Tx) -> list[bytes]:
    named = [one.credential[1] for one in tx.certificates if one.credential is not None]
    return [who for who, _ in tx.withdrawals] + [addresses.stake_account(h, False) for h in named]


def _utxo(ref: OutRef, raw: bytes) -> dict[str, Any]:
    made: Output = output(raw)
    amount = [{"unit": "lovelace", "quantity": str(made.lovelace)}]
    amount += [{"unit": unit, "quantity": str(n)} for unit, n in made.assets.items()]
    out: dict[str, Any] = {"address": addresses.to_text(made.address), "amount": amount}
    if made.inline_datum is not None:
        out["plutusData"] = made.inline_datum.hex()
    if made.script is not None:
        out["scriptRef"] = cbor2.dumps([made.script.kind, made.script.body]).hex()
        out["scriptHash"] = made.script.hash
    return {"input": {"txHash": ref.tx, "outputIndex": ref.ix}, "output": out}


def _verdict(told: dict[str, Any]) -> Verdict:
    assert "thrown" not in told, told
    errors = dict(_named(one["error"]) for one in told["errors"])
    failures = dict(_named(one["error"]) for one in told["phase2_errors"])
    warned = dict(_named(one["warning"]) for one in told["warnings"])
    units: dict[str, Units] = {}
    for one in told["eval_redeemer_results"]:
        if one["success"]:
            used = one["calculated_ex_units"]
            units[f"{_TAGS[one['tag']]}:{one['index']}"] = Units(used["mem"], used["steps"])
        else:
            failures.setdefault("failed", one.get("error"))
    fees = errors.get("FeeTooSmallUTxO") or warned.get("FeeIsBiggerThanMinFee")
    return Verdict(errors, failures, units, None if fees is None else int(fees["min_fee"]))


def _named(one: Any) -> tuple[str, Any]:
    return (one, {}) if isinstance(one, str) else next(iter(one.items()))


# ---- with open lists ---------------------------------------------------------------------------
def opened(at: Recorded, raw: bytes | None = None) -> tuple[bytes, Recorded]:
    """The same with every datum's lists open, as ``serialiseData`` writes them, in the transaction
    and in what it spends. Its signatures are over the other bytes: only phase 2's answer means
    anything.
    """
    parts = txbytes.split(at.tx.raw if raw is None else raw)
    fields = dict(txbytes.map_items(parts.body))
    outputs = [_opened_output(one) for one in elements(fields[1])]
    fields[1] = plutus.head(4, len(outputs)) + b"".join(outputs)
    body = plutus.head(5, len(fields))
    body += b"".join(plutus.head(0, key) + value for key, value in fields.items())
    spent = {ref: _opened_output(one) for ref, one in at.outputs.items()}
    return b"\x84" + body + parts.witnesses + parts.rest, replace(at, outputs=spent)


def _opened_output(raw: bytes) -> bytes:
    datum = output(raw).inline_datum
    if datum is None:
        return raw
    fields = cbor2.loads(raw)
    fields[2] = [1, cbor2.CBORTag(24, _open(plutus.decode(datum)))]
    return cbor2.dumps(fields)


def _open(data: plutus.Data) -> bytes:
    match data:
        case plutus.Constr(tag, inner):
            return plutus.encode(plutus.Constr(tag))[:-1] + _open(inner)
        case tuple():
            return b"\x9f" + b"".join(map(_open, data)) + b"\xff" if data else b"\x80"
        case _:
            return plutus.encode(data)
