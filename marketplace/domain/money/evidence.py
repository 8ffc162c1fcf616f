"""What an invoice is made from, and the form in which it travels: ``docs/invoice.md``, "The
evidence".

``read(text)`` takes the JSON of a file or a market; it checks every field's type and limit and no
signature. What it refuses is :class:`EvidenceMalformed`; what it lets pass is judged by
:mod:`marketplace.domain.money.invoice.verify`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marketplace.domain import strictjson
from marketplace.domain.canonical import want_int, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.evidence_fields import (
    EvidenceMalformed,
    a_body,
    a_list,
    a_map,
    a_signed,
    a_voucher,
    some_bytes,
)
from marketplace.domain.money.receipt import Receipt, SignedReceipt
from marketplace.domain.money.route.evidence import (
    HopEvidence,
    RouteEvidence,
    hop_json,
    hop_of,
    route_json,
    route_of,
)
from marketplace.domain.money.route.terms import RoutedTerms, is_routed
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import Voucher


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
    """One lease: the *channel* (a session key) that it is said to be on, and its signed terms.

    A routed lease has a *route*; its channel is a chain of receipts alone, under its own key.
    """

    channel: bytes
    signed: SignedTerms
    route: RouteEvidence | None = None


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
    hops: tuple[HopEvidence, ...] = ()


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
                **({"route": route_json(lease.route)} if lease.route else {}),
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
        **({"hops": [hop_json(hop) for hop in evidence.hops]} if evidence.hops else {}),
    }


def evidence_from_json(value: object) -> Evidence:
    """The reverse, of what :func:`parse` gave; further keys are ignored."""
    try:
        top = a_map(value, "the evidence")
        return Evidence(
            _job(top),
            tuple(map(_lease, a_list(top, "leases"))),
            tuple(map(_channel, a_list(top, "channels"))),
            tuple(map(hop_of, a_list(top, "hops"))) if top.get("hops") is not None else (),
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
        if is_routed(signed.body):
            return RoutedTerms.decode(signed.body).terms
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
    consumer = some_bytes(row, "session_signature", 64, or_none=True)
    signed = SignedTerms(
        a_body(row, "terms"), some_bytes(row, "adapter_signature", 64), consumer or None
    )
    return LeaseEvidence(some_bytes(row, "channel", 32), signed, route_of(row.get("route")))


def _channel(row: Mapping[str, Any]) -> ChannelEvidence:
    session_vk = some_bytes(row, "session_vk", 32)
    return ChannelEvidence(
        session_vk=session_vk,
        open_tx=some_bytes(row, "open_tx", 32, or_none=True).hex(),
        index=want_int(row.get("index", 0), "index", 0, 65_535),
        receipts=tuple(SignedReceipt(*a_signed(r, "receipt")) for r in a_list(row, "receipts")),
        voucher=a_voucher(row.get("voucher"), session_vk),
    )
