"""A finished transaction written anew in another form that a ledger takes, with the fee that it
costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import cbor2

from marketplace.chain.encoding import cursor, plutus, txbytes
from marketplace.chain.encoding.datum import steps_bytes
from marketplace.chain.transaction.signing import Unsigned
from marketplace.chain.transaction.snapshot import Params
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.money.channel import Step

_FEE_PER_BYTE = 44


def decoy(steps: list[Step]) -> bytes:
    """A redeemer row for settle's withdrawal that costs nothing: a ledger keeps the last of
    several.
    """
    return b"\x84\x03\x00" + steps_bytes(steps) + b"\x82\x00\x00"


def with_decoys(unsigned: Unsigned, params: Params, *rows: bytes) -> Unsigned:
    """*unsigned* with *rows* before its own redeemers, all in the list form: a map has no key
    twice.
    """
    own = _listed(unsigned.redeemers or b"\xa0")
    redeemers = plutus.head(4, len(rows) + len(own)) + b"".join((*rows, *own))
    return rewritten(unsigned, params, redeemers)


def _listed(as_map: bytes) -> list[bytes]:
    """Rows [tag, index, data, units] of {[tag, index]: [data, units]}."""
    flat = cursor.items(as_map, major=5)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [b"\x84" + b"".join((*cursor.items(key), *cursor.items(value))) for key, value in pairs]


def rewritten(unsigned: Unsigned, params: Params, redeemers: bytes) -> Unsigned:
    """*unsigned* with other redeemers, their hash, and the fee of their length out of the
    change.
    """
    longer = len(redeemers) - len(unsigned.redeemers or b"")
    more = max(0, longer + 8) * _FEE_PER_BYTE
    fields = dict(txbytes.map_items(unsigned.body))
    outputs = cursor.items(fields[1])
    change = cast("dict[int, Any]", cbor2.loads(outputs[-1]))
    change[1] -= more
    outputs[-1] = cbor2.dumps(change)
    fee = unsigned.fee + more
    fields |= {
        1: plutus.head(4, len(outputs)) + b"".join(outputs),
        2: plutus.head(0, fee),
        11: cbor2.dumps(params.script_data_hash(redeemers)),
    }
    if 17 in fields:  # the pledge grows with the fee
        pledged = -(-fee * params.collateral_percent // 100)
        back = cast("dict[int, Any]", cbor2.loads(fields[16]))
        back[1] -= pledged - cbor2.loads(fields[17])
        fields |= {16: cbor2.dumps(back), 17: cbor2.dumps(pledged)}
    body = plutus.head(5, len(fields))
    body += b"".join(plutus.head(0, key) + raw for key, raw in fields.items())
    made = txbytes.outputs_of(b"\x84" + body + b"\xa0\xf5\xf6")
    assert made[0].ref.tx_id == blake2b_256(body)
    return replace(unsigned, body=body, redeemers=redeemers, fee=fee, made=made)
