"""What the index keeps of one transaction, as rows without their place in the chain.

Made when a transaction is judged, before anybody hears that it was accepted: what cannot be put
into rows is refused then, and a block that takes the transaction later has nothing left to work
out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from contracts.devnet import addresses
from contracts.devnet.transaction import SCRIPT_VOTERS, Output, OutRef, Tx, blake2b

_INT64 = 2**63


class Unstorable(ValueError):
    """The index has no place for something in this transaction."""


class Source(NamedTuple):
    """Of an output that is spent: its lovelace and its payment credential (hex; "" of a Byron
    address).
    """

    lovelace: int
    payment: str


Resolve = Callable[[OutRef], Source | None]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction's rows by table, each without height and position. fee and deposit in lovelace;
    a refund is negative.

    outputs: (index, ...) as in the table, without the transaction's id.
    """

    tx: Tx
    fee: int
    deposit: int
    outputs: list[Row] = field(default_factory=list[Row])
    mints: list[Row] = field(default_factory=list[Row])
    redeemers: list[Row] = field(default_factory=list[Row])
    certificates: list[Row] = field(default_factory=list[Row])
    withdrawals: list[Row] = field(default_factory=list[Row])

    def sources(self) -> dict[OutRef, Source]:
        """What a later transaction may spend of this one."""
        return {OutRef(self.tx.id, row[0]): Source(row[5], row[2]) for row in self.outputs}


def entry(tx: Tx, resolve: Resolve) -> Entry:
    """The rows of a transaction that the ledger accepts. Raises ``Unstorable``.

    Of one whose script fails there is what db-sync keeps: the collateral spent, its return made,
    the difference as the fee.
    """
    try:
        consumed = {ref: _resolved(ref, resolve) for ref in tx.spent}
        made = [_output(index, one) for index, one in tx.made]
        total, produced = sum(one.lovelace for one in consumed.values()), sum(r[5] for r in made)
        if not tx.valid:
            found = Entry(tx, total - produced, 0, made)
        else:
            # The ledger has checked the balance, so what is missing from it is the deposit
            # (negative: a refund).
            paid_out = sum(amount for _, amount in tx.withdrawals)
            deposit = total + paid_out - produced - tx.fee - tx.donation
            found = Entry(tx, tx.fee, deposit, made)
            found.mints.extend(tx.mint.items())
            found.redeemers.extend(_redeemers(tx, consumed))
            found.certificates.extend(_certificates(tx))
            found.withdrawals.extend((stake_text(one), amount) for one, amount in tx.withdrawals)
    except Unstorable:
        raise
    except Exception as problem:  # whatever it is: better told now than found in a block
        raise Unstorable(f"{type(problem).__name__}: {problem}") from problem
    _check(found)
    return found


def stake_text(account: bytes) -> str:
    """The stake address of a reward account's 29 bytes."""
    return addresses.stake_address(account[1:], is_script=bool(account[0] & 0x10))


def output_row(
    index: int, address: bytes, lovelace: int, assets: dict[str, int], raw: bytes, *more: str | None
) -> Row:
    """more: datum hash, inline datum and reference script's hash, in hex."""
    at = addresses.describe(address)
    place = (index, at.text, at.payment, at.is_script, at.stake_address)
    return (*place, lovelace, json.dumps(assets), *(more or (None, None, None)), raw)


def _output(index: int, one: Output) -> Row:
    inline = None if one.inline_datum is None else one.inline_datum.hex()
    script = None if one.script is None else one.script.hash
    more = (one.datum_hash, inline, script)
    return output_row(index, one.address, one.lovelace, one.assets, one.raw, *more)


def _resolved(ref: OutRef, resolve: Resolve) -> Source:
    found = resolve(ref)
    if found is None:
        raise Unstorable(f"index and ledger disagree about {ref.tx}#{ref.ix}")
    return found


def _redeemers(tx: Tx, consumed: dict[OutRef, Source]) -> list[Row]:
    guards = {ref: one.payment for ref, one in consumed.items()}
    return [
        (
            script_of(tx, one.tag, one.index, guards),
            one.tag,
            one.index,
            blake2b(one.data),
            one.memory,
            one.steps,
        )
        for one in tx.redeemers
    ]


def script_of(tx: Tx, tag: int, index: int, guards: Mapping[OutRef, str]) -> str | None:
    """The hash of the script that a redeemer is for: redeemers point into the sorted parts of the
    body.

    guards: the payment credential of each input, in hex. Raises ``IndexError`` for a redeemer that
    points at nothing.
    """
    if tag == 0:
        return guards[tx.inputs[index]]
    if tag == 1:
        return sorted({unit[:56] for unit in tx.mint})[index]
    if tag == 2:
        one = tx.certificates[index]
        credential = one.credential or one.subject
        return None if credential is None else credential[1].hex()
    if tag == 3:
        return tx.withdrawals[index][0][1:].hex()
    if tag == 4:
        kind, key = tx.voters[index]
        return key.hex() if kind in SCRIPT_VOTERS else None
    guard = tx.proposals[index].guard
    return None if guard is None else guard.hex()


def _certificates(tx: Tx) -> list[Row]:
    rows: list[Row] = []
    for index, one in enumerate(tx.certificates):
        stake = one.credential and addresses.stake_address(one.credential[1], one.credential[0])
        rows.append((index, one.kind, stake, one.pool and addresses.pool_id(one.pool)))
    return rows


def _check(found: Entry) -> None:
    """SQLite's integers have 64 bits with a sign; what is longer is kept as text or not at all."""
    tables = (found.outputs, found.mints, found.redeemers, found.certificates, found.withdrawals)
    rows = [(found.fee, found.deposit), *(row for table in tables for row in table)]
    for value in (value for row in rows for value in row):
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise Unstorable(f"{value} has more than 64 bits")
