"""The bill: what reconciles, and which rule each lie breaks. The golden vectors are for other
verifiers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marketplace.domain.money.evidence import (
    EvidenceMalformed,
    evidence_from_json,
    evidence_to_json,
    parse,
    read,
    strange_leases,
)
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.invoice.refusals import InvoiceRefused, JobDiffers, TermsNotSigned
from marketplace.domain.money.invoice.verify import asked, reconcile
from tests.unit.support.browser_verifier import browser_says
from tests.unit.support.golden_invoices import (
    HOLD,
    ahead,
    answer,
    breaks,
    facts,
    paid_short,
    vectors,
)
from tests.unit.support.invoice import SESSION, Case, bend, whole
from tests.unit.support.page import PAGE, table

GOLDEN = Path(__file__).parents[2] / "golden" / "invoices.json"
BREAKS = list(breaks())
WHERE = re.compile(r"(?s)(?=.*channel [0-9a-f]{16})(?=.*lease)(?=.*receipt)")


def bill(case: Case) -> Invoice:
    return reconcile(read(case.json()), [facts(row) for row in case.ledger])


def refusal(case: Case) -> InvoiceRefused | EvidenceMalformed:
    with pytest.raises((InvoiceRefused, EvidenceMalformed)) as caught:
        bill(case)
    return caught.value


def test_a_bill_over_a_shared_channel_and_a_retry() -> None:
    found = bill(whole())
    first, second = found.lines
    assert (first.lease, first.unit_ms, first.owed, first.ticks) == ("lease_1", 2050, 4100, 3)
    assert [(lost.cause, lost.ms) for lost in first.lost] == [("gpu_lost", 250)]
    assert (second.lease, second.owed) == ("lease_3", 4000)
    assert found.owed == 8100 and found.reconciled and found.unsigned == 0
    assert [total.owed for total in found.channels] == [4101, 4000]  # 1 lovelace is job_2's


def test_what_was_delivered_and_not_signed_is_shown_and_is_no_fault() -> None:
    found = bill(paid_short())
    assert found.unsigned == 4101 - 2100 and found.reconciled


def test_what_was_signed_ahead_is_an_allowance_and_no_due() -> None:
    found = bill(ahead())
    assert found.reconciled and (found.ahead, found.unsigned, found.owed) == (4899, 0, 8100)
    wrong = refusal(ahead(9000))  # an adapter that takes all of it
    assert isinstance(wrong, InvoiceRefused) and wrong.rule == "I7"
    assert {k: wrong.fields[k] for k in ("over_claimed", "delivered", "ahead")} == {
        "over_claimed": 4899, "delivered": 4101, "ahead": 4899,
    }  # fmt: skip
    assert "over-claimed 4899" in wrong.message


@pytest.mark.parametrize(("row", "name", "make"), BREAKS, ids=[f"{r}-{n}" for r, n, _ in BREAKS])
def test_each_lie_breaks_the_rule_that_guards_against_it(
    row: str, name: str, make: Callable[[], Case]
) -> None:
    wrong = refusal(make())
    assert wrong.code.startswith("INVOICE_") and wrong.remedy
    if isinstance(wrong, EvidenceMalformed):
        assert row == "MALFORMED.form" and "tally invoice" in wrong.remedy
        return
    assert f"{wrong.rule}.{wrong.way}" == row
    assert WHERE.search(wrong.message), wrong.message
    if wrong.rule in ("I3", "I4", "I5", "I6", "I7", "I8", "I9"):
        assert re.search(r"receipts? \d+|no receipt", wrong.message)
        assert len(str(wrong.fields["channel"])) == 64
        assert isinstance(wrong.fields["receipt"], int)


def test_the_browser_names_the_same_rule_and_says_where() -> None:
    cases = [(row, make()) for row, _, make in BREAKS] + [("", make()) for make in HOLD.values()]
    said = browser_says((case.json(), case.ledger) for _, case in cases)
    for (row, case), answered in zip(cases, said, strict=True):
        if answered["rule"] == "MALFORMED":
            assert row == "MALFORMED.form"
        elif row:
            assert f"{answered['rule']}.{answered['way']}" == row, answered
            assert WHERE.search(answered["text"]), answered
            if row[:2] in ("I3", "I4", "I5", "I6", "I7", "I8", "I9"):
                assert re.search(r"receipts? \d+|no receipt", answered["text"])
        else:
            assert answered["bill"] == answer(case)


def test_the_golden_vectors_are_what_this_code_says() -> None:
    """Regenerate with TALLY_GOLDEN=write after reading the diff: every other verifier relies on
    it.
    """
    made = json.loads(json.dumps(vectors()))
    if os.environ.get("TALLY_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(made, indent=1) + "\n")
    assert json.loads(GOLDEN.read_text()) == made


def test_every_row_of_the_page_has_its_vectors_and_every_vector_its_row() -> None:
    rows = {f"{row['rule']}.{row['way']}" for row in table("step")}
    vectors = json.loads(GOLDEN.read_text())
    broken = {f"{one['rule']}.{one['way']}" for one in vectors if one["rule"]}
    assert rows == broken and len(rows) > 30
    codes = {row["rule"]: row["code"] for row in table("rule")}
    kinds = {kind.rule: kind.code for kind in InvoiceRefused.__subclasses__()}
    assert codes == {**kinds, "MALFORMED": EvidenceMalformed.code}


TAMPERED = {  # how an auditor bent real bills, and the vector that does the same
    "a bit of a signature": "I3.signature: one bit of its signature",
    "a changed number": "I3.signature: a number changed after it was signed",
    "invented lost time": "I3.signature: lost time invented after it was signed",
    "S + L": "I3.signature: another form of its signature",
    "order": "I4.seq: order exchanged",
    "first dropped": "I4.seq: the first is missing",
    "middle dropped": "I4.seq: one in the middle is missing",
    "last dropped": "I7.delivered: the last receipt is missing",
    "receipts empty": "I7.delivered: all receipts are missing",
    "receipts null": "MALFORMED.form: channel.receipts is null",
    "duplicate inserted": "I4.seq: one stands twice",
    "duplicate appended": "I4.seq: the last stands twice",
    "foreign receipt": "I3.channel: another channel's receipt",
    "foreign voucher": "I6.signature: another channel's key",
    "voucher raised": "I6.signature: raised",
    "voucher lowered": "I6.signature: lowered",
    "voucher dropped": "I7.signed: claimed without a voucher",
    "rate": "I4.owed: another rate in the terms",
    "ceiling": "I5.ceiling: above its ceiling",
    "payout": "I2.ledger: another payout",
    "terms dropped": "I3.lease: no terms of its lease",
    "terms twice": "I1.twice: the same terms twice",
    "signatures exchanged": "I1.adapter: the provider's signature of other terms",
    "signature empty": "I1.session: the consumer did not sign",
    "another session key": "I2.named: terms of another session key",
    "not canonical": "I3.receipt: not canonical",
    "a trailing byte": "I3.receipt: a byte follows",
    "cumulative as text": 'MALFORMED.form: voucher.cumulative is "4101"',
    "cumulative as a float": "MALFORMED.form: a float",
    "cumulative negative": "MALFORMED.form: voucher.cumulative is -1",
    "cumulative too large": "MALFORMED.form: voucher.cumulative is 9223372036854775808",
    "a short signature": 'MALFORMED.form: receipt.signature is "' + "ab" * 11 + "a",
    "no channels": "I2.absent: all channels are missing",
    "a cut file": "MALFORMED.form: cut",
    "a list": "MALFORMED.form: a list",
    "the other job's receipts left out": "I4.seq: the other job's are left out",
    "the channel twice": "I2.twice: a channel stands twice",
    "the channel dropped": "I2.absent: the first channel is missing",
    "the channel dropped by a second key": "MALFORMED.form: a second key of the same name",
    "one lease on two channels": "I1.twice: one lease on two channels",
    "the job renamed": "I10.job: the job is renamed",
    "hex with spaces": 'MALFORMED.form: lease.channel is "' + "ab " * 7 + "ab",
    "an hour in a second": "I9.total: an hour in a second",
}


def test_each_way_in_which_an_auditor_bent_real_bills_is_a_vector() -> None:
    names = {f"{row}: {name}" for row, name, _ in BREAKS}
    assert set(TAMPERED.values()) <= names, set(TAMPERED.values()) - names


def test_every_field_of_the_page_has_vectors_that_break_it() -> None:
    names = {one["name"] for one in json.loads(GOLDEN.read_text())}
    for row in table("object"):
        of = "" if row["object"] == "evidence" else f"{row['object']}."
        assert any(n.startswith(f"MALFORMED.form: {of}{row['field']} is") for n in names), row


def test_the_causes_of_the_page_are_those_that_can_occur() -> None:
    from marketplace.domain.metering.reading import Cause

    assert {row["cause"] for row in table("cause")} == {c.value for c in Cause}
    assert PAGE.is_file()


def test_evidence_survives_json_and_says_which_terms_are_missing() -> None:
    text = whole().json()
    assert evidence_to_json(read(text)) == json.loads(text)
    value = bend(lambda e: e["leases"].__delitem__(1)).evidence
    assert strange_leases(parse(text)) == [] and strange_leases(value) == ["lease_2"]
    assert read(json.dumps(value)) == evidence_from_json(value)


def test_an_answer_about_another_job_is_refused() -> None:
    evidence = read(whole().json())
    assert asked(evidence, "job_1") is evidence
    with pytest.raises(JobDiffers, match=r"job_1.*job_7"):
        asked(evidence, "job_7")


def test_a_name_that_somebody_chose_does_no_harm_in_a_terminal() -> None:
    wicked = "\x1b[2Jlease\n" + "x" * 150
    wrong = refusal(bend(lambda e: _rename(e, wicked)))
    assert isinstance(wrong, TermsNotSigned)
    assert wrong.message.isprintable() and len(wrong.message) < 300


def _rename(evidence: Any, name: str) -> None:
    from tests.unit.support.invoice import retell

    retell(evidence, 0, lease=name)
    evidence["leases"][0]["session_signature"] = SESSION.sign(b"").hex()
