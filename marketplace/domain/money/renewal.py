"""A lease that goes on: the same terms for longer, signed by both once more.

Nothing about a lease changes but how long it may run and what it may cost in all: price, tick, keys
and devices are those that were agreed to. So its receipts go on in their chain under either terms,
and a bill shows the newest. A market forwards the two signatures and can add nothing; whoever holds
older terms of the lease can do nothing with them that the newer ones do not allow.
"""

from __future__ import annotations

from dataclasses import replace

from marketplace.domain.errors import Refusal
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import most_owed


class RenewalRefused(Refusal):
    """Terms that are not those of the lease for longer."""

    code = "RENEWAL_REFUSED"
    remedy = "ask for the renewal again; another price needs a lease of its own"


def renewed(terms: Terms, duration_ms: int, budget: int, expires_at_ms: int) -> Terms:
    """*terms* for *duration_ms* more and at most *budget* lovelace more, to be agreed to until
    *expires_at_ms*.
    """
    longest_ms = terms.max_duration_ms + duration_ms
    most = most_owed(longest_ms, terms.units_milli, terms.rate_micro)
    return replace(
        terms,
        ceiling=min(terms.ceiling + budget, most),
        max_duration_ms=longest_ms,
        expires_at_ms=expires_at_ms,
    )


def check(old: Terms, new: Terms) -> None:
    """:class:`RenewalRefused` unless *new* is *old* for as long or longer, at the same price. (As
    long: a payer that died signed terms of which nobody heard, and signs for their length again.)
    """
    most = most_owed(new.max_duration_ms, new.units_milli, new.rate_micro)
    alike = replace(
        new,
        ceiling=old.ceiling,
        max_duration_ms=old.max_duration_ms,
        expires_at_ms=old.expires_at_ms,
    )
    rules = (
        (alike == old, "more than time, ceiling and expiry differs from what was agreed"),
        (new.max_duration_ms >= old.max_duration_ms, "it would end earlier"),
        (new.ceiling >= old.ceiling, "it could pay less"),
        (new.ceiling <= max(most, old.ceiling + new.tick_owed()), "it may cost too much"),
    )
    for holds, why in rules:
        if not holds:
            raise RenewalRefused(why, lease=old.lease)
