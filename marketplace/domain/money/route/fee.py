"""The router's fee: a part of what a lease owes, rounded up once over the lease's whole sum.

Reckoned per lease and over its cumulative sum, never per tick: however small the ticks are, a
lease costs less than one lovelace more than its basis points.
"""

from __future__ import annotations

from typing import Final

MAX_ROUTE_BPS: Final = 200
"""The most that a route may cost, in 1/10000 of what the lease owes."""
_WHOLE: Final = 10_000


def fee(owed: int, route_bps: int) -> int:
    """Lovelace for the router when a lease owes *owed* lovelace: ceil(owed x bps / 10000)."""
    return -(-owed * route_bps // _WHOLE)


def with_fee(owed: int, route_bps: int) -> int:
    """Lovelace that the consumer's hop owes for a lease that owes *owed*."""
    return owed + fee(owed, route_bps)


def reach(amount: int, route_bps: int) -> int:
    """The most that a lease may owe so that *amount* lovelace pay for it, the fee included.

    The reverse of :func:`with_fee`: ``with_fee(reach(a)) <= a < with_fee(reach(a) + 1)``.
    """
    return amount * _WHOLE // (_WHOLE + route_bps)
