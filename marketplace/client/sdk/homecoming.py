"""Bringing channels home, one step of :mod:`~marketplace.client.wallet.homecoming` at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from marketplace.chain.channels.finder import ChannelEnded
from marketplace.chain.encoding.utxo import OutRef
from marketplace.client.jobs.left_behind import bury
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.journal import ChannelHeld, Journal
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.holdings import Holding
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel import Close
from marketplace.domain.money.voucher import Voucher

_LOOK_S: Final = 1.0


@dataclass(frozen=True)
class Done:
    """What became of one channel: *did* is ENDED, ASKED, CLOSING, FINISHED or LEFT; *tx* hex, of
    the transaction that did it; *why*, for people, where it was left.
    """

    holding: Holding
    did: str
    tx: str = ""
    why: str = ""

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        vk, home = self.holding.session_vk.hex(), self.holding.comes_home
        return {"session_vk": vk, "did": self.did, "tx": self.tx, "why": self.why,
                "comes_home": home}  # fmt: skip


async def end(market: Market, holdings: Sequence[Holding], within_s: float) -> list[Done]:
    """Asks the providers of *holdings*, all of *market*, to end them, and waits so long for the
    chain to show it. A provider that answers nothing is left in time by whoever pays next
    (:mod:`marketplace.client.wallet.unilateral_close`).
    """
    runner, done = market.runner, list[Done]()
    asked: list[tuple[Holding, ChannelPayer]] = []
    for one in holdings:
        try:
            held = await runner.payers.take(one.session_vk, runner.purse.session(one.session_vk))
        except (ChannelHeld, Refusal) as refusal:
            done.append(Done(one, "LEFT", why=refusal.message))
            continue
        await runner.watch.resume(held)
        if not await bury(market.http, held):
            done.append(Done(one, "LEFT", why=f"a lease of it is not over: {min(held.terms)}"))
            await runner.payers.release(one.session_vk)
            continue
        await held.end()
        asked.append((one, held))
    over: set[bytes] = set()
    with anyio.move_on_after(within_s):
        while len(over) < len(asked):
            for one, held in asked:
                if one.session_vk not in over and await runner.watch.confirm(held):
                    over.add(one.session_vk)
            await anyio.sleep(_LOOK_S)
    for one, held in asked:
        did = "ENDED" if one.session_vk in over else "ASKED"
        done.append(Done(one, did, held.facts.settled_tx))
    return done


async def alone(till: Till, one: Holding) -> Done:
    """The next step out of a channel without anybody's help: Close, or after the close period
    Finish, which pays what its book says was signed. Its book is locked meanwhile.

    :class:`~marketplace.chain.errors.ChainFault`, and what building and sending it refuses.
    """
    try:
        journal, loaded = Journal.hold(till.purse.channels, one.session_vk) if one.book else (
            None, None
        )  # fmt: skip
    except ChannelHeld as refusal:
        return Done(one, "LEFT", why=refusal.message)
    try:
        origin = OutRef.parse(one.origin) if one.origin else await till.origin(one.session_vk)
        view = await till.look(one.session_vk, origin, one.asset)
        if isinstance(view, ChannelEnded):
            return Done(one, "ENDED", view.finished_by.hex())
        voucher, payout = None, ""
        if loaded is not None and loaded.facts is not None:
            payout = loaded.facts.payout
            if loaded.book.signed:
                voucher = Voucher.sign(till.purse.session(one.session_vk), loaded.book.signed)
        taken = await till.leave(view, voucher, payout)
    finally:
        if journal is not None:
            journal.close()
    if taken is None:
        return Done(one, "LEFT", why="no step is due now: another one is on its way")
    step, tx = taken
    return Done(one, "CLOSING" if isinstance(step, Close) else "FINISHED", tx.hex())
