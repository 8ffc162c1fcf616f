"""kill -9 of a devnet that is being written to: everything it acknowledged is there afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.support.devnet import ADA, Party
from tests.requires import need_devnet

_ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def process(state: Path, block_ms: int) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A devnet in a process of its own, and the line that it printed when it was ready."""
    command = [sys.executable, "-m", "contracts.devnet", "--state", str(state)]
    child = subprocess.Popen(
        [*command, "--block-ms", str(block_ms)], cwd=_ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, f"the devnet ended with status {child.wait(30)}"
        yield child, json.loads(line)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(30)
        assert child.stdout is not None
        child.stdout.close()


def pages(client: httpx.Client, path: str) -> list[Any]:
    """Every page of a list."""
    found: list[Any] = []
    while True:
        page = client.get(path, params={"page": len(found) // 100 + 1}).raise_for_status().json()
        found += page
        if len(page) < 100:
            return found


def chain_of(client: httpx.Client) -> list[str]:
    """Ids of every transaction in blocks or waiting."""
    found = [one["tx_hash"] for one in pages(client, "/api/v0/mempool")]
    height = client.get("/api/v0/blocks/latest").json()["height"]
    for at in range(height + 1):
        found += pages(client, f"/api/v0/blocks/{at}/txs")
    return found


@pytest.mark.parametrize(
    ("block_ms", "enough_paid"),
    [
        pytest.param(0, 30, id="at-once"),
        pytest.param(50, 30, id="interval"),
        pytest.param(10**8, 30, id="mempool-only"),
        pytest.param(1000, 1_000, id="1000", marks=pytest.mark.prove),
        pytest.param(1000, 10_000, id="10000", marks=pytest.mark.nightly),
    ],
)
def test_kill_9_loses_nothing_acknowledged(tmp_path: Path, block_ms: int, enough_paid: int) -> None:
    need_devnet()
    acknowledged: list[str] = []
    enough = threading.Event()

    def pay(origin: str, name: str) -> None:
        address = Party(name).address
        with httpx.Client(base_url=origin, timeout=60) as client:
            try:
                for amount in range(100_000):
                    asked = {"address": address, "lovelace": 2 * ADA + amount}
                    answer = client.post("/devnet/faucet", json=asked)
                    acknowledged.append(answer.raise_for_status().json()["tx_hash"])
                    if len(acknowledged) >= enough_paid:
                        enough.set()
            except httpx.TransportError:
                return  # killed: what was in flight was never acknowledged

    with process(tmp_path, block_ms) as (child, ready):
        origin = ready["control"].removesuffix("/devnet")
        payers = [threading.Thread(target=pay, args=(origin, name)) for name in ("ann", "ben")]
        for one in payers:
            one.start()
        assert enough.wait(120 + enough_paid / 5)
        os.kill(child.pid, signal.SIGKILL)
        for one in payers:
            one.join(60)
    assert len(acknowledged) >= enough_paid

    with process(tmp_path, 0) as (_, ready):
        origin = ready["control"].removesuffix("/devnet")
        with httpx.Client(base_url=origin, timeout=60) as client:
            there = chain_of(client)
            assert len(there) == len(set(there))
            assert set(acknowledged) <= set(there)
            assert len(set(there) - set(acknowledged)) <= 2  # one in flight for each payer
            client.post("/devnet/blocks", json={"count": 1}).raise_for_status()
            sums = client.get("/devnet/status").json()["lovelace"]
            assert sums["faucet_paid"] == sums["wallets"]
            assert sums["genesis"] == sums["unspent"] + sums["fees"]


def test_a_terminated_server_ends_in_order(tmp_path: Path) -> None:
    need_devnet()
    with process(tmp_path, 1000) as (child, _):
        child.terminate()
        assert child.wait(60) == 0
