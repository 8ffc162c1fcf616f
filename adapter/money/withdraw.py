"""The fee key's money, home: for an owner who stops for good; no adapter runs meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from adapter.core.state import Channel
from adapter.journal.journal import Journal
from adapter.money.fee_key import movable
from adapter.money.journal_log import JournalLog
from marketplace.chain.actions.session import Desk
from marketplace.chain.build import plans
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.errors import FundsShort
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import Sent
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage


class NoState(Refusal):
    """No adapter ever ran with this state folder."""

    code = "NO_ADAPTER_STATE"
    remedy = "name the folder that `tally adapter run` had, with --state or --config"


class ChannelsOpen(Refusal):
    """Channels still have to be ended, and the fee key pays for that."""

    code = "CHANNELS_OPEN"
    remedy = (
        "run the adapter with `tally adapter drain` until its status shows no channel and no hop (a"
        " router's ends once it was idle for `linger`, an hour unless set otherwise), and some"
        " minutes longer: an end counts once it lies too deep for a rollback"
    )


def desk_of(chain: ChainReader, fee: Signer, journal: Journal, asset: str = "") -> Desk:
    """What pays from the fee key, its transactions in the adapter's journal."""
    return Desk(chain, Wallet(fee, chain.mainnet), asset, JournalLog(journal))


async def withdraw(desk: Desk, to: bytes, channels: Iterable[Channel]) -> tuple[Sent, int]:
    """All that the desk's wallet holds, its collateral included, to the address *to* in one
    transaction, as far as it is :func:`movable`: of many small outputs the rest goes when it is
    asked for again. What was sent, and the lovelace that arrives. :class:`ChannelsOpen` while one
    of the *channels* may still have to be ended: a rollback may undo an end that is not final.
    """
    still = [channel for channel in channels if not channel.final]
    if still:
        lately = sum(channel.stage is ChannelStage.ENDED for channel in still)
        how = f", {lately} of them because a rollback could undo the end" if lately else ""
        raise ChannelsOpen(f"{len(still)} channels are not over yet{how}")
    funds, _ = await desk.funds()
    utxos = movable(funds, desk.unit)
    if not utxos:
        raise FundsShort("the fee key holds nothing", missing=0)
    unsigned = plans.sweep(await desk.chain.snapshot(desk.scripts), utxos, to).finish()
    sent = await desk.send(unsigned, "withdraw")
    return sent, sum(u.lovelace for u in utxos) - sent.fee
