"""A bill as a spreadsheet: it adds up, and none of a provider's words is a formula."""

from __future__ import annotations

import csv
import io

from marketplace.console.bill_csv import HEAD, bill_csv
from tests.unit.support.payer import signed_terms, terms


def test_the_rows_add_up_and_no_cell_is_a_formula() -> None:
    agreed = terms()
    lease = {
        "lease": agreed.lease, "device": '=HYPERLINK("http://evil")',
        "terms": signed_terms(agreed).body.hex(),
    }  # fmt: skip
    receipts = [
        {"lease": agreed.lease, "at_ms": 1_800_000_000_000 + n * 1000, "unit_ms": 1000 * n,
         "lease_owed": 2000 * n}
        for n in (1, 2, 3)
    ]  # fmt: skip
    another = {"lease": "lease_9", "at_ms": 0, "unit_ms": 9, "lease_owed": 10**9}
    view = {
        "id": "job_1",
        "transactions": [
            {"id": "ab" * 32, "kind": "open", "state": "SEEN", "fee": 174_433},
            {"id": "cd" * 32, "kind": "open", "state": "EXPIRED", "fee": 999},
            {"id": "ef" * 32, "kind": "finish", "state": "SUBMITTED", "fee": 0},
        ],
    }
    bill = {"leases": [lease], "channels": [{"receipts": [*receipts, another]}]}
    rows = list(csv.reader(io.StringIO(bill_csv(view, bill))))
    assert tuple(rows[0]) == HEAD
    assert [row[0] for row in rows[1:]] == ["lease", "network fee: open", "total"]
    assert [int(row[-2]) for row in rows[1:]] == [6000, 174_433, 180_433]
    assert rows[-1][-1] == "0.180433"
    assert rows[1][2].startswith("'=")
