"""The vouchers that a transaction shows: whoever claims must show the session key's signature to
settle.

``claimed`` in a datum is what an indexer says; a signature is what the session key did. A voucher
names no output, so one that verifies is the key's own wherever in the transaction it stands, and
whatever else is false about it.
"""

from __future__ import annotations

from collections.abc import Iterator

from marketplace.chain.encoding import lenient, txbytes
from marketplace.domain.errors import Malformed
from marketplace.domain.money.voucher import Voucher, VoucherRefused


def greatest_voucher(tx: bytes, session_vk: bytes) -> Voucher | None:
    """The greatest that *session_vk* signed among the steps that *tx* tells settle; None if there
    is none.
    """
    try:
        found = [
            voucher
            for redeemer in txbytes.settle_redeemers(tx)
            for voucher in _vouchers(redeemer, session_vk)
        ]
    except Malformed:
        return None
    return max(found, key=lambda voucher: voucher.cumulative, default=None)


def _vouchers(redeemer: bytes, session_vk: bytes) -> Iterator[Voucher]:
    for step in lenient.steps_of(redeemer):
        try:
            told = step.voucher
            if told is None:
                continue
            voucher = Voucher(session_vk, *told)
            voucher.verify()
        except (Malformed, VoucherRefused):  # another channel's, or no voucher at all
            continue
        yield voucher
