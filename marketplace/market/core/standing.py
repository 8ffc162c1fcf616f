"""What is held against an account, an address or a provider, and how it fades.  Pure."""

from __future__ import annotations

from dataclasses import replace

from marketplace.market.base.records import Standing
from marketplace.market.base.settings import Settings


def wait_ms(settings: Settings, known: Standing, now: int) -> int:
    """How long is to be waited since the last unpaid end."""
    if not known.strikes:
        return 0
    wait = settings.unpaid_wait_ms << min(known.strikes - 1, 20)
    return max(0, known.last_ms + min(wait, settings.unpaid_wait_most_ms) - now)


def most_quotes(settings: Settings, known: Standing, now: int) -> int:
    """So many quotes may be open at once: each channel that paid doubles it, each lapse halves it,
    and one is always left.
    """
    most = settings.quotes_new
    if known.paid:
        most = min(most << min(known.paid, 20), max(most, settings.quotes_paying))
    return max(1, most >> min(_faded(settings, known, known.lapses, now), 20))


def _faded(settings: Settings, known: Standing, number: int, now: int) -> int:
    return max(0, number - max(0, now - known.last_ms) // settings.unpaid_forget_ms)


def struck(settings: Settings, known: Standing, now: int, owing: str = "") -> Standing:
    """After a lease that ended unpaid."""
    strikes = _faded(settings, known, known.strikes, now) + 1
    lapses = _faded(settings, known, known.lapses, now)
    more = [owing] if owing and owing not in known.owing else []
    return replace(
        known, strikes=strikes, lapses=lapses, last_ms=now, owing=[*known.owing, *more][-100:]
    )


def lapsed(settings: Settings, known: Standing, now: int) -> Standing:
    """After a quote that lapsed, or a lease that was signed and never funded."""
    if wait_ms(settings, known, now):  # the wait that lasts is not begun anew by it
        return replace(known, lapses=known.lapses + 1)
    lapses = _faded(settings, known, known.lapses, now) + 1
    strikes = _faded(settings, known, known.strikes, now)
    return replace(known, lapses=lapses, strikes=strikes, last_ms=now)


def address_limited(known: Standing) -> str:
    """The address that an account's quotes count at: only those of accounts that never paid do, or
    who pays would use up the places of a newcomer behind the same router."""
    return "" if known.paid else known.address


def owes(known: Standing, lease: str) -> Standing:
    """After the last receipt of a lease that is over has had no answer for a while."""
    if lease in known.owing:
        return known
    return replace(known, owing=[*known.owing, lease][-100:])


def quote_ttl_ms(settings: Settings, known: Standing) -> int:
    """How long a quote of this account stands."""
    most = settings.quote_ttl_ms
    return most if known.paid else min(most, settings.quote_ttl_new_ms)
