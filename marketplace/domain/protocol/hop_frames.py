"""A hop's payment as the frame that carries it, and back: only the leaves that changed travel."""

from __future__ import annotations

from marketplace.domain.canonical import want_bytes
from marketplace.domain.money.route.hop import Payment, merged
from marketplace.domain.money.route.leaves import pack, unpack
from marketplace.domain.money.route.statement import SignedStatement
from marketplace.domain.protocol.hop_messages import HopPaid


def frame_of(payment: Payment, since: Payment | None) -> HopPaid:
    """*payment* for whoever has *since* already; None: all of its leaves."""
    signed = payment.signed
    leaves = pack(payment.changes(since))
    return HopPaid(signed.body, signed.signature, payment.voucher, leaves)


def payment_of(frame: HopPaid, last: Payment | None) -> Payment:
    """What *frame* makes of the *last* payment; :class:`Malformed`. Whether it holds is asked of
    the hop (``Earning.take``), after ``Payment.check_leaves``.
    """
    signed = SignedStatement(frame.statement, want_bytes(frame.signature, 64, "signature"))
    _ = signed.statement
    return merged(last, signed, frame.voucher, unpack(frame.leaves))
