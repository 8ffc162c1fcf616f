"""The bill, recomputed by anyone from what both sides signed and from the ledger: pure and offline.

``reconcile(evidence) -> Invoice`` trusts nobody: it takes the terms, every receipt of the channels,
the greatest vouchers and what the ledger says, and applies the rules of ``docs/invoice.md`` one
after the other. The first that fails ends as :class:`InvoiceRefused` with that rule's code.
Money is lovelace, time ms. A job that went on elsewhere has several channels and one invoice.

Long, because a verifier of another author reads the rules and the evidence's form in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from marketplace.domain.canonical import want_int, want_text
from marketplace.domain.channel import Consts
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.receipt import Receipt, ReceiptRefused, SignedReceipt, check_next
from marketplace.domain.terms import SignedTerms, Terms, TermsRefused
from marketplace.domain.units import Resource
from marketplace.domain.voucher import Voucher, VoucherRefused


class InvoiceRefused(Refusal):
    """The bill does not follow from what was signed and settled; ``code`` names the rule."""

    code = "INVOICE_REFUSED"
    remedy = "keep this evidence: it shows what was signed; docs/invoice.md states the rule"
    rule: ClassVar[str] = ""


class TermsNotSigned(InvoiceRefused):
    """I1: both sides signed the terms of every lease."""

    code, rule = "INVOICE_TERMS", "I1"


class ChannelDiffers(InvoiceRefused):
    """I2: the channel on the ledger is the one that the terms describe."""

    code, rule = "INVOICE_CHANNEL", "I2"


class ReceiptNotSigned(InvoiceRefused):
    """I3: the adapter of the terms signed every receipt."""

    code, rule = "INVOICE_RECEIPT_SIGNATURE", "I3"


class ChainBroken(InvoiceRefused):
    """I4: the receipts form one hash chain from the channel's first, and every total follows."""

    code, rule = "INVOICE_RECEIPT_CHAIN", "I4"


class UsageDiffers(InvoiceRefused):
    """I5: devices and resource are the terms', and no lease owes more than its ceiling."""

    code, rule = "INVOICE_USAGE", "I5"


class VoucherWrong(InvoiceRefused):
    """I6: the consumer signed the voucher, for this channel."""

    code, rule = "INVOICE_VOUCHER", "I6"


class ClaimWrong(InvoiceRefused):
    """I7: no more was claimed than was delivered and signed for, and all of that once the channel ended."""

    code, rule = "INVOICE_CLAIM", "I7"


class MoneyMissing(InvoiceRefused):
    """I8: opened + topped up = claimed + refunded + still held, to the lovelace."""

    code, rule = "INVOICE_CONSERVATION", "I8"


@dataclass(frozen=True)
class LedgerFacts:
    """What the chain says of one channel, of its one asset.

    *funded*: opened and topped up; *claimed*: taken from it for the provider over its life, the
    settler's bounty included; *refunded*: sent home; *held*: still in it, 0 once it has *ended*.
    """

    session_vk: bytes
    consts: Consts
    funded: int
    claimed: int
    refunded: int
    held: int
    ended: bool


@dataclass(frozen=True)
class ChannelEvidence:
    """One channel: terms of all its leases, all its receipts in order, its greatest voucher.

    *open_tx* (hex) and *index* say where to find it; *ledger* is None until the chain was asked.
    """

    session_vk: bytes
    open_tx: str
    index: int
    terms: tuple[SignedTerms, ...]
    receipts: tuple[SignedReceipt, ...]
    voucher: Voucher | None
    ledger: LedgerFacts | None = None


@dataclass(frozen=True)
class Evidence:
    """Everything that the invoice of *job* is made from."""

    job: str
    channels: tuple[ChannelEvidence, ...]


@dataclass(frozen=True)
class LostTime:
    """Time of a lease that was not billed, with its cause; always 0 lovelace."""

    cause: str
    ms: int


@dataclass(frozen=True)
class Line:
    """One lease: what was delivered, at which rate, and what that makes."""

    lease: str
    provider: str
    channel: bytes
    resource: Resource
    units_milli: int
    rate_micro: int
    ticks: int
    started_wall_ms: int
    ended_wall_ms: int
    lease_ms: int
    unit_ms: int
    owed: int
    ceiling: int
    final: bool
    lost: tuple[LostTime, ...]


