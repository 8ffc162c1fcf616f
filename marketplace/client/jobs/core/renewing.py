"""What a market says of a renewal, held against what was agreed.  Pure."""

from __future__ import annotations

from marketplace.client.jobs.core.quotes import QuoteRefused
from marketplace.client.net.renewed import RenewedAnswer
from marketplace.domain.errors import Fault, Refusal
from marketplace.domain.money import renewal
from marketplace.domain.money.terms import SignedTerms, Terms


class RenewalDeclined(Refusal):
    """The provider will not go on with the lease."""

    code = "RENEWAL_DECLINED"
    remedy = "it runs until its agreed end; take another provider, or post the job again then"


class RenewalUnanswered(Fault):
    """The provider has not said yet whether it goes on."""

    code = "RENEWAL_UNANSWERED"
    remedy = "ask again: nothing was signed"


def checked(known: Terms, told: RenewedAnswer, duration_ms: int, budget: int) -> SignedTerms:
    """What the provider signed, if it is *known* for at most *duration_ms* and *budget* lovelace
    more. RenewalDeclined, RenewalUnanswered, RenewalRefused, TermsRefused, Malformed,
    QuoteRefused.
    """
    offered = told["renewal"]
    if offered is None and told["renewal_refused"]:
        raise RenewalDeclined(told["renewal_refused"])
    if offered is None:
        raise RenewalUnanswered(f"the provider of {known.lease} did not answer in time")
    try:
        body, by = bytes.fromhex(offered["terms"]), bytes.fromhex(offered["adapter_signature"])
    except ValueError:
        raise QuoteRefused("the renewed terms are no hex") from None
    signed = SignedTerms(body, by)
    terms = signed.verify_adapter()
    renewal.check(known, terms)
    longest = known.max_duration_ms + duration_ms
    if terms.max_duration_ms > longest or terms.ceiling > known.ceiling + budget:
        raise QuoteRefused("the renewed terms are for more than was asked for")
    return signed
