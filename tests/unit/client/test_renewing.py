"""What a payer signs of a renewal: the market relays it and is believed nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from marketplace.client.jobs.core.agreeing import lacking
from marketplace.client.jobs.core.quotes import QuoteRefused
from marketplace.client.jobs.core.renewing import RenewalDeclined, RenewalUnanswered, checked
from marketplace.client.net.renewed import RenewalAnswer, RenewedAnswer
from marketplace.client.payer.decide import Book, LeaseBook
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.money.renewal import RenewalRefused, renewed
from marketplace.domain.money.terms import Terms, TermsRefused
from tests.unit.support.adapter import ADAPTER, OTHER_SESSION, core_job, offer, terms_for

HOUR_MS = 3_600_000
BUDGET = 10**12
KNOWN = terms_for(offer(), core_job())
LONGER = renewed(KNOWN, HOUR_MS, BUDGET, KNOWN.expires_at_ms + HOUR_MS)


def told(terms: Terms, signer: Signer = ADAPTER) -> RenewedAnswer:
    """What an honest market relays of *terms*, signed by *signer*."""
    body = terms.encode()
    by = signer.sign(body).hex()
    return _answer({"terms": body.hex(), "adapter_signature": by})


def _answer(offered: RenewalAnswer | None, refused: str = "") -> RenewedAnswer:
    return {"terms": KNOWN.encode().hex(), "renewal": offered, "renewal_refused": refused}


def test_the_same_terms_for_longer_are_taken() -> None:
    signed = checked(KNOWN, told(LONGER), HOUR_MS, BUDGET)
    assert signed.terms == LONGER


def test_terms_of_which_nobody_heard_are_signed_for_again() -> None:
    """The payer died between its own book and the market: the market asks by the older terms."""
    again = replace(LONGER, expires_at_ms=LONGER.expires_at_ms + 1)
    assert checked(LONGER, told(again), HOUR_MS, BUDGET).terms == again


@pytest.mark.parametrize(
    "changes",
    [
        {"rate_micro": KNOWN.rate_micro + 1},
        {"adapter_vk": OTHER_SESSION.verify_key},
        {"payout": b"\x01" * 28},
        {"lease": "lease_2"},
        {"max_duration_ms": KNOWN.max_duration_ms - 1},
        {"units_milli": KNOWN.units_milli * 2},
        {"fee_bps": KNOWN.fee_bps + 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_terms_are_refused(changes: dict[str, Any]) -> None:
    other = replace(LONGER, **changes)
    signer = OTHER_SESSION if "adapter_vk" in changes else ADAPTER
    with pytest.raises(RenewalRefused):
        checked(KNOWN, told(other, signer), HOUR_MS, BUDGET)


def test_more_than_was_asked_for_is_refused() -> None:
    for wrong in (
        renewed(KNOWN, 2 * HOUR_MS, BUDGET, LONGER.expires_at_ms),
        replace(LONGER, max_duration_ms=LONGER.max_duration_ms + 1),
    ):
        with pytest.raises(QuoteRefused):
            checked(KNOWN, told(wrong), HOUR_MS, BUDGET)
    with pytest.raises(QuoteRefused):
        checked(KNOWN, told(LONGER), HOUR_MS, LONGER.ceiling - KNOWN.ceiling - 1)


def test_a_signature_that_a_market_made_up_is_refused() -> None:
    with pytest.raises(TermsRefused):
        checked(KNOWN, told(LONGER, OTHER_SESSION), HOUR_MS, BUDGET)
    for terms, signature in (("zz", "00"), ("00", "zz")):
        lie = _answer({"terms": terms, "adapter_signature": signature})
        with pytest.raises(QuoteRefused):
            checked(KNOWN, lie, HOUR_MS, BUDGET)
    noise = _answer({"terms": "00", "adapter_signature": "00"})
    with pytest.raises(Malformed):
        checked(KNOWN, noise, HOUR_MS, BUDGET)


def test_a_no_and_no_answer_are_two_things() -> None:
    with pytest.raises(RenewalDeclined, match="PRICE_BELOW"):
        checked(KNOWN, _answer(None, "PRICE_BELOW: x"), HOUR_MS, BUDGET)
    with pytest.raises(RenewalUnanswered):
        checked(KNOWN, _answer(None), HOUR_MS, BUDGET)


def test_a_channel_is_topped_up_by_what_the_time_ahead_lacks() -> None:
    """What the lease had of its ceiling is not paid in again."""
    spent = KNOWN.ceiling // 4
    mine = LeaseBook(KNOWN, KNOWN.ceiling, approved=spent)
    book = Book(KNOWN.session_vk, {KNOWN.lease: mine}, signed=spent, capacity=KNOWN.ceiling)
    assert lacking(book, (), LONGER) == LONGER.ceiling - KNOWN.ceiling
    roomy = replace(book, capacity=LONGER.ceiling)
    assert lacking(roomy, (), LONGER) == 0
