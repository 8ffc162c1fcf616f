"""Routes about transactions that wait for a block."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from contracts.devnet import addresses
from contracts.devnet.addresses import Address
from contracts.devnet.face.common import Chain, Paged, lookup, not_found, paged
from contracts.devnet.face.transactions import facts, sent_output
from contracts.devnet.index.views import View
from contracts.devnet.transaction import PURPOSES, Output, OutRef, Tx

router = APIRouter()


@router.get("/mempool")
def mempool(chain: Chain, page: Paged) -> list[dict[str, str]]:
    return [{"tx_hash": tx.id} for tx in paged(chain.waiting(), page)]


@router.get("/mempool/addresses/{address}")
def mempool_of_address(chain: Chain, address: str, page: Paged) -> list[dict[str, str]]:
    """Those that pay to an address and those that spend from it."""
    column, key = lookup(address)
    with chain.reading() as view:
        waiting = chain.waiting()
        made = _made(waiting)
        found = [tx for tx in waiting if _touches(view, made, tx, column, key)]
    return [{"tx_hash": tx.id} for tx in paged(found, page)]


def _made(waiting: list[Tx]) -> dict[OutRef, Output]:
    """Outputs of waiting transactions: others that wait may spend them."""
    return {OutRef(tx.id, at): one for tx in waiting for at, one in enumerate(tx.outputs)}


def _touches(view: View, made: dict[OutRef, Output], tx: Tx, column: str, key: str) -> bool:
    for one in tx.outputs:
        if _fits(addresses.describe(one.address), column, key):
            return True
    for ref in (*tx.inputs, *tx.collateral):
        if ref in made:
            if _fits(addresses.describe(made[ref].address), column, key):
                return True
        elif (row := view.output(ref)) is not None and row[column] == key:
            return True
    return False


def _fits(at: Address, column: str, key: str) -> bool:
    return (at.text if column == "address" else at.payment) == key


@router.get("/mempool/{name}")
def mempool_transaction(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        waiting = chain.waiting()
        tx = next((tx for tx in waiting if tx.id == name), None)
        if tx is None:
            not_found()
        sources = _Sources(view, _made(waiting))
        return {
            "tx": {**facts(tx.effect), "deposit": str(sources.deposit(tx))},
            "inputs": [
                *(sources.input(ref) for ref in tx.inputs),
                *(sources.input(ref, collateral=True) for ref in tx.collateral),
                *(sources.input(ref, reference=True) for ref in tx.references),
            ],
            "outputs": [sent_output(one, index) for index, one in enumerate(tx.outputs)],
            "redeemers": [
                {
                    "tx_index": one.index,
                    "purpose": PURPOSES[one.tag],
                    "unit_mem": str(one.memory),
                    "unit_steps": str(one.steps),
                }
                for one in tx.redeemers
            ],
        }


class _Sources:
    """What waiting transactions spend: outputs in blocks, and of others that wait."""

    def __init__(self, view: View, made: dict[OutRef, Output]) -> None:
        self._view, self._made = view, made

    def input(
        self, ref: OutRef, *, collateral: bool = False, reference: bool = False
    ) -> dict[str, Any]:
        found = self._found(ref)
        known = {} if found is None else {"address": found[0]}
        place = {"tx_hash": ref.tx, "output_index": ref.ix}
        return {**known, **place, "collateral": collateral, "reference": reference}

    def deposit(self, tx: Tx) -> int:
        """What is missing from the balance: the ledger has checked it, so it is the deposit
        (negative: a refund).
        """
        consumed = [self._found(ref) for ref in tx.inputs]
        if None in consumed:
            return 0  # an indexer that lags behind does not know what was spent
        spent = sum(one[1] for one in consumed if one is not None)
        spent += sum(amount for _, amount in tx.withdrawals)
        return spent - sum(one.lovelace for one in tx.outputs) - tx.fee - tx.donation

    def _found(self, ref: OutRef) -> tuple[str, int] | None:
        """(address, lovelace)"""
        if ref in self._made:
            made = self._made[ref]
            return addresses.describe(made.address).text, made.lovelace
        row = self._view.output(ref)
        return None if row is None else (row["address"], row["lovelace"])
