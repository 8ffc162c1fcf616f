"""A consumer's use cases for a lease that shall go on: ask its provider, and sign what it says."""

from __future__ import annotations

from typing import Final

import anyio

from marketplace.domain.errors import Malformed
from marketplace.market.accounts.access import Caller, Forbidden, audit
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Lease
from marketplace.market.context import Market
from marketplace.market.core.inputs import RenewalAsked, RenewalSigned
from marketplace.market.core.outcome import Outcome
from marketplace.market.jobs.jobs import owned_lease
from marketplace.market.lifecycle.change import change_lease

ANSWER_S: Final = 6.0
LONGEST_MS: Final = 400 * 86_400_000


async def ask(market: Market, who: Caller, lease_id: str, duration_ms: int, budget: int) -> Lease:
    """Ask the provider of a running lease for *duration_ms* more at the agreed price, and wait a
    little for what it says. NotRenewable, Forbidden, Malformed, NotFound.
    """
    lease, _ = await owned_lease(market, who, lease_id)
    _by_the_account(who)
    if not 0 < duration_ms <= LONGEST_MS or budget <= 0:
        raise Malformed(f"a renewal is for 1 to {LONGEST_MS} ms and some lovelace")
    asked = RenewalAsked(duration_ms, budget, market.now + market.settings.quote_ttl_ms)
    with market.bus.listening(f"job:{lease.job}") as inbox:
        await change_lease(market, lease_id, asked)
        with anyio.move_on_after(ANSWER_S):
            while True:
                lease, _ = await market.lease(lease_id)
                if lease.renewal_signature or not lease.renewal:
                    return lease
                await inbox.wait(1)
    return lease


async def sign(market: Market, who: Caller, lease_id: str, session_signature: bytes) -> Lease:
    """The consumer's signature: the lease goes on. QuoteGone, TermsRefused, Forbidden, NotFound."""
    before, _ = await owned_lease(market, who, lease_id)
    _by_the_account(who)

    def extra(out: Outcome) -> Change:
        more = out.lease.ceiling - before.ceiling if out.lease is not None else 0
        return Change(puts=[audit(market, who, "lease.renew", lease_id, {"ceiling": more})])

    await change_lease(market, lease_id, RenewalSigned(session_signature), extra)
    lease, _ = await market.lease(lease_id)
    return lease


def _by_the_account(who: Caller) -> None:
    """What a key may spend was committed when it posted the job: a renewal is beyond that."""
    if who.key is not None:
        raise Forbidden("a lease is renewed by its account itself, not by an API key")
