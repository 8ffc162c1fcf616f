"""A receipt: the adapter's signed, hash-chained statement of what was delivered and is owed.

One chain per channel: ``previous`` is the hash of the channel's last receipt, whichever lease it
was for. The payer answers a receipt with a voucher over ``channel_owed``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int, want_list, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies
from marketplace.domain.metering.kinds import Resource, want_resource
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import owed, unit_ms

_TAG: Final = "tally/receipt/v1"
GENESIS: Final = bytes(32)
ROUNDING_MS: Final = 1
"""Both ends of a tick are rounded down to a millisecond: it may have been so much longer."""


class ReceiptRefused(Refusal):
    """A receipt that is forged, out of order, or does not add up."""

    code = "RECEIPT_REFUSED"
    remedy = "stop paying this provider and keep the receipt: it is the evidence"


@dataclass(frozen=True)
class Lost:
    """Milliseconds of wall time in this tick that were not billed, and why."""

    cause: str
    ms: int


@dataclass(frozen=True)
class Receipt:
    """Cumulative statement after one tick.

    *seq* counts the channel's receipts from 1; *t0_ms*, *t1_ms* are the adapter's boot-time clock
    since the lease's start; *unit_ms_total* is the lease's GPU- or core-milliseconds; money is
    lovelace; *final* marks the lease's last.
    """

    session_vk: bytes
    lease: str
    seq: int
    t0_ms: int
    t1_ms: int
    wall_ms: int
    device: bytes
    resource: Resource
    unit_ms_total: int
    lease_owed: int
    channel_owed: int
    lost: tuple[Lost, ...]
    readings: bytes
    previous: bytes
    final: bool

    def encode(self) -> bytes:
        """The canonical bytes that are signed and hashed."""
        return canonical.encode(
            [
                _TAG, self.session_vk, self.lease, self.seq, self.t0_ms, self.t1_ms, self.wall_ms,
                self.device, self.resource, self.unit_ms_total, self.lease_owed, self.channel_owed,
                [[lost.cause, lost.ms] for lost in self.lost], self.readings, self.previous,
                self.final,
            ]
        )  # fmt: skip

    @staticmethod
    def decode(data: bytes) -> Receipt:
        """The reverse of :meth:`encode`; :class:`Malformed` for anything else."""
        f = canonical.decode_tagged(data, _TAG, 15)
        if not isinstance(f[14], bool) or not isinstance(f[11], list):
            raise Malformed("a receipt's lost time or final mark is not one")
        lost = tuple(
            Lost(want_text(c, "cause", 40), want_int(ms, "lost ms"))
            for c, ms in (want_list(x, 2, "lost") for x in cast(list[object], f[11]))
        )
        return Receipt(
            session_vk=want_bytes(f[0], 32, "session_vk"),
            lease=want_text(f[1], "lease", 64),
            seq=want_int(f[2], "seq", 1),
            t0_ms=want_int(f[3], "t0_ms"),
            t1_ms=want_int(f[4], "t1_ms"),
            wall_ms=want_int(f[5], "wall_ms"),
            device=want_bytes(f[6], 32, "device"),
            resource=want_resource(f[7]),
            unit_ms_total=want_int(f[8], "unit_ms_total"),
            lease_owed=want_int(f[9], "lease_owed"),
            channel_owed=want_int(f[10], "channel_owed"),
            lost=lost,
            readings=want_bytes(f[12], 32, "readings"),
            previous=want_bytes(f[13], 32, "previous"),
            final=f[14],
        )

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the encoding: the next receipt's ``previous``."""
        return canonical.blake2b_256(self.encode())


@dataclass(frozen=True)
class SignedReceipt:
    """A receipt's exact bytes and the adapter's signature over them."""

    body: bytes
    signature: bytes

    @staticmethod
    def sign(receipt: Receipt, adapter: Signer) -> SignedReceipt:
        """By the adapter's metering key (``Terms.adapter_vk``)."""
        body = receipt.encode()
        return SignedReceipt(body, adapter.sign(body))

    @cached_property
    def receipt(self) -> Receipt:
        """The decoded statement; :class:`Malformed` if it is none."""
        return Receipt.decode(self.body)

    def verify(self, adapter_vk: bytes) -> Receipt:
        """The statement, if *adapter_vk* signed exactly these bytes."""
        if not verifies(adapter_vk, self.body, self.signature):
            raise ReceiptRefused("the receipt is not signed by the adapter of the terms")
        return self.receipt

    def to_wire(self) -> list[object]:
        """For a message or a store."""
        return [self.body, self.signature]

    @staticmethod
    def from_wire(value: object) -> SignedReceipt:
        """The reverse; does not check the signature."""
        a, b = want_list(value, 2, "receipt")
        return SignedReceipt(want_bytes(a, None, "body"), want_bytes(b, 64, "signature"))


def check(
    receipt: Receipt, before: Receipt | None, lease_before: Receipt | None, terms: Terms
) -> None:
    """Whether *receipt* follows from what came before, fits the lease's *terms*, and had time for
    its usage.

    *before* is the channel's last receipt, *lease_before* the same lease's last (None for the first
    of each). Market and payer ask this one question; the invoice's verifiers ask its three parts by
    the numbers of their rules. Raises :class:`ReceiptRefused` naming the first rule that is broken.
    """
    check_next(receipt, before, lease_before, terms.rate_micro)
    check_terms(receipt, terms)
    check_time(receipt, lease_before, terms.units_milli)


