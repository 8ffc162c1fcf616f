"""A devnet behind its doors: what the tables of cases ask of a chain, by HTTP alone."""

from __future__ import annotations

import time
from typing import Any

import httpx

from contracts.devnet import LedgerRefusal
from contracts.devnet.ledger.engine import Units
from contracts.devnet.transaction import OutRef

_CBOR = {"Content-Type": "application/cbor"}
_PATIENCE_S = 120


class Door:
    """origin: where the devnet listens. Blocks come from its own clock."""

    def __init__(self, origin: str) -> None:
        self._client = httpx.Client(base_url=origin, timeout=60)

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> httpx.Response:
        """Of Blockfrost's API."""
        return self._client.get(f"/api/v0{path}")

    def status(self) -> dict[str, Any]:
        return self._client.get("/devnet/status").raise_for_status().json()

    def audit(self) -> dict[str, Any]:
        return self._client.get("/devnet/audit").raise_for_status().json()

    def slot(self) -> int:
        return self.status()["now_slot"]

    def submit(self, raw: bytes) -> str:
        """The id. Raises ``LedgerRefusal`` with what a client is told."""
        answer = self._client.post("/api/v0/tx/submit", content=raw, headers=_CBOR)
        if answer.status_code == 400:
            raise LedgerRefusal(answer.json()["message"], [])
        return answer.raise_for_status().json()

    def evaluate(self, raw: bytes) -> list[Units]:
        answer = self._client.post("/api/v0/utils/txs/evaluate", content=raw, headers=_CBOR)
        found = answer.raise_for_status().json()["result"]["EvaluationResult"]
        split = [(*at.split(":"), one) for at, one in found.items()]
        return [Units(tag, int(index), one["memory"], one["steps"]) for tag, index, one in split]

    def faucet(self, address: str, lovelace: int) -> OutRef:
        asked = {"address": address, "lovelace": lovelace}
        paid = self._client.post("/devnet/faucet", json=asked).raise_for_status().json()
        return OutRef(paid["tx_hash"], paid["output_index"])

    def reward(self, stake_address: str, lovelace: int) -> None:
        """Waits for the block that registers the account."""
        self.until(lambda: self.get(f"/accounts/{stake_address}").status_code == 200)
        asked = {"stake_address": stake_address, "lovelace": lovelace}
        self._client.post("/devnet/reward", json=asked).raise_for_status()

    def until(self, holds: Any) -> None:
        """Until blocks have made it true."""
        last = time.monotonic() + _PATIENCE_S
        while not holds():
            assert time.monotonic() < last, "blocks do not come"
            time.sleep(0.1)

    def settled(self) -> None:
        """Until nothing waits any more."""
        self.until(lambda: not self.status()["mempool"])
