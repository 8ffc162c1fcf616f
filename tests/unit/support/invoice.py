"""Evidence on paper: what two jobs' leases on shared channels leave behind, and hands that bend it.

Evidence is the plain JSON value of ``docs/invoice.md``; a hand that holds the keys signs again what
it changed, so that the lie is found by the rule that guards against it and by no earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cbor2

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Lost
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.voucher import voucher_message
from tests.unit.support.payer import ADAPTER, SESSION, Paper, terms

OTHER_SESSION: Final = Signer(b"\x09" * 32)
KEYS: Final = {one.verify_key: one for one in (ADAPTER, SESSION, OTHER_SESSION)}

# positions in the signed arrays, 0 being the tag
TERMS: Final = {
    "lease": 2, "job": 3, "adapter_vk": 6, "payout": 8, "session_vk": 9, "resource": 11, "rate_micro": 12,
    "units_milli": 13, "tick_ms": 14, "fee_bps": 18, "ceiling": 19, "asset": 21, "devices": 23, "magic": 1,
}  # fmt: skip
RECEIPT: Final = {
    "session_vk": 1, "lease": 2, "seq": 3, "t0_ms": 4, "t1_ms": 5, "device": 7, "resource": 8,
    "unit_ms_total": 9, "lease_owed": 10, "channel_owed": 11, "lost": 12, "readings": 13, "previous": 14,
    "final": 15,
}  # fmt: skip


@dataclass
class Case:
    """Evidence (a JSON value, or its text) and what the ledger says of each of its channels."""

    evidence: Any
    ledger: list[dict[str, Any] | None]
    text: str | None = None

    def json(self) -> str:
        """The evidence's text."""
        return self.text if self.text is not None else json.dumps(self.evidence)


def lease_row(agreed: Terms, session: Signer) -> dict[str, Any]:
    """A row of ``leases``."""
    body = agreed.encode()
    return {
        "channel": agreed.session_vk.hex(), "terms": body.hex(),
        "adapter_signature": ADAPTER.sign(body).hex(), "session_signature": session.sign(body).hex(),
    }  # fmt: skip


def channel_row(paper: Paper, session: Signer, signed: int | None, tx: str) -> dict[str, Any]:
    """A row of ``channels``; *signed* is what its voucher holds."""
    return {
        "session_vk": session.verify_key.hex(), "open_tx": tx, "index": 0,
        "receipts": [{"body": r.body.hex(), "signature": r.signature.hex()} for r in paper.sent],
        "voucher": None if signed is None else voucher_row(session, signed),
    }  # fmt: skip


def voucher_row(session: Signer, cumulative: int) -> dict[str, Any]:
    """A channel's ``voucher``."""
    signature = session.sign(voucher_message(cumulative))
    return {"cumulative": cumulative, "signature": signature.hex()}


def ledger_row(
    agreed: Terms, claimed: int, funded: int = 12_000_000, **more: Any
) -> dict[str, Any]:
    """What the ledger says of a channel that ended as it should."""
    c = agreed.consts()
    consts = [c.session_vk.hex(), c.adapter_vkh.hex(), c.payout.hex(), c.consumer_vkh.hex(),
              c.close_period_ms, c.fee_bps]  # fmt: skip
    return {
        "session_vk": c.session_vk.hex(), "consts": consts, "funded": funded, "claimed": claimed,
        "refunded": funded - claimed, "held": 0, "ended": True, **more,
    }  # fmt: skip


ONE: Final = terms()
TWO: Final = terms("lease_2", job="job_2", rate_micro=1_234_567)
RETRY: Final = terms("lease_3", session_vk=OTHER_SESSION.verify_key, ceiling=4_000_000)