def check_terms(receipt: Receipt, terms: Terms) -> None:
    """Whether *receipt* bills what *terms* agree on; :class:`ReceiptRefused` names what is not
    so.
    """
    _first_broken(
        receipt,
        ("lease", receipt.lease == terms.lease, "another lease than the terms name"),
        ("channel", receipt.session_vk == terms.session_vk, "another channel than the terms name"),
        (
            "resource",
            receipt.resource == terms.resource,
            f"bills {receipt.resource}, the terms say {terms.resource}",
        ),
        ("device", receipt.device == terms.devices, "names other devices than the terms"),
        (
            "ceiling",
            receipt.lease_owed <= terms.ceiling,
            f"the lease owes {receipt.lease_owed}, above its ceiling of {terms.ceiling}",
        ),
    )


def check_next(
    receipt: Receipt, before: Receipt | None, lease_before: Receipt | None, rate_micro: int
) -> None:
    """Whether *receipt* follows from the channel's last and this lease's last receipt.

    *before* is the channel's last receipt, *lease_before* the same lease's last (None for the
    first of each). Raises :class:`ReceiptRefused` naming the first rule that is broken.
    """
    seq = before.seq if before else 0
    previous = before.hash if before else GENESIS
    unit_before = lease_before.unit_ms_total if lease_before else 0
    owed_before = lease_before.lease_owed if lease_before else 0
    channel_before = before.channel_owed if before else 0
    due = owed(receipt.unit_ms_total, rate_micro)
    total = channel_before + receipt.lease_owed - owed_before
    t0 = lease_before.t1_ms if lease_before else 0
    _first_broken(
        receipt,
        ("seq", receipt.seq == seq + 1, f"seq is {receipt.seq}, expected {seq + 1}"),
        ("previous", receipt.previous == previous, "the hash chain does not continue"),
        ("channel", before is None or receipt.session_vk == before.session_vk, "another channel"),
        ("lease", lease_before is None or receipt.lease == lease_before.lease, "another lease"),
        (
            "final",
            lease_before is None or not lease_before.final,
            "the lease already had its last receipt",
        ),
        ("backwards", receipt.t1_ms >= receipt.t0_ms, "time runs backwards"),
        ("gap", receipt.t0_ms == t0, f"the ticks leave a gap: {t0} to {receipt.t0_ms} ms"),
        ("shrinks", receipt.unit_ms_total >= unit_before, "usage shrinks"),
        (
            "owed",
            receipt.lease_owed == due,
            f"owed is not ms x rate: {receipt.lease_owed}, not {due}",
        ),
        (
            "sum",
            receipt.channel_owed == total,
            (
                f"the channel's total is not the sum of its leases: {receipt.channel_owed}, not"
                f" {total}"
            ),
        ),
    )


def _first_broken(receipt: Receipt, *rules: tuple[str, bool, str]) -> None:
    """Raises for the first (way, holds, why) that does not hold; *way* is ``docs/invoice.md``'s
    name.
    """
    for way, holds, why in rules:
        if not holds:
            raise ReceiptRefused(why, way=way, seq=receipt.seq, lease=receipt.lease)


def most_unit_ms(t0_ms: int, t1_ms: int, lost_ms: int, units_milli: int, before: int = 0) -> int:
    """The largest ``unit_ms_total`` that fits into a lease's time (rule I9).

    It has grown from *before* since *t0_ms* by no more than time x units, what was lost left out,
    and is never beyond *t1_ms* x units. Growth has 1 unit-ms more: totals are rounded down as well.
    """
    held_ms = max(0, t1_ms - t0_ms - lost_ms + ROUNDING_MS)
    return min(before + unit_ms(held_ms, units_milli) + 1, unit_ms(t1_ms, units_milli))


def check_time(receipt: Receipt, lease_before: Receipt | None, units_milli: int) -> None:
    """Rule I9: nobody uses more than there was time for; :class:`ReceiptRefused` names what is not
    so.

    *lease_before* is the same lease's last receipt, *units_milli* the terms'. Call
    :func:`check_next` first: it ties the two.
    """
    before = lease_before.unit_ms_total if lease_before else 0
    elapsed, total = receipt.t1_ms - receipt.t0_ms, receipt.unit_ms_total
    lost = sum(part.ms for part in receipt.lost)
    most = max(before, most_unit_ms(receipt.t0_ms, receipt.t1_ms, lost, units_milli, before))
    _first_broken(
        receipt,
        (
            "total",
            total <= unit_ms(receipt.t1_ms, units_milli),
            f"more usage than its own clock had time for: {total} unit-ms in {receipt.t1_ms} ms",
        ),
        (
            "growth",
            total <= most,
            (
                f"usage grew faster than time: {total - before} unit-ms in {elapsed} ms less {lost}"
                " lost"
            ),
        ),
        ("lost", lost <= elapsed, f"more time lost than there was: {lost} ms in {elapsed} ms"),
    )
