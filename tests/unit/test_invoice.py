"""The bill: what reconciles, and which rule each lie breaks. The golden vectors are for other verifiers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marketplace.domain.errors import Malformed
from marketplace.domain.invoice import (
    ChannelEvidence,
    Evidence,
    InvoiceRefused,
    LedgerFacts,
    evidence_from_json,
    evidence_to_json,
    reconcile,
    strange_leases,
)
from marketplace.domain.keys import Signer
from marketplace.domain.receipt import Lost, SignedReceipt
from marketplace.domain.terms import SignedTerms
from marketplace.domain.voucher import Voucher
from tests.unit.support_payer import ADAPTER, CONSUMER, SESSION, Paper, signed_terms, terms

GOLDEN = Path(__file__).parent.parent / "golden" / "invoices.json"
ONE = terms()
TWO = terms("lease_2", job="job_2", rate_micro=1_234_567)
SECOND_SESSION = Signer(b"\x09" * 32)
RETRY = terms("lease_3", session_vk=SECOND_SESSION.verify_key, ceiling=4_000_000)


def ledger(channel: ChannelEvidence, **more: Any) -> ChannelEvidence:
    """*channel* as it ends on the ledger when all goes well."""
    signed = channel.voucher.cumulative if channel.voucher else 0
    fields: dict[str, Any] = {
        "session_vk": channel.session_vk, "consts": channel.terms[0].terms.consts(),
        "funded": 12_000_000, "claimed": signed, "refunded": 12_000_000 - signed, "held": 0,
        "ended": True,
    }  # fmt: skip
    return replace(channel, ledger=LedgerFacts(**{**fields, **more}))


def channel(**more: Any) -> ChannelEvidence:
    """Two jobs on one channel; the first lost 250 ms to a GPU fault."""
    paper = Paper()
    paper.tick(ONE, 1000)
    paper.tick(TWO, 1000)
    paper.tick(ONE, 1000, billed=750, lost=(Lost("gpu_lost", 250),))
    paper.tick(TWO, 500, final=True)
    paper.tick(ONE, 300, final=True)
    assert paper.last is not None
    fields: dict[str, Any] = {
        "session_vk": SESSION.verify_key, "open_tx": "ab" * 32, "index": 0,
        "terms": (signed_terms(ONE), signed_terms(TWO)), "receipts": tuple(paper.sent),
        "voucher": Voucher.sign(SESSION, paper.last.channel_owed),
    }  # fmt: skip
    return ChannelEvidence(**{**fields, **more})


def retried() -> ChannelEvidence:
    """The same job's second part, on another channel."""
    paper = Paper()
    paper.tick(RETRY, 2000, final=True)
    body = RETRY.encode()
    signed = SignedTerms(body, ADAPTER.sign(body), SECOND_SESSION.sign(body))
    assert paper.last is not None
    voucher = Voucher.sign(SECOND_SESSION, paper.last.channel_owed)
    return ChannelEvidence(
        SECOND_SESSION.verify_key, "cd" * 32, 0, (signed,), tuple(paper.sent), voucher
    )


def test_a_bill_over_a_shared_channel_and_a_retry() -> None:
    bill = reconcile(Evidence("job_1", (ledger(channel()), ledger(retried()))))
    first, second = bill.lines
    assert (first.lease, first.unit_ms, first.owed, first.ticks) == ("lease_1", 2050, 4100, 3)
    assert [(lost.cause, lost.ms) for lost in first.lost] == [("gpu_lost", 250)]
    assert (second.lease, second.owed) == ("lease_3", 4000)
    assert bill.owed == 8100 and bill.reconciled and bill.unsigned == 0
    assert [total.owed for total in bill.channels] == [4101, 4000]  # 1 lovelace is job_2's
    assert [line.owed for line in reconcile(Evidence("job_2", (channel(),))).lines] == [1]


def test_what_was_delivered_and_not_signed_is_shown_and_is_no_fault() -> None:
    short = channel(voucher=Voucher.sign(SESSION, 2100))
    bill = reconcile(Evidence("job_1", (ledger(short),)))
    assert bill.unsigned == 4101 - 2100 and bill.reconciled
    nothing = reconcile(Evidence("job_1", (channel(voucher=None, receipts=()),)))
    assert nothing.lines == () and not nothing.reconciled