def whole() -> Case:
    """Two jobs on one channel (the first lost 250 ms to a GPU fault), and the first job's retry on
    another: 4,101 and 4,000 lovelace, all of it signed for and claimed."""
    paper, retry = Paper(), Paper()
    paper.tick(ONE, 1000)
    paper.tick(TWO, 1000)
    paper.tick(ONE, 1000, billed=750, lost=(Lost("gpu_lost", 250),))
    paper.tick(TWO, 500, final=True)
    paper.tick(ONE, 300, final=True)
    retry.tick(RETRY, 2000, final=True)
    evidence = {
        "job": "job_1",
        "leases": [
            lease_row(ONE, SESSION), lease_row(TWO, SESSION), lease_row(RETRY, OTHER_SESSION),
        ],
        "channels": [
            channel_row(paper, SESSION, 4101, "ab" * 32),
            channel_row(retry, OTHER_SESSION, 4000, "cd" * 32),
        ],
    }  # fmt: skip
    return Case(evidence, [ledger_row(ONE, 4101), ledger_row(RETRY, 4000)])


# --- hands that bend ------------------------------------------------------------------------------


def small() -> Case:
    """One lease, one receipt: enough to break a form."""
    paper = Paper()
    paper.tick(ONE, 1000, final=True)
    evidence = {
        "job": "job_1", "leases": [lease_row(ONE, SESSION)],
        "channels": [channel_row(paper, SESSION, 2000, "ab" * 32)],
    }  # fmt: skip
    return Case(evidence, [None])


def bend(work: Callable[[Any], object], base: Callable[[], Case] = whole) -> Case:
    """The case of *base* with *work* done to its evidence."""
    case = base()
    work(case.evidence)
    return case


def on_ledger(channel: int = 0, **change: Any) -> Case:
    """The whole case, and the ledger says otherwise."""
    case = whole()
    facts = case.ledger[channel]
    assert facts is not None
    facts.update(change)
    return case


def opened(row: dict[str, Any], name: str) -> list[Any]:
    """The fields of a signed body."""
    return list(cbor2.loads(bytes.fromhex(row[name])))


def sign_terms(row: dict[str, Any], fields: list[Any], body: bytes | None = None) -> None:
    """Both sides sign *fields* (or exactly *body*)."""
    body = cbor2.dumps(fields, canonical=True) if body is None else body
    session = KEYS.get(fields[9] if isinstance(fields[9], bytes) else b"", SESSION)
    row["terms"] = body.hex()
    row["adapter_signature"] = ADAPTER.sign(body).hex()
    row["session_signature"] = session.sign(body).hex()


def sign_receipt(row: dict[str, Any], fields: list[Any], body: bytes | None = None) -> None:
    """The adapter signs *fields* (or exactly *body*)."""
    body = cbor2.dumps(fields, canonical=True) if body is None else body
    row["body"], row["signature"] = body.hex(), ADAPTER.sign(body).hex()


def retell(evidence: Any, index: int, /, **change: Any) -> None:
    """Terms with other fields, signed by both."""
    row = evidence["leases"][index]
    fields = opened(row, "terms")
    for name, value in change.items():
        fields[TERMS[name]] = value
    sign_terms(row, fields)


def restate(evidence: Any, index: int, /, chained: bool = True, **change: Any) -> None:
    """A receipt of the first channel with other fields, signed; *chained*: those behind it follow
    its hash.
    """
    rows = evidence["channels"][0]["receipts"]
    fields = opened(rows[index], "body")
    for name, value in change.items():
        fields[RECEIPT[name]] = value
    sign_receipt(rows[index], fields)
    if chained:
        rechain(rows, index + 1)


def rechain(rows: list[Any], start: int) -> None:
    """From *start* on, every receipt follows the hash of the one before."""
    for row, after in zip(rows[max(start - 1, 0) :], rows[max(start, 1) :], strict=False):
        fields = opened(after, "body")
        fields[RECEIPT["previous"]] = blake2b_256(bytes.fromhex(row["body"]))
        sign_receipt(after, fields)


def longer(data: str) -> str:
    """A body whose array has an open end: the same value in another encoding."""
    raw = bytes.fromhex(data)
    length = 2 if raw[0] == 0x98 else 1  # 0x98 n, or 0x8n / 0x90
    return (b"\x9f" + raw[length:] + b"\xff").hex()
