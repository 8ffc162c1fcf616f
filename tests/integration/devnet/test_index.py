"""The devnet's index: sums beyond 64 bits, states of older devnets, and that nothing in it ends the
making of blocks.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from contracts.devnet import Devnet, DevnetRefusal, serve
from tests.integration.support.devnet import ADA, FrozenClock, Party, out, pay
from tests.requires import need_devnet

ALICE, BOB = Party("alice"), Party("bob")
NEVER = 10**9
# So many of the faucet's payments make more than 2^63 lovelace of outputs: each has the rest of the
# supply as its change.
MANY = 310


@pytest.fixture(autouse=True)
def _ledger_there() -> None:
    need_devnet()


def until(holds: Callable[[], bool], seconds: float = 100) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def test_sums_of_a_block_and_an_epoch_pass_64_bits(tmp_path: Path) -> None:
    with serve(tmp_path, NEVER) as served, httpx.Client(base_url=served.url, timeout=60) as client:
        for _ in range(MANY):
            served.devnet.faucet(ALICE.address, 2 * ADA)
        block = served.devnet.mint()
        assert len(served.devnet.waiting()) == 0
        found = client.get(f"/blocks/{block.height}").raise_for_status().json()
        epoch = client.get("/epochs/latest").raise_for_status().json()
        assert int(found["output"]) == int(epoch["output"]) > 2**63
        held = served.devnet.status()["lovelace"]
        assert held["wallets"] == MANY * 2 * ADA
        served.devnet.rollback(1)
        assert served.devnet.mint().height == block.height


def _made_old(path: Path) -> None:
    """The tables of a state as the first devnet wrote them."""
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE old_block (
            height INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, previous TEXT, slot INTEGER NOT NULL,
            txs INTEGER NOT NULL, size INTEGER NOT NULL, fees INTEGER NOT NULL, output INTEGER NOT NULL);
        INSERT INTO old_block SELECT * FROM block;
        DROP TABLE block;
        ALTER TABLE old_block RENAME TO block;
        ALTER TABLE tx DROP COLUMN governs;
        PRAGMA user_version = 0;
    """)
    db.close()


def test_an_older_devnets_state_is_indexed_again(tmp_path: Path) -> None:
    clock = FrozenClock()
    with Devnet(tmp_path, NEVER, clock=clock) as devnet:
        paid = devnet.faucet(ALICE.address, 10 * ADA)
        devnet.submit(pay(paid, ALICE, 10 * ADA, [out(BOB.raw, 2 * ADA)]).signed())
        devnet.mint()
        waiting = devnet.faucet(BOB.address, 3 * ADA)
        before, tip = devnet.ledger_utxos(), devnet.status()["hash"]
        sums = devnet.status()["lovelace"]
    _made_old(tmp_path / "chain.sqlite")
    with Devnet(tmp_path, NEVER, clock=clock) as devnet:
        assert devnet.ledger_utxos() == before
        assert (devnet.status()["hash"], devnet.status()["lovelace"]) == (tip, sums)
        assert devnet.status()["mempool"] == [waiting.tx]
        assert devnet.mint().height == 2


def test_an_older_state_that_cannot_be_indexed_is_refused_in_words(tmp_path: Path) -> None:
    with Devnet(tmp_path, NEVER) as devnet:
        devnet.faucet(ALICE.address, 10 * ADA)
        devnet.mint()
    path = tmp_path / "chain.sqlite"
    db = sqlite3.connect(path)
    db.execute("UPDATE tx SET raw = x'8080'")
    db.commit()
    db.close()
    _made_old(path)
    with pytest.raises(DevnetRefusal, match="older devnet") as first:
        Devnet(tmp_path, NEVER)
    with pytest.raises(DevnetRefusal) as again:  # not "another devnet runs": the lock is let go of
        Devnet(tmp_path, NEVER)
    assert str(again.value) == str(first.value)


def test_a_mempool_on_disk_never_keeps_the_chain_from_starting(tmp_path: Path) -> None:
    with Devnet(tmp_path, NEVER) as devnet:
        kept = devnet.faucet(ALICE.address, 10 * ADA)
        gone = pay(kept, BOB, 10 * ADA, []).signed()  # ALICE's coin, BOB's signature
    db = sqlite3.connect(tmp_path / "chain.sqlite")
    for name, raw in (("garbage", b"\x80"), ("unsigned", gone)):
        db.execute("INSERT INTO mempool (id, raw) VALUES (?, ?)", (name, raw))
    db.commit()
    db.close()
    for _ in range(2):
        with Devnet(tmp_path, NEVER) as devnet:
            assert devnet.status()["mempool"] == [kept.tx]


def test_a_transaction_that_cannot_be_written_is_dropped_and_blocks_go_on(tmp_path: Path) -> None:
    """The file is changed from outside, so that what was rehearsed and acknowledged cannot be
    written any more.
    """
    with Devnet(tmp_path, NEVER) as devnet:
        coins = [devnet.faucet(one.address, 10 * ADA) for one in (ALICE, BOB)]
        devnet.mint()
        bad, good = (
            devnet.submit(pay(coin, one, 10 * ADA, []).signed())
            for coin, one in zip(coins, (ALICE, BOB), strict=True)
        )
        db = sqlite3.connect(tmp_path / "chain.sqlite")
        db.execute("UPDATE output SET spent_by = 'x' WHERE tx = ?", (coins[0].tx,))
        db.commit()
        db.close()
        height = devnet.mint().height
        with devnet.reading() as view:
            assert (view.tx(bad), view.tx(good) is None) == (None, False)
        assert devnet.mint().height == height + 1


def test_blocks_begin_again_when_what_stood_in_their_way_is_gone(tmp_path: Path) -> None:
    with Devnet(tmp_path, 50) as devnet:
        until(lambda: devnet.status()["height"] > 0)
        db = sqlite3.connect(tmp_path / "chain.sqlite", timeout=30)
        db.execute("ALTER TABLE block RENAME TO elsewhere")
        until(lambda: devnet.status()["trouble"] is not None)
        height = devnet.status()["height"]
        db.execute("ALTER TABLE elsewhere RENAME TO block")
        db.close()
        until(lambda: devnet.status()["height"] > height and devnet.status()["trouble"] is None)
