"""One job's bill over a hop that carries other jobs: what it proves, and what a router can hide
behind leaves that it does not show.
"""

from __future__ import annotations

from typing import Any

import pytest

from marketplace.domain.money.evidence import read
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.invoice.refusals import ClaimWrong
from marketplace.domain.money.invoice.verify import reconcile
from tests.unit.support import routed as R
from tests.unit.support.golden_invoices import facts
from tests.unit.support.invoice import Case

SHOWN, AHEAD = 29_020, 5_000
"""The router's 25,000 and job 1's 4,020; what job 2's lease was signed for, which owes 2."""


def bill(case: Case) -> Invoice:
    return reconcile(read(case.json()), [facts(row) for row in case.ledger])


def taken(claimed: int, *, shown: bool) -> Case:
    """The consumer's hop, ended with *claimed*: job 2's lease was signed ahead on it, and is in the
    evidence if *shown*.
    """
    case = R.routed(out=False, blind=False, claimed=(claimed, 0), facts=(R.ended(claimed), {}))
    R.releaf(case.evidence, 0, 2, AHEAD)
    if not shown:
        for part in ("leases", "channels"):
            del case.evidence[part][1]
        del case.ledger[1]
    return case


@pytest.mark.parametrize("others", [0, 2, 777, AHEAD])
def test_a_jobs_own_part_reconciles_and_the_rest_is_an_amount(others: int) -> None:
    found = bill(taken(SHOWN + others, shown=False))
    (hop,) = found.hops
    assert found.reconciled and found.unshown == others
    assert (hop.due - hop.blind, hop.blind, hop.unshown) == (SHOWN, AHEAD, others)
    assert found.owed + found.route_fee == 4020


def test_what_a_router_takes_behind_a_blind_leaf_is_stated_and_refused_where_it_is_shown() -> None:
    """It claims all that was signed ahead for job 2. Job 1's bill says how much it does not show;
    with job 2's lease beside it the same claim breaks I7.
    """
    assert bill(taken(SHOWN + AHEAD, shown=False)).unshown == AHEAD
    with pytest.raises(ClaimWrong) as wrong:
        bill(taken(SHOWN + AHEAD, shown=True))
    assert (wrong.value.way, wrong.value.fields["over_claimed"]) == ("hop_due", AHEAD - 2)
    whole = bill(taken(SHOWN + 2, shown=True))
    assert whole.reconciled and whole.unshown == 0


@pytest.mark.parametrize(
    ("claimed", "way"), [(SHOWN + AHEAD + 1, "hop_signed"), (SHOWN - 1, "hop_ended")]
)
def test_a_blind_leaf_widens_no_bound(claimed: int, way: str) -> None:
    """Not a lovelace beyond what was signed for others, nor one less than this job's due."""
    with pytest.raises(ClaimWrong) as wrong:
        bill(taken(claimed, shown=False))
    assert wrong.value.way == way


def test_what_this_job_was_signed_ahead_hides_behind_no_other_leaf() -> None:
    """Its own leaf is 5,000 beyond its due: a claim of it all is more than the other leaf holds."""
    case = taken(SHOWN + AHEAD + 5_000, shown=False)
    R.releaf(case.evidence, 0, 1, 4_020 + 5_000)
    with pytest.raises(ClaimWrong) as wrong:
        bill(case)
    assert wrong.value.way == "hop_due"


def test_a_hop_that_is_open_or_unasked_reconciles_nothing() -> None:
    def change(**more: Any) -> Case:
        case = taken(SHOWN, shown=False)
        row = case.ledger[1]
        assert row is not None
        row.update(more)
        return case

    still = bill(change(claimed=1_000, refunded=0, held=20_000_000 - 1_000, ended=False))
    assert not still.reconciled and still.unshown == 0
    unasked = taken(SHOWN, shown=False)
    unasked.ledger[1] = None
    assert not bill(unasked).reconciled and bill(unasked).hops[0].unshown is None
