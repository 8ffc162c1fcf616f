"""The rest of a hop out that ended, from the router's purse to where its owner is paid.

A hop's owner key signs its opens, top-ups and Close, and the contract sends the rest to that same
key: it cannot be a cold one. So what came back does not stay there: it is passed on once its end is
deep, and a stolen purse finds one hop's rest and not the sum of all that ever ended.
"""

from __future__ import annotations

from typing import Final

from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.money.transaction import TxState
from marketplace.router.state import HopOut
from marketplace.router.supply import KEPT

LEAST: Final = 1_000_000
"""Lovelace: less is no output by itself; it stays in the purse."""


def goes_home(refunded: int) -> int:
    """Of what came back from a hop: all but what the purse had put in for its end, which pays for
    the next ones; 0 if that is too little to send. Lovelace.
    """
    more = refunded - KEPT
    return more if more >= LEAST else 0


async def send_home(till: Till, to: bytes, hop: HopOut, refunded: int) -> bool:
    """Whether all that is to go *to* its owner's address is there for good. Repeatable: what was
    sent is in the purse's log, under the hop's name, before it leaves. Faults of the chain;
    ``FundsShort``.
    """
    amount = goes_home(refunded)
    if not amount:
        return True
    purpose = f"refund {hop.session_vk.hex()}"
    sent = [one.state for one in await till.log.known() if one.purpose == purpose]
    if TxState.FINAL in sent:
        return True
    if all(state is TxState.EXPIRED for state in sent):
        await till.pay(to, amount, purpose)
    return False