def ahead() -> ChannelEvidence:
    """4,101 were delivered, and 9,000 signed for before a page was closed."""
    return channel(voucher=Voucher.sign(SESSION, 9000))


def due(made: ChannelEvidence) -> ChannelEvidence:
    """*made* as it ends on the ledger: what was delivered is claimed, the allowance comes home."""
    return ledger(made, claimed=4101, refunded=12_000_000 - 4101)


def test_what_was_signed_ahead_is_an_allowance_and_no_due() -> None:
    bill = reconcile(Evidence("job_1", (due(ahead()),)))
    assert bill.reconciled and (bill.ahead, bill.unsigned, bill.owed) == (4899, 0, 4100)
    with pytest.raises(InvoiceRefused) as caught:
        reconcile(Evidence("job_1", (ledger(ahead()),)))  # an adapter that takes all of it
    assert caught.value.rule == "I7"
    assert caught.value.fields == {"over_claimed": 4899, "delivered": 4101, "ahead": 4899}
    assert "over-claimed 4899" in caught.value.message


def test_an_open_channel_holds_but_is_not_reconciled_yet() -> None:
    still = ledger(channel(), claimed=1000, refunded=0, held=11_999_000, ended=False)
    assert not reconcile(Evidence("job_1", (still,))).reconciled


def altered(at: int, **change: Any) -> tuple[SignedReceipt, ...]:
    receipts = list(channel().receipts)
    receipts[at] = SignedReceipt.sign(replace(receipts[at].receipt, **change), ADAPTER)
    return tuple(receipts)


def without(at: int) -> tuple[SignedReceipt, ...]:
    receipts = channel().receipts
    return receipts[:at] + receipts[at + 1 :]


def unsigned(name: str) -> tuple[SignedTerms, ...]:
    return (replace(signed_terms(ONE), **{name: bytes(64)}), signed_terms(TWO))


