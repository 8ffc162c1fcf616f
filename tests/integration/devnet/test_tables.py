"""Every case of the tables, by HTTP, on a devnet that makes a block every second and is killed in
between.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from contracts.devnet import Devnet, LedgerRefusal
from contracts.devnet.transaction import OutRef
from tests.integration.devnet.test_durability import process
from tests.integration.support.devnet import ADA, Draft, Party, pay, ref
from tests.integration.support.devnet_door import Door
from tests.integration.support.ledger_cases import ALICE, CASES, Case, World
from tests.integration.support.odd_cases import ACCEPTED, REFUSED, Refused, failing
from tests.requires import need_devnet

EVERY_SECOND = 1000
HOUR = 3600  # slots: time goes on while a case is sent
# The faucet's change is some 3 * 10^16 lovelace each time: so many blocks' sums pass 2^63.
PAYMENTS = 310
pytestmark = pytest.mark.prove


@dataclass
class Told:
    """What was acknowledged (name and bytes of each), and what must never be."""

    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    refused: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def take(self, door: Door, draft: Draft) -> str:
        raw = draft.signed()
        name = door.submit(raw)
        self.kept[name] = raw
        return name

    def refuse(self, door: Door, reason: str, draft: Draft) -> None:
        self.refused.append((reason, draft.signed()))
        _refused(door, *self.refused[-1])


def _refused(door: Door, reason: str, raw: bytes) -> None:
    with pytest.raises(LedgerRefusal) as told:
        door.submit(raw)
    assert reason in told.value.reason, (reason, told.value.reason)


@contextmanager
def running(state: Path, *, kill: bool) -> Generator[Door, None, None]:
    """The devnet's own process. kill: it ends by SIGKILL, whatever it is doing."""
    with process(state, EVERY_SECOND) as (child, ready):
        with Door(ready["control"].removesuffix("/devnet")) as door:
            yield door
        os.kill(child.pid, signal.SIGKILL if kill else signal.SIGTERM)
        child.wait(60)


def _conserved(door: Door) -> None:
    status = door.status()
    sums = status["lovelace"]
    total = sums["unspent"] + sums["fees"] + sums["deposits"] + sums["accounts"]
    assert sums["genesis"] + sums["rewards"] == total
    assert status["trouble"] is None
    assert door.audit()["differing"] == []


def _all_there(door: Door, told: Told, failed: str) -> None:
    """In blocks, each with the outcome that the ledger gives it; none of it again, and nothing of
    what was refused.
    """
    door.settled()
    for name, raw in told.kept.items():
        found = door.get(f"/txs/{name}")
        assert found.status_code == 200, name
        assert found.json()["valid_contract"] == (name != failed)
        _refused(door, "", raw)
    _conserved(door)


def _nothing_of_the_failed(door: Door, draft: Draft, failed: str) -> None:
    """What a failing script's transaction would have made, and the collateral that it lost, are
    nobody's.
    """
    lost = [OutRef(tx.hex(), ix) for tx, ix in draft.body[13]]
    for gone in (OutRef(failed, 0), *lost):
        again = draft.put(valid=True, redeemers={}).set(0, [ref(gone)])
        _refused(door, "BadInputsUTxO", again.signed())


@pytest.mark.timeout(900)
def test_the_tables_hold_with_blocks_every_second_and_a_kill_in_between(tmp_path: Path) -> None:
    need_devnet()
    told = Told()
    later: list[tuple[Case | Refused, Draft]] = []
    with running(tmp_path, kill=True) as door:
        for amount in range(PAYMENTS):
            door.faucet(Party("many").address, 2 * ADA + amount)
        world = World(cast("Devnet", door), margin=HOUR)  # the cases ask for what the door has
        draft, _, _ = failing(world)
        failed = told.take(door, draft)
        for build in ACCEPTED.values():
            told.take(door, build(world))
        for at, one in enumerate((*CASES, *REFUSED)):
            control, mutant = one.build(world)
            told.refuse(door, one.reason, mutant)
            if at % 2:
                later.append((one, control))
            else:
                told.take(door, control)
        for raw in (b"", b"\x84\x00", draft.signed()[:-2]):
            _refused(door, "DecoderFailure", raw)
        height = door.status()["height"]
        assert height > 0
    with running(tmp_path, kill=True) as door:
        for reason, raw in told.refused[1::2]:
            _refused(door, reason, raw)
        for _, control in later:
            told.take(door, control)
        _all_there(door, told, failed)
        _nothing_of_the_failed(door, draft, failed)
        assert door.get("/epochs/latest").status_code == 200
        assert door.status()["height"] > height
    with running(tmp_path, kill=False) as door:
        _all_there(door, told, failed)
        _nothing_of_the_failed(door, draft, failed)
        back = pay(OutRef(failed, 1), ALICE, 4 * ADA, [])
        told.take(door, back)
        _all_there(door, told, failed)
