"""The key that pays fees: whether its money would do for an end, rehearsed and not guessed.

The key that ends channels holds no money (it signs what others built), so what lies there, from a
time when one key did both or from an owner's habit, is moved to this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import structlog

from adapter.core.events import Event, Purse
from adapter.daemon.earnings import Fees
from marketplace.chain.actions.session import Desk
from marketplace.chain.build import plans
from marketplace.chain.build.wallet import COLLATERAL, Funds, Wallet
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.errors import FundsShort, NotDeployed
from marketplace.chain.settlement.costs import finish_fee, rehearse_finish
from marketplace.chain.transaction.outputs import Out, least
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer

LOOK_S: Final = 60.0
"""Between looks at its money while that does."""
MOST_MOVED: Final = 40
"""Outputs in one transaction: whoever sends many small ones keeps none of the large from moving."""

_log = structlog.get_logger("adapter.fees")


class FeeKey:
    """*desk* pays from it; *end* is the key that ends channels; *payout* an address. *handle* is
    told whether it can pay, *told* how much it holds and for how many ends that is enough.
    """

    def __init__(
        self,
        desk: Desk,
        end: Signer,
        payout: bytes,
        handle: Callable[[Event], Awaitable[None]],
        alarm: Callable[[str, str], None],
        told: Callable[[Fees], None],
    ) -> None:
        self._desk = desk
        self._end = end
        self._bare = Desk(desk.chain, Wallet(end, desk.chain.mainnet), desk.asset, desk.log)
        self._payout = payout
        self._handle = handle
        self._alarm = alarm
        self._told = told
        self._due = 0.0
        self.short = ""
        self.end_cost = 0

    @property
    def address(self) -> str:
        """Where a little ADA must lie for the fees of Finish."""
        return addresses.to_text(self._desk.wallet.address)

    def spent(self) -> None:
        """Its money changed: the next look is now."""
        self._due = 0.0

    async def look(self) -> None:
        """No new lease is taken while it cannot pay for a Finish; it is taken again once it can."""
        if not self.short and anyio.current_time() < self._due:
            return
        snapshot = await self._desk.chain.snapshot(self._desk.scripts)
        await self._move(snapshot)
        funds, _ = await self._desk.funds()
        if snapshot.deployment is not None and snapshot.rewards is not None:
            self.end_cost = finish_fee(snapshot)
        short = short_of(snapshot, funds, self._end.key_hash, self._payout)
        more = 0 if short else self._enough_for(snapshot, funds)
        aside = COLLATERAL if funds.kept_apart else 0
        self._due = anyio.current_time() + LOOK_S
        if short:
            self._alarm("FEES_SHORT", f"no new leases: send ADA to {self.address}: {short}")
        if short != self.short:
            self.short = short
            await self._handle(Purse(f"send ADA to {self.address}: {short}" if short else ""))
        # Last: whoever reads here that it is enough may rent at once.
        self._told(Fees(self.address, funds.lovelace, self.end_cost, more, aside))

    def _enough_for(self, snapshot: Snapshot, funds: Funds) -> int:
        """How many more channels it could end alone, each with a payout that must be topped up to
        the least that an output may hold; the change and a first collateral stay with it.
        """
        unit = self._desk.unit
        tokens = ((unit, 2**40),) if unit else ()
        topped = least(snapshot, Out(self._payout, 2**33, tokens))
        stays = least(snapshot, Out(funds.change, 2**33)) + COLLATERAL * (not funds.kept_apart)
        return max(0, funds.lovelace - stays) // (self.end_cost + topped) if self.end_cost else 0

    async def _move(self, snapshot: Snapshot) -> None:
        """What lies at the key that ends channels, to this one, in one transaction that it pays
        itself. Less than that costs stays where it is.
        """
        bare, unit = self._bare, self._desk.unit
        held = (await bare.funds())[0]
        mine = movable(held, unit)
        if not mine:
            return
        try:
            unsigned = plans.sweep(snapshot, mine, self._desk.wallet.address).finish()
        except FundsShort:
            return
        lovelace = sum(u.lovelace for u in mine)
        try:
            sent = await bare.send(unsigned, "move")
        except Refusal as refusal:
            self._alarm(
                "END_KEY_FUNDED",
                f"{lovelace} lovelace lie at the key that ends channels and did not move to"
                f" {self.address}: {refusal.message}",
            )
            return
        _log.warning(
            "moved to the fee key", lovelace=lovelace - sent.fee, fee=sent.fee, tx=sent.tx_id.hex()
        )


def movable(funds: Funds, unit: bytes) -> list[Utxo]:
    """What of *funds* fits into one output, the largest first: outputs that hold tokens other than
    *unit* stay, for whoever sends enough of those could keep all else from moving.
    """
    every = [*funds.spendable, *((funds.collateral,) if funds.kept_apart else ())]
    mine = [u for u in every if u is not None and all(a == unit for a, _ in u.assets)]
    return sorted(mine, key=lambda u: (-u.lovelace, u.ref))[:MOST_MOVED]


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
