"""Three verifiers say the same: ours, the browser's, and one generated from the page's own
tables.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from marketplace.domain.money.evidence import EvidenceMalformed, read
from marketplace.domain.money.invoice.refusals import InvoiceRefused
from marketplace.domain.money.invoice.verify import reconcile
from tests.unit.support import bending_routes
from tests.unit.support.bending import bent, honest
from tests.unit.support.browser_verifier import browser_says
from tests.unit.support.golden_invoices import facts
from tests.unit.support.invoice import Case
from tests.unit.support.page import table
from tests.unit.support.third_verifier import judge

GOLDEN = Path(__file__).parents[2] / "golden" / "invoices.json"
BATCH = 500


def ours(case: Case) -> dict[str, Any]:
    try:
        bill = reconcile(read(case.json()), [facts(row) for row in case.ledger])
    except EvidenceMalformed:
        return {"rule": "MALFORMED", "way": "form", "bill": None}
    except InvoiceRefused as refused:
        return {"rule": refused.rule, "way": refused.way, "bill": None}
    return {"rule": "", "way": "", "bill": bill.to_json()}


def browsers(said: dict[str, Any]) -> dict[str, Any]:
    way = "form" if said["rule"] == "MALFORMED" else said["way"]
    return {"rule": said["rule"], "way": way, "bill": said.get("bill")}


def test_a_verifier_made_from_the_page_alone_is_right_about_every_golden_vector() -> None:
    for vector in json.loads(GOLDEN.read_text()):
        said = judge(vector["evidence"], vector["ledger"])
        expected = {k: vector[k] for k in ("rule", "way")} | {"bill": vector["expect"]}
        assert said == expected, vector["name"]


def test_evidence_that_nobody_bent_holds() -> None:
    dice = Random("honest")
    for number in range(200):
        case = honest(dice) if number % 2 else bending_routes.honest(dice)
        assert ours(case)["rule"] == judge(case.json(), case.ledger)["rule"] == "", case.json()


@pytest.mark.parametrize(
    "count",
    [
        100,
        pytest.param(1_000, marks=pytest.mark.prove),
        pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_three_verifiers_agree_on_bent_evidence(
    count: int, record_property: Callable[[str, object], None]
) -> None:
    dice, found = Random(f"bent {count}"), Counter[str]()
    for _ in range(0, count, BATCH):
        cases = [bent(dice) for _ in range(min(BATCH, count))]
        said = browser_says((case.json(), case.ledger) for case in cases)
        for case, browser in zip(cases, said, strict=True):
            mine = ours(case)
            assert browsers(browser) == mine, (case.json(), case.ledger, browser)
            assert judge(case.json(), case.ledger) == mine, (case.json(), case.ledger)
            found[f"{mine['rule']}.{mine['way']}" if mine["rule"] else "holds"] += 1
    record_property("verdicts", dict(found.most_common()))
    print(dict(found.most_common()))
    rows = {f"{row['rule']}.{row['way']}" for row in table("step")}
    assert found["holds"] and set(found) <= rows | {"holds"}
    if count >= 10_000:
        assert set(found) == rows | {"holds"}, rows - set(found)
