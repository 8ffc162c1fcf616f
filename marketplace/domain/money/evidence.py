"""What an invoice is made from, and the form in which it travels: ``docs/invoice.md``, "The
evidence".

``read(text)`` takes the JSON of a file or a market; it checks every field's type and limit and no
signature. What it refuses is :class:`EvidenceMalformed`; what it lets pass is judged by
:mod:`marketplace.domain.money.invoice.verify`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from marketplace.domain import strictjson
from marketplace.domain.canonical import want_int, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.receipt import Receipt, SignedReceipt
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import MAX_CUMULATIVE, Voucher

MOST_BODY: Final = 8192
"""Bytes of signed terms or of a receipt."""
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")


class EvidenceMalformed(Malformed):
    """The text is not an invoice's evidence: no rule can be applied to it."""

    code = "INVOICE_MALFORMED"
    remedy = (
        "fetch it again with `tally invoice JOB --save FILE`; docs/invoice.md states each field's"
        " form"
    )
    rule: ClassVar[str] = "MALFORMED"


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
class LeaseEvidence:
    """One lease: the *channel* (a session key) that it is said to be on, and its signed terms."""

    channel: bytes
    signed: SignedTerms


@dataclass(frozen=True)
class ChannelEvidence:
    """One channel: all its receipts in order, its greatest voucher.

    *open_tx* (hex, empty while nothing was opened) and *index* say where to find it on the ledger.
    """

    session_vk: bytes
    open_tx: str
    index: int
    receipts: tuple[SignedReceipt, ...]
    voucher: Voucher | None


@dataclass(frozen=True)
class Evidence:
    """Everything that the invoice of *job* is made from."""

    job: str
    leases: tuple[LeaseEvidence, ...]
    channels: tuple[ChannelEvidence, ...]


def read(text: str | bytes) -> Evidence:
    """The evidence that *text* holds; :class:`EvidenceMalformed` says which field is not as it must
    be.
    """
    return evidence_from_json(parse(text))


def parse(text: str | bytes) -> Any:
    """Strict JSON of one reading, or :class:`EvidenceMalformed`."""
    try:
        return strictjson.parse(text)
    except Malformed as error:
        raise EvidenceMalformed(error.message) from error


def evidence_to_json(evidence: Evidence) -> dict[str, Any]:
    """The form of ``docs/invoice.md``, the ledger left out: signed bytes as hex."""
    return {
        "job": evidence.job,
        "leases": [
            {
                "channel": lease.channel.hex(),
                "terms": lease.signed.body.hex(),
                "adapter_signature": lease.signed.adapter_signature.hex(),
                "session_signature": (lease.signed.session_signature or b"").hex(),
            }
            for lease in evidence.leases
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
                "voucher": (
                    None
                    if channel.voucher is None
                    else {
                        "cumulative": channel.voucher.cumulative,
                        "signature": channel.voucher.signature.hex(),
                    }
                ),
            }
            for channel in evidence.channels
        ],
    }


def evidence_from_json(value: object) -> Evidence:
    """The reverse, of what :func:`parse` gave; further keys are ignored."""
    try:
        top = _map(value, "the evidence")
        leases = _list(top, "leases")
        channels = _list(top, "channels")
        return Evidence(
            _job(top),
            tuple(_lease(_map(x, f"leases[{i}]")) for i, x in enumerate(leases)),
            tuple(_channel(_map(x, f"channels[{i}]")) for i, x in enumerate(channels)),
        )
    except EvidenceMalformed:
        raise
    except Malformed as error:
        raise EvidenceMalformed(error.message) from error


def strange_leases(value: object) -> list[str]:
    """Leases that have receipts in this evidence and no terms: their jobs shared a channel.

    What does not decode names no lease; the rules refuse it where it stands.
    """
    evidence = evidence_from_json(value)
    known = {terms.lease for one in evidence.leases if (terms := _decoded(one.signed))}
    found: dict[str, None] = {}
    for channel in evidence.channels:
        for signed in channel.receipts:
            receipt = _receipt(signed)
            if receipt is not None:
                found.setdefault(receipt.lease)
    return [lease for lease in found if lease not in known]


def told(evidence: Evidence, session_vk: bytes, lease: str = "") -> str:
    """Which receipts of a channel (of *lease*) hang on what was refused, in words, as far as they
    decode.
    """
    of_channel = [c for c in evidence.channels if c.session_vk == session_vk]
    found = [r for c in of_channel for signed in c.receipts if (r := _receipt(signed))]
    seqs = sorted({r.seq for r in found if not lease or r.lease == lease})
    if len(seqs) < 2:
        return f"receipt {seqs[0]}" if seqs else "no receipt"
    return f"receipts {seqs[0]} to {seqs[-1]}"


def _decoded(signed: SignedTerms) -> Terms | None:
    try:
        return signed.terms
    except Refusal:
        return None


def _receipt(signed: SignedReceipt) -> Receipt | None:
    try:
        return signed.receipt
    except Malformed:
        return None


def _job(top: Mapping[str, Any]) -> str:
    job = want_text(top.get("job"), "job", 64)
    if not job:
        raise EvidenceMalformed("job is empty")
    return job


def _lease(row: Mapping[str, Any]) -> LeaseEvidence:
    consumer = _bytes(row, "session_signature", 64, or_none=True)
    signed = SignedTerms(
        _body(row, "terms"), _bytes(row, "adapter_signature", 64), consumer or None
    )
    return LeaseEvidence(_bytes(row, "channel", 32), signed)


def _channel(row: Mapping[str, Any]) -> ChannelEvidence:
    session_vk = _bytes(row, "session_vk", 32)
    receipts = [_map(x, f"receipts[{i}]") for i, x in enumerate(_list(row, "receipts"))]
    return ChannelEvidence(
        session_vk=session_vk,
        open_tx=_bytes(row, "open_tx", 32, or_none=True).hex(),
        index=want_int(row.get("index", 0), "index", 0, 65_535),
        receipts=tuple(
            SignedReceipt(_body(r, "body"), _bytes(r, "signature", 64)) for r in receipts
        ),
        voucher=_voucher(row.get("voucher"), session_vk),
    )


def _voucher(value: object, session_vk: bytes) -> Voucher | None:
    if value is None:
        return None
    row = _map(value, "voucher")
    cumulative = want_int(row.get("cumulative"), "cumulative", 0, MAX_CUMULATIVE)
    return Voucher(session_vk, cumulative, _bytes(row, "signature", 64))


def _body(row: Mapping[str, Any], name: str) -> bytes:
    found = _hex(row, name)
    if not found or len(found) > MOST_BODY:
        raise EvidenceMalformed(f"{name} is not 1 to {MOST_BODY} bytes")
    return found


def _bytes(row: Mapping[str, Any], name: str, length: int, *, or_none: bool = False) -> bytes:
    found = _hex(row, name)
    if len(found) != length and not (or_none and not found):
        raise EvidenceMalformed(f"{name} is not {length} bytes")
    return found


def _hex(row: Mapping[str, Any], name: str) -> bytes:
    value = row.get(name)
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise EvidenceMalformed(f"{name} is not lower-case hex")
    return bytes.fromhex(value)


def _map(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise EvidenceMalformed(f"{name} is not an object")
    return cast("dict[str, Any]", value)


def _list(row: Mapping[str, Any], name: str) -> list[object]:
    value = row.get(name)
    if not isinstance(value, list):
        raise EvidenceMalformed(f"{name} is not a list")
    return cast("list[object]", value)
