"""A quote that is not agreed to."""

from __future__ import annotations

from marketplace.domain.errors import Refusal


class QuoteRefused(Refusal):
    """The quote is not what was asked for; nothing was signed."""

    code = "QUOTE_REFUSED"
    remedy = "post the job again; if it lasts, this market does not keep to what it is asked"
