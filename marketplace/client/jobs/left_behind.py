"""Leases that a killed process left in a book: whoever takes the channel up buries those that are
over.
"""

from __future__ import annotations

from typing import Any, Final, cast

from marketplace.client.net.http import Http
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.domain.errors import NotFound

GONE: Final = frozenset({"PROVIDER_LOST", "QUOTE_EXPIRED", "DECLINED"})
"""Reasons for which no receipt comes any more, whatever the lease's state says."""


async def bury(http: Http, held: ChannelPayer) -> bool:
    """Counts as over what the market says has ended; whether nothing of *held* runs any more.

    What is signed does not depend on it: a lease that bills on is answered by its own receipts.
    """
    for name in sorted(set(held.terms) - held.final):
        try:
            row = cast("dict[str, Any]", await http.get(f"/v1/leases/{name}"))
        except NotFound:
            continue
        if row.get("state") == "ENDED" or row.get("reason") in GONE:
            await held.lease_over(name, lost=row.get("reason") == "PROVIDER_LOST")
    return set(held.terms) <= held.final
