"""Bytes from strangers, at every door that takes any: refused or read, at once, and nothing
else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from marketplace.chain.encoding import lenient, plutus, txbytes
from marketplace.chain.signin import verify_sign_in
from marketplace.domain import canonical
from marketplace.domain.errors import Refusal
from marketplace.domain.protocol import codec, wire
from tests.unit.support.bytes import bombs

DOORS: tuple[tuple[str, Callable[[bytes], object]], ...] = (
    ("frame", codec.from_bytes),
    ("payload", lambda raw: codec.from_bytes(codec.to_bytes(wire.Data(1, raw))) and codec.from_bytes(raw)),
    ("record", canonical.decode),
    ("data", plutus.decode),
    ("utxo", txbytes.read_utxo),
    ("witnesses", txbytes.key_witnesses),
    ("body", lambda raw: txbytes.outputs_of(b"\x84" + raw + b"\xa0\xf5\xf6")),
    ("steps", lenient.steps_of),
    ("state", lenient.state_of),
    ("redeemers", txbytes.settle_redeemers),
    ("sign-in", lambda raw: verify_sign_in("60" + "11" * 28, raw.hex(), "a0", mainnet=False)),
)  # fmt: skip


LEDGERS_OWN = {("data", "many empty pieces"), ("data", "a big integer")}  # a ledger takes them


@pytest.mark.parametrize("door", [name for name, _ in DOORS])
@pytest.mark.parametrize("bomb", list(bombs(20_000)))
def test_a_bomb_is_refused_and_at_once(door: str, bomb: str) -> None:
    raw, enter = bombs(20_000)[bomb], dict(DOORS)[door]
    begun = time.process_time()
    try:
        enter(raw)
        refused = False
    except Refusal:
        refused = True
    assert refused or (door, bomb) in LEDGERS_OWN
    assert time.process_time() - begun < 0.5
