"""One running adapter's money as its owner asks for it: the fee key, the books, the way to fund."""

from __future__ import annotations

from typing import Any, Final

import anyio.to_thread

from adapter.core.state import Rules, State
from adapter.daemon.earnings import Fees, earnings, money
from adapter.journal.journal import Journal
from adapter.journal.payments import Payments
from marketplace.domain.supply.offer import DEVNET_MAGIC

FUND_ADA: Final = 20
"""What the owner is asked to send: the collateral, and some fifty ends at their usual price."""
FEW_ENDS: Final = 5
"""Enough for fewer than so many more, it is time to send ADA."""


class Till:
    """*fees* is replaced whenever the chain was looked at. Blocking when made: in a thread."""

    def __init__(self, journal: Journal, address: str, magic: int, rules: Rules) -> None:
        self.payments = Payments(journal)
        self.fees = Fees(address)
        self._journal = journal
        self._magic = magic
        self._rules = rules

    @property
    def fund(self) -> str:
        """What to do so that fees can be paid."""
        if self._magic == DEVNET_MAGIC:
            return f"tally faucet {self.fees.address} '{FUND_ADA} ADA'"
        return f"send {FUND_ADA} ADA to {self.fees.address} from any wallet"

    @property
    def low(self) -> bool:
        """Whether the fee key was seen to hold too little for long."""
        return self.fees.lovelace is not None and self.fees.enough_for < FEW_ENDS

    def status(self, state: State) -> dict[str, Any]:
        """Its part of ``tally adapter status``."""
        return {
            "fee_address": self.fees.address,
            "fees": {**self.fees.to_wire(), "low": self.low, "fund": self.fund},
            "money": money(self.payments, state, self._rules),
        }

    async def earnings(self, state: State) -> dict[str, Any]:
        """``tally adapter earnings``: by day, by lease, and the latest transactions."""
        over = await anyio.to_thread.run_sync(self._journal.ended_leases)
        running = [one for one in state.leases.values() if one.id not in {o.id for o in over}]
        return earnings(self.payments, state, self._rules, [*over, *running])
