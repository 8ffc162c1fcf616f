"""Who may ask for a priority: accounts that the market's operator granted one, up to the granted
one.

A higher priority goes first in the queue, before fair shares, and may end others' leases after a
notice. If anybody could name it everybody would, and a stranger could evict the whole market for
nothing.
"""

from __future__ import annotations

from marketplace.domain.errors import Forbidden
from marketplace.domain.work.job import JobSpec
from marketplace.market.base.records import Setting
from marketplace.market.context import Market


class PriorityNotGranted(Forbidden):
    """A priority above what the market's operator granted this account."""

    code = "PRIORITY_NOT_GRANTED"
    remedy = "lower policy.priority to what is granted, or ask the operator of this market for more"


def setting(account: str) -> str:
    """The name of the setting that holds an account's granted priority."""
    return f"priority:{account}"


async def granted(market: Market, account: str) -> int:
    """The highest priority that *account* may ask for; 0 unless the operator granted more."""
    found = await market.store.get(Setting, setting(account))
    return int(found.value) if found is not None else 0


async def check(market: Market, spec: JobSpec, account: str) -> None:
    """PriorityNotGranted where the job asks for more than its account may."""
    asked = spec.policy.priority
    if asked <= 0:
        return
    most = await granted(market, account)
    if asked > most:
        raise PriorityNotGranted(
            f"priority {asked} is asked for, this account is granted {most}", granted=most
        )
