"""Ends of many adapters in one transaction: built here, paid here, signed by each of them.

A Finish needs its adapter's signature, and every signature is over the whole transaction: who is
silent, refuses, or whose channel somebody else spends meanwhile is left out, and the rest is built
and signed anew. Nobody is believed: what an adapter offers is read from the chain, judged by the
twin of the contract, and never topped up from the purse that pays. An adapter believes as little
(:mod:`marketplace.chain.settlement.consent`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog

from marketplace.chain.actions.session import Desk, Settled
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move, Settlement
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import FundsShort, ScriptRefused, TxRefused
from marketplace.chain.node.submit import MemoryLog, TransactionLog, send
from marketplace.chain.settlement.consent import Consent
from marketplace.chain.transaction.outputs import Out, least
from marketplace.chain.transaction.signing import Signed, Unsigned, join
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel import Claim, Finish, Will, Witness, will
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.transaction import TxState

ROUNDS: Final = 3
"""Transactions that are proposed before everybody ends alone, or waits for the next time."""
MOST: Final = 44
"""Ends of as many adapters that fit into one transaction."""
SOONEST_MS: Final = 60_000
"""An end that waits no longer than this is not begun with: a block may take as long."""

_log = structlog.get_logger(__name__)
Ask = Callable[[str, bytes], Awaitable[Consent | str]]
"""Puts a transaction to an adapter: its consent, or why there is none."""


@dataclass(frozen=True)
class OfferedEnd:
    """A channel that its adapter wants ended with others': its output by *ref*, what it takes
    (*claim*, None for nothing), and until when (chain's clock) its adapter waits. *adapter* names
    who is asked.
    """

    adapter: str
    adapter_vkh: bytes
    session_vk: bytes
    ref: OutRef
    claim: Claim | None
    payout_address: bytes
    until_ms: int


@dataclass
class EndRound:
    """What one round did. *ended*: the offers that *sent* ends; *left*: adapters that were asked
    and gave no signature, and why; *unfit*: offers that can be in no transaction; *share*: what one
    end would have cost the purse, where that was more than it may.
    """

    sent: Settled | None = None
    ended: list[OfferedEnd] = field(default_factory=list[OfferedEnd])
    left: dict[str, str] = field(default_factory=dict[str, str])
    unfit: dict[bytes, str] = field(default_factory=dict[bytes, str])
    share: int = 0


@dataclass(frozen=True)
class _Fit:
    offer: OfferedEnd
    utxo: Utxo
    will: Will


class EndBatcher:
    """Ends channels with the money of *desk*'s wallet, for which it may spend *share_most* lovelace
    each beside what they bring it in bounties.
    """

    def __init__(self, desk: Desk, share_most: int) -> None:
        self._log: TransactionLog = desk.log or MemoryLog()
        self._desk = desk
        self._share_most = share_most

    async def round(self, offers: Sequence[OfferedEnd], ask: Ask) -> EndRound:
        """One transaction for as many of *offers* as fit and sign, those that wait least first.

        :class:`~marketplace.chain.errors.ChainFault` when the chain cannot be asked.
        """
        done = EndRound()
        if any(r.state is not TxState.SEEN for r in await self._log.pending()):
            return done  # its change is no input that an adapter's door shows
        rest = sorted(offers, key=lambda offer: offer.until_ms)
        for _ in range(ROUNDS):
            snapshot = await self._desk.chain.snapshot(self._desk.scripts)
            fit = [one for offer in rest if (one := await self._judged(offer, snapshot, done))]
            fit = _standing(fit, snapshot, self._desk.unit)
            if not fit:
                return done
            try:
                chosen, planned, unsigned = await self._built(fit, snapshot)
            except FundsShort as short:
                done.unfit |= {one.offer.session_vk: short.message for one in fit}
                return done
            except (ScriptRefused, TxRefused) as no:
                _log.warning("ends_not_built", channels=len(fit), cause=str(no)[:300])
                return done
            cost = unsigned.fee + planned.subsidy - sum(one.will.bounty for one in chosen)
            share = -(-cost // len(chosen))
            if share > self._share_most:
                done.share = share
                return done
            consents = await self._asked(unsigned, chosen, ask, done)
            if consents is not None and await self._sent(planned, unsigned, consents, done):
                done.ended = [one.offer for one in chosen]
                return done
            rest = [one.offer for one in fit if one.offer.adapter not in done.left]
        return done

    async def _judged(self, offer: OfferedEnd, snapshot: Snapshot, done: EndRound) -> _Fit | None:
        """*offer* as the chain shows it, if its end can be in a transaction that we pay for."""
        found = await self._desk.chain.output(offer.ref)
        if found is None or found.spent_by is not None:
            return self._unfit(offer, done, "its output is not there, or spent")
        try:
            return _Fit(offer, found.utxo, _judge(offer, found.utxo, snapshot, self._desk.unit))
        except Refusal as no:
            return self._unfit(offer, done, no.message)

    def _unfit(self, offer: OfferedEnd, done: EndRound, why: str) -> None:
        done.unfit[offer.session_vk] = why

    async def _built(
        self, fit: Sequence[_Fit], snapshot: Snapshot
    ) -> tuple[list[_Fit], Settlement, Unsigned]:
        """As many as one transaction holds, from money that every door shows."""
        funds, fresh = await self._desk.funds()
        kept = (funds.collateral,) if funds.collateral else ()
        shown = [u for u in {*funds.spendable, *kept} if u.ref not in fresh]
        funds = Funds.of(funds.change, shown)
        count, limit = min(len(fit), MOST), snapshot.params.max_tx_size
        while True:
            chosen = _standing(fit[:count], snapshot, self._desk.unit)
            if not chosen:
                raise TxRefused("what is due in as many as fit makes no output")
            planned = plans.settle(snapshot, funds, _batch(chosen, snapshot, self._desk.unit))
            if planned.draft.size <= limit:
                try:
                    return chosen, planned, await self._desk.finish(planned.draft, {})
                except TxRefused:
                    if count == 1:
                        raise
            if count == 1:
                raise TxRefused("one end alone exceeds a transaction")
            count -= 1

    async def _asked(
        self, unsigned: Unsigned, chosen: Sequence[_Fit], ask: Ask, done: EndRound
    ) -> list[Consent] | None:
        """Everybody's consent, or None if somebody's is missing; all are asked at once."""
        given: dict[str, Consent] = {}

        async def one(name: str, vkh: bytes) -> None:
            answer = await ask(name, unsigned.bytes)
            if isinstance(answer, str):
                done.left[name] = answer
            elif not answer.good_for(unsigned.body, vkh):
                done.left[name] = "its signature is not good"
            else:
                given[name] = answer

        async with anyio.create_task_group() as group:
            for name, vkh in {(c.offer.adapter, c.offer.adapter_vkh) for c in chosen}:
                group.start_soon(one, name, vkh)
        missing = {c.offer.adapter for c in chosen} - given.keys()
        return None if missing else list(given.values())

    async def _sent(
        self,
        planned: Settlement,
        unsigned: Unsigned,
        consents: Sequence[Consent],
        done: EndRound,
    ) -> bool:
        """Whether a node took it. If not, the next look at the chain shows who was faster."""
        own = self._desk.wallet.signer
        keys = {one.verify_key: one.signature for one in consents}
        keys[own.verify_key] = own.sign(unsigned.tx_id)
        raw = join(unsigned.body, sorted(keys.items()), unsigned.redeemers)
        signed = Signed(
            unsigned.tx_id, raw, unsigned.fee, unsigned.units, unsigned.inputs, unsigned.made,
            unsigned.until,
        )  # fmt: skip
        try:
            sent = await send(self._desk.chain, self._log, signed, "finish")
        except TxRefused as no:
            _log.info("ends_refused", channels=len(planned.moves), cause=str(no)[:200])
            return False
        done.sent = Settled(sent, planned.moves, planned.wills, planned.subsidy)
        return True


def _judge(offer: OfferedEnd, utxo: Utxo, snapshot: Snapshot, unit: bytes) -> Will:
    """What the end does, if the contract takes it and it costs the purse its fee and no more."""
    channel = datum.read_channel(utxo, unit)
    consts = channel.stage.consts
    if channel.address.payment.hash != snapshot.scripts.stub_hash or utxo.script_hash is not None:
        raise ChannelUnfit("it is no channel")
    named = (consts.session_vk, consts.adapter_vkh, consts.payout)
    if named != (
        offer.session_vk, offer.adapter_vkh, addresses.payout_hash(offer.payout_address),
    ):  # fmt: skip
        raise ChannelUnfit("it is not the channel that was offered")
    now = snapshot.tip.time_ms
    if offer.until_ms < now + SOONEST_MS:
        raise ChannelUnfit("its adapter waits no longer")
    witness = Witness(frozenset((offer.adapter_vkh,)), None, now)
    judged = will(channel, Finish(offer.claim), witness)
    if judged.taken > utxo.quantity(unit) or judged.bounty < 0 or judged.pay < 0:
        raise ChannelUnfit("it takes more than its channel holds")
    return judged


def _standing(fit: Sequence[_Fit], snapshot: Snapshot, unit: bytes) -> list[_Fit]:
    """Those of *fit* whose payouts are outputs by themselves, all that is paid at one put together.
    The others wait for more of their payout: nobody adds to what is due.
    """
    due: dict[bytes, int] = {}
    for one in fit:
        at = one.offer.payout_address
        due[at] = due.get(at, 0) + one.will.pay
    short = {at for at, pay in due.items() if pay and not _stands(at, pay, snapshot, unit)}
    return [one for one in fit if not one.will.pay or one.offer.payout_address not in short]


def _stands(at: bytes, pay: int, snapshot: Snapshot, unit: bytes) -> bool:
    out = Out(at, 0 if unit else pay, ((unit, pay),) if unit else ())
    return out.lovelace >= least(snapshot, out)


def _batch(chosen: Sequence[_Fit], snapshot: Snapshot, unit: bytes) -> Batch:
    offers = [one.offer for one in chosen]
    last = min(min(o.until_ms for o in offers), snapshot.tip.time_ms + plans.TTL_MS)
    return Batch(
        moves=tuple(Move(one.utxo, Finish(one.offer.claim)) for one in chosen),
        payouts={addresses.payout_hash(o.payout_address): o.payout_address for o in offers},
        signers=tuple(sorted({o.adapter_vkh for o in offers})),
        until_ms=last,
        unit=unit,
        reserve_collateral=True,
    )