@dataclass(frozen=True)
class Total:
    """One channel: what its leases owe, what was signed for, claimed, sent home and is still held.

    *signed* is the greatest voucher. What it holds beyond *owed* is *ahead*: an allowance for later
    ticks, no word about what was delivered, and nobody's due.
    """

    channel: bytes
    owed: int
    signed: int
    ahead: int
    claimed: int | None
    refunded: int | None
    held: int | None
    funded: int | None
    ended: bool | None


@dataclass(frozen=True)
class Invoice:
    """A bill that holds: *owed* is this job's share of its channels."""

    job: str
    lines: tuple[Line, ...]
    channels: tuple[Total, ...]

    @property
    def owed(self) -> int:
        """What the job cost."""
        return sum(line.owed for line in self.lines)

    @property
    def unsigned(self) -> int:
        """Delivered and never paid for: the provider's loss, two ticks a lease at most."""
        return sum(max(total.owed - total.signed, 0) for total in self.channels)

    @property
    def ahead(self) -> int:
        """Signed for beyond what was delivered; none of it may be claimed."""
        return sum(total.ahead for total in self.channels)

    @property
    def reconciled(self) -> bool:
        """Whether every channel has ended on the ledger, with its due to the lovelace."""
        return bool(self.channels) and all(
            t.ended and t.claimed == min(t.signed, t.owed) for t in self.channels
        )

    def to_json(self) -> dict[str, Any]:
        """For programs; bytes as hex."""
        return {
            "job": self.job,
            "owed": self.owed,
            "unsigned": self.unsigned,
            "ahead": self.ahead,
            "reconciled": self.reconciled,
            "lines": [_plain(line) for line in self.lines],
            "channels": [_plain(total) for total in self.channels],
        }


def reconcile(evidence: Evidence) -> Invoice:
    """The invoice of *evidence*; :class:`InvoiceRefused` names the first rule that fails."""
    lines: list[Line] = []
    totals: list[Total] = []
    for channel in evidence.channels:
        terms = _terms(channel)
        last, by_lease = _receipts(channel, terms)
        signed, owed = _voucher(channel), last.channel_owed if last else 0
        _ledger(channel, terms, signed, owed)
        lines += [
            _line(terms[lease], receipts)
            for lease, receipts in by_lease.items()
            if terms[lease].job == evidence.job
        ]
        facts = channel.ledger
        totals.append(
            Total(
                channel=channel.session_vk,
                owed=owed,
                signed=signed,
                ahead=max(signed - owed, 0),
                claimed=facts.claimed if facts else None,
                refunded=facts.refunded if facts else None,
                held=facts.held if facts else None,
                funded=facts.funded if facts else None,
                ended=facts.ended if facts else None,
            )
        )
    return Invoice(evidence.job, tuple(lines), tuple(totals))


def _terms(channel: ChannelEvidence) -> dict[str, Terms]:
    """I1, and the part of I2 that needs no ledger."""
    found: dict[str, Terms] = {}
    for signed in channel.terms:
        try:
            terms = signed.verify()
        except (TermsRefused, Malformed) as error:
            raise TermsNotSigned(error.message) from error
        if terms.session_vk != channel.session_vk:
            raise ChannelDiffers(f"lease {terms.lease} is on another channel", lease=terms.lease)
        if terms.lease in found:
            raise TermsNotSigned(f"lease {terms.lease} has two terms", lease=terms.lease)
        found[terms.lease] = terms
    if len({(t.magic, t.asset, t.consts()) for t in found.values()}) > 1:
        raise ChannelDiffers("the leases of one channel name different payouts or rules")
    return found


