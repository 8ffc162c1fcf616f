"""Whether the hot key's money would do for a Finish: rehearsed, not guessed."""

from __future__ import annotations

from marketplace.chain.build.wallet import Funds
from marketplace.chain.errors import FundsShort, NotDeployed
from marketplace.chain.settlement.costs import rehearse_finish
from marketplace.chain.transaction.snapshot import Snapshot


def short_of(snapshot: Snapshot, funds: Funds, adapter_vkh: bytes, payout: bytes) -> str:
    """Why *funds* do not pay for a Finish now, in words; empty if they do, or where no channel can
    be on this chain yet.  *payout* is an address.
    """
    try:
        draft = rehearse_finish(snapshot, funds, adapter_vkh, payout)
        return "" if draft.bytes else "no transaction"
    except FundsShort as short:
        return short.message
    except NotDeployed:
        return ""