CASES: dict[str, tuple[str, Callable[[], ChannelEvidence]]] = {
    "terms: adapter did not sign": ("I1", lambda: channel(terms=unsigned("adapter_signature"))),
    "terms: consumer did not sign": ("I1", lambda: channel(terms=unsigned("session_signature"))),
    "terms: two for one lease": ("I1", lambda: channel(terms=(signed_terms(ONE), signed_terms(ONE)))),
    "channel: terms of another": ("I2", lambda: replace(channel(), session_vk=CONSUMER.verify_key)),
    "channel: another payout on the ledger": (
        "I2",
        lambda: ledger(channel(), consts=replace(ONE.consts(), payout=b"\x08" * 28)),
    ),
    "receipt: forged": (
        "I3",
        lambda: channel(receipts=(replace(channel().receipts[0], signature=bytes(64)),)),
    ),
    "receipt: lease without terms": ("I3", lambda: channel(terms=(signed_terms(ONE),))),
    "receipt: first one is missing": ("I4", lambda: channel(receipts=without(0))),
    "receipt: one in the middle is missing": ("I4", lambda: channel(receipts=without(2))),
    "receipt: order exchanged": (
        "I4",
        lambda: channel(receipts=tuple(reversed(channel().receipts))),
    ),
    "receipt: owed is not ms x rate": ("I4", lambda: channel(receipts=altered(0, lease_owed=2001, channel_owed=2001))),
    "receipt: total is not the sum": ("I4", lambda: channel(receipts=altered(1, channel_owed=9000))),
    "receipt: other devices": ("I5", lambda: channel(receipts=altered(0, device=bytes(32)))),
    "receipt: other resource": ("I5", lambda: channel(receipts=altered(0, resource="core"))),
    "voucher: forged": ("I6", lambda: channel(voucher=Voucher(SESSION.verify_key, 4101, bytes(64)))),
    "voucher: of another channel's key": ("I6", lambda: channel(voucher=replace(Voucher.sign(SECOND_SESSION, 4101), session_vk=SESSION.verify_key))),
    "ledger: more claimed than delivered, signed ahead": ("I7", lambda: ledger(ahead(), claimed=4102, refunded=11_995_898)),
    "ledger: all that was signed ahead claimed, still open": ("I7", lambda: ledger(ahead(), claimed=9000, refunded=0, held=11_991_000, ended=False)),
    "ledger: signed ahead, and ended with less than was delivered": ("I7", lambda: ledger(ahead(), claimed=4100, refunded=11_995_900)),
    "ledger: more claimed than signed": ("I7", lambda: ledger(channel(), claimed=4102, refunded=11_995_898)),
    "ledger: ended with less than was signed": ("I7", lambda: ledger(channel(), claimed=4100, refunded=11_995_900)),
    "ledger: money is missing": ("I8", lambda: ledger(channel(), refunded=11_995_898)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_lie_breaks_the_rule_that_guards_against_it(name: str) -> None:
    rule, make = CASES[name]
    with pytest.raises(InvoiceRefused) as caught:
        reconcile(Evidence("job_1", (make(),)))
    assert caught.value.rule == rule
    assert caught.value.code.startswith("INVOICE_") and caught.value.remedy


def test_a_lease_above_its_ceiling() -> None:
    tight = terms(ceiling=100)
    paper = Paper()
    paper.tick(tight, 1000)
    made = channel(terms=(signed_terms(tight),), receipts=tuple(paper.sent), voucher=None)
    with pytest.raises(InvoiceRefused) as caught:
        reconcile(Evidence("job_1", (made,)))
    assert caught.value.rule == "I5"


def test_evidence_survives_json_and_says_which_terms_are_missing() -> None:
    evidence = Evidence("job_1", (channel(), retried()))
    text = json.loads(json.dumps(evidence_to_json(evidence)))
    assert evidence_from_json(text) == evidence and strange_leases(text) == []
    text["leases"] = [row for row in text["leases"] if row["terms"] != TWO.encode().hex()]
    assert strange_leases(text) == ["lease_2"]


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"job": 1}, {"job": "j", "leases": [], "channels": [1]},
     {"job": "j", "leases": [{"terms": "zz"}], "channels": []},
     {"job": "j", "leases": [], "channels": [{"session_vk": "00", "open_tx": "", "receipts": [{}]}]}],
)  # fmt: skip
def test_evidence_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(Malformed):
        evidence_from_json(value)


def _ledger_json(facts: LedgerFacts) -> dict[str, Any]:
    c = facts.consts
    return {
        "session_vk": facts.session_vk.hex(),
        "consts": [c.session_vk.hex(), c.adapter_vkh.hex(), c.payout.hex(), c.consumer_vkh.hex(),
                   c.close_period_ms, c.fee_bps],
        "funded": facts.funded, "claimed": facts.claimed, "refunded": facts.refunded,
        "held": facts.held, "ended": facts.ended,
    }  # fmt: skip


def _vector(name: str, expect: object, *channels: ChannelEvidence) -> dict[str, Any]:
    return {
        "name": name,
        "expect": expect,
        "evidence": evidence_to_json(Evidence("job_1", channels)),
        "ledger": [_ledger_json(c.ledger) if c.ledger else None for c in channels],
    }


def vectors() -> list[dict[str, Any]]:
    """What docs/invoice.md points other verifiers to."""
    whole = (ledger(channel()), ledger(retried()))
    found = [_vector("reconciled", reconcile(Evidence("job_1", whole)).to_json(), *whole)]
    found += [
        _vector(f"signed ahead: {name}", reconcile(Evidence("job_1", (made,))).to_json(), made)
        for name, made in (("reconciled", due(ahead())), ("not asked", ahead()))
    ]
    found += [_vector(name, {"rule": rule}, make()) for name, (rule, make) in CASES.items()]
    return found


def test_the_golden_vectors_are_what_this_code_says() -> None:
    """Regenerate with TALLY_GOLDEN=write after reading the diff: every other verifier relies on it."""
    made = json.loads(json.dumps(vectors()))
    if os.environ.get("TALLY_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(made, indent=1) + "\n")
    assert json.loads(GOLDEN.read_text()) == made