def _receipts(
    channel: ChannelEvidence, terms: Mapping[str, Terms]
) -> tuple[Receipt | None, dict[str, list[Receipt]]]:
    """I3, I4 and I5, receipt by receipt."""
    last: Receipt | None = None
    by_lease: dict[str, list[Receipt]] = {}
    for signed in channel.receipts:
        try:
            receipt = signed.receipt
        except Malformed as error:
            raise ReceiptNotSigned(error.message) from error
        agreed = terms.get(receipt.lease)
        if agreed is None or receipt.session_vk != channel.session_vk:
            raise ReceiptNotSigned(
                f"receipt {receipt.seq} is for a lease without terms", seq=receipt.seq
            )
        try:
            signed.verify(agreed.adapter_vk)
        except ReceiptRefused as error:
            raise ReceiptNotSigned(error.message, seq=receipt.seq) from error
        before = by_lease.setdefault(receipt.lease, [])
        try:
            check_next(receipt, last, before[-1] if before else None, agreed.rate_micro)
        except ReceiptRefused as error:
            raise ChainBroken(f"receipt {receipt.seq}: {error.message}", seq=receipt.seq) from error
        _usage(receipt, agreed)
        before.append(receipt)
        last = receipt
    return last, by_lease


def _usage(receipt: Receipt, terms: Terms) -> None:
    rules = (
        (receipt.resource == terms.resource, "bills another resource than the terms'"),
        (receipt.device == terms.devices, "names other devices than the terms'"),
        (receipt.lease_owed <= terms.ceiling, "owes more than the ceiling of the terms"),
    )
    for holds, why in rules:
        if not holds:
            raise UsageDiffers(f"receipt {receipt.seq} {why}", seq=receipt.seq, lease=receipt.lease)


def _voucher(channel: ChannelEvidence) -> int:
    """I6: what the consumer signed for."""
    voucher = channel.voucher
    if voucher is None:
        return 0
    try:
        voucher.verify()
    except VoucherRefused as error:
        raise VoucherWrong(error.message) from error
    if voucher.session_vk != channel.session_vk:
        raise VoucherWrong("the voucher is for another channel")
    return voucher.cumulative


def _ledger(channel: ChannelEvidence, terms: Mapping[str, Terms], signed: int, owed: int) -> None:
    """I2, I7 and I8; nothing to compare while the chain was not asked."""
    facts = channel.ledger
    if facts is None:
        return
    for agreed in terms.values():
        if facts.session_vk != channel.session_vk or facts.consts != agreed.consts():
            raise ChannelDiffers("the channel on the ledger is not the one of the terms")
    if facts.claimed > signed:
        raise ClaimWrong(f"{facts.claimed} lovelace were claimed, {signed} were signed for")
    if facts.claimed > owed:
        raise ClaimWrong(
            f"over-claimed {facts.claimed - owed}: {facts.claimed} lovelace were claimed, {owed} were"
            f" delivered; the {signed - owed} signed ahead are an allowance, not a due",
            over_claimed=facts.claimed - owed, delivered=owed, ahead=signed - owed,
        )  # fmt: skip
    due = min(signed, owed)
    if facts.ended and facts.claimed != due:
        raise ClaimWrong(f"the channel ended with {facts.claimed} claimed, {due} were due")
    if facts.funded != facts.claimed + facts.refunded + facts.held:
        raise MoneyMissing(
            f"{facts.funded} went in; {facts.claimed} claimed, {facts.refunded} refunded and "
            f"{facts.held} held are {facts.claimed + facts.refunded + facts.held}"
        )


def _line(terms: Terms, receipts: list[Receipt]) -> Line:
    first, last = receipts[0], receipts[-1]
    lost: dict[str, int] = {}
    for receipt in receipts:
        for part in receipt.lost:
            lost[part.cause] = lost.get(part.cause, 0) + part.ms
    return Line(
        lease=terms.lease,
        provider=terms.provider,
        channel=terms.session_vk,
        resource=terms.resource,
        units_milli=terms.units_milli,
        rate_micro=terms.rate_micro,
        ticks=len(receipts),
        started_wall_ms=first.wall_ms - (first.t1_ms - first.t0_ms),
        ended_wall_ms=last.wall_ms,
        lease_ms=last.t1_ms,
        unit_ms=last.unit_ms_total,
        owed=last.lease_owed,
        ceiling=terms.ceiling,
        final=last.final,
        lost=tuple(LostTime(cause, ms) for cause, ms in sorted(lost.items()) if ms),
    )


# --- the form in which evidence travels -----------------------------------------------------------


def evidence_to_json(evidence: Evidence) -> dict[str, Any]:
    """The form of ``docs/invoice.md``, the ledger left out: signed bytes as hex."""
    leases = [(channel, signed) for channel in evidence.channels for signed in channel.terms]
    return {
        "job": evidence.job,
        "leases": [
            {
                "channel": channel.session_vk.hex(),
                "terms": signed.body.hex(),
                "adapter_signature": signed.adapter_signature.hex(),
                "session_signature": (signed.session_signature or b"").hex(),
            }
            for channel, signed in leases
        ],
        "channels": [
            {
                "session_vk": channel.session_vk.hex(),
                "open_tx": channel.open_tx,
                "index": channel.index,
                "receipts": [
                    {"body": signed.body.hex(), "signature": signed.signature.hex()}
                    for signed in channel.receipts
                ],
                "voucher": None
                if channel.voucher is None
                else {
                    "cumulative": channel.voucher.cumulative,
                    "signature": channel.voucher.signature.hex(),
                },
            }
            for channel in evidence.channels
        ],
    }


def evidence_from_json(value: object) -> Evidence:
    """The reverse; further keys are ignored; :class:`Malformed` for anything else.

    Checks no signature: :func:`reconcile` does.
    """
    top = _map(value, "invoice")
    terms: dict[bytes, list[SignedTerms]] = {}
    for item in _list(top.get("leases")):
        row = _map(item, "lease")
        signed = SignedTerms.from_wire(
            [_bytes(row.get(x), x) for x in ("terms", "adapter_signature", "session_signature")]
        )
        terms.setdefault(_bytes(row.get("channel"), "channel"), []).append(signed)
    channels = tuple(_channel(_map(x, "channel"), terms) for x in _list(top.get("channels")))
    return Evidence(want_text(top.get("job"), "job", 64), channels)


def strange_leases(value: object) -> list[str]:
    """Leases that have receipts in this evidence and no terms: their jobs shared a channel."""
    top = _map(value, "invoice")
    known = {
        SignedTerms(_bytes(_map(x, "lease").get("terms"), "terms"), b"").terms.lease
        for x in _list(top.get("leases"))
    }
    found: dict[str, None] = {}
    for item in _list(top.get("channels")):
        for receipt in _list(_map(item, "channel").get("receipts")):
            body = _bytes(_map(receipt, "receipt").get("body"), "receipt")
            found.setdefault(Receipt.decode(body).lease)
    return [lease for lease in found if lease not in known]


def _channel(item: Mapping[str, Any], terms: Mapping[bytes, list[SignedTerms]]) -> ChannelEvidence:
    session_vk = _bytes(item.get("session_vk"), "session_vk")
    voucher = None
    if item.get("voucher") is not None:
        row = _map(item["voucher"], "voucher")
        cumulative = want_int(row.get("cumulative"), "cumulative")
        voucher = Voucher(session_vk, cumulative, _bytes(row.get("signature"), "signature"))
    receipts = [_map(x, "receipt") for x in _list(item.get("receipts"))]
    return ChannelEvidence(
        session_vk=session_vk,
        open_tx=want_text(item.get("open_tx"), "open_tx", 64),
        index=want_int(item.get("index", 0), "index", 0, 65_535),
        terms=tuple(terms.get(session_vk, ())),
        receipts=tuple(
            SignedReceipt.from_wire(
                [_bytes(r.get("body"), "receipt"), _bytes(r.get("signature"), "signature")]
            )
            for r in receipts
        ),
        voucher=voucher,
    )


def _bytes(value: object, name: str) -> bytes:
    try:
        return bytes.fromhex(want_text(value, name, 16_384))
    except ValueError as error:
        raise Malformed(f"{name} is not hex") from error


def _map(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{name} is not a map")
    return cast("dict[str, Any]", value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise Malformed("expected a list")
    return cast("list[object]", value)


def _plain(value: Line | Total) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, part in vars(value).items():
        if isinstance(part, bytes):
            row[name] = part.hex()
        elif isinstance(part, tuple):
            lost = cast("tuple[LostTime, ...]", part)
            row[name] = [{"cause": item.cause, "ms": item.ms} for item in lost]
        else:
            row[name] = part
    return row
