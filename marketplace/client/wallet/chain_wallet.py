"""A purse at one chain: its balance, and the transactions that it makes there.

Apart from :mod:`~marketplace.client.wallet.purse` because building transactions takes libraries
that signing in and reading do not need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from marketplace.chain.actions.session import (
    Desk,
    close_channel,
    finish_channels,
    open_channels,
    pay,
    top_up,
)
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Opening
from marketplace.chain.channels import shown_vouchers
from marketplace.chain.channels.finder import (
    ChannelEnded,
    ChannelFinder,
    ChannelView,
    at_depth,
    channel_capacity,
    check_channel,
)
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChainFault, FundsShort, TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.follow import Follower
from marketplace.chain.node.submit import FileLog, in_flight
from marketplace.chain.settlement.next_step import Due, Policy, next_step
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.client.wallet import one_open
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Close, Finish, Open
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.transaction import FINAL_DEPTH
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.units import show_ada

_SWEEP_MARGIN: Final = 2_000_000  # fee and a change that may exist; the change goes along
_CONSUMER: Final = Policy(consumer=True)
_CONFLICTS: Final = 4
_TOP_UP_S: Final = 180.0
_LOOK_S: Final = 0.5
_SPENDING: Final[defaultdict[Path, anyio.Lock]] = defaultdict(anyio.Lock)


@dataclass(frozen=True)
class Till:
    """A purse at one chain: what it has, and what it does there."""

    purse: Purse
    chain: ChainReader

    def desk(self, asset: str = "") -> Desk:
        """For the actions of :mod:`marketplace.chain`; its log is kept with the purse."""
        wallet = self.purse.wallet(mainnet=self.chain.mainnet)
        return Desk(self.chain, wallet, asset, self.log)

    @property
    def log(self) -> FileLog:
        """Every transaction of this purse on this chain; other processes may add to it."""
        return FileLog(
            self.purse.home / "transactions" / f"{self.purse.name}-{self.chain.magic}.jsonl"
        )

    @property
    def address(self) -> str:
        """Bech32."""
        return self.purse.address(mainnet=self.chain.mainnet)

    async def balance(self) -> int:
        """Lovelace at its address, in blocks."""
        utxos = await self.chain.utxos(self.purse.wallet(mainnet=self.chain.mainnet).address)
        return sum(u.lovelace for u in utxos)

    async def reserve(self, terms: Terms) -> int:
        """Lovelace that a channel for *terms* holds beyond what it can pay; comes home at its
        end.
        """
        desk = self.desk(terms.asset)
        snapshot = await self.chain.snapshot(desk.scripts)
        at = addresses.channel_address(
            snapshot.scripts.stub_hash, self._stake(desk), snapshot.mainnet
        )
        body = datum.stage_bytes(Open(terms.consts(), 0))
        return plans.reserve(snapshot, Out(at, terms.ceiling, datum=body), desk.unit)

    async def open(self, terms: Terms, amount: int) -> OutRef:
        """Open the channel of *terms* with *amount* in it; its output. Waits for no block.

        One that was opened before, or may still come to be, is taken up instead: see
        :mod:`~marketplace.client.wallet.one_open` for what this can refuse. A chain that took the
        transaction and did not answer has opened it: its bytes are in the log, and are sent until a
        block has them.
        """
        async with _SPENDING[self.purse.home]:
            standing = await self.find_open(terms)
            if standing is not None:
                return standing
            desk = self.desk(terms.asset)
            opening = Opening(amount, lambda _first, _index: terms.consts(), self._stake(desk))
            for turn in range(_CONFLICTS):
                try:
                    return (await open_channels(desk, [opening])).refs[0]
                except TxRefused as refused:  # another process of this purse was faster
                    if not refused.conflict or turn == _CONFLICTS - 1:
                        raise
                except ChainFault:
                    sent = await self._sent_open(terms)
                    if sent is None:
                        raise
                    return sent
        raise AssertionError("unreachable")

    async def _sent_open(self, terms: Terms) -> OutRef | None:
        """The output of an unfinished open of exactly *terms* in the log."""
        for record in await self.log.pending():
            found = one_open.opens(record, terms.session_vk)
            if found is not None and found[1] == terms.consts():
                return found[0].ref
        return None

    async def follow(self) -> None:
        """One look after its own transactions: seen, final, sent again after a rollback."""
        await Follower(self.chain, self.log).look()

    async def find_open(self, terms: Terms) -> OutRef | None:
        """The channel of *terms* that stands already or may still come to stand, by the purse's own
        log and the chain; None if a first may be opened. Whatever is found is checked like any
        other channel before anything is signed.
        """
        desk = self.desk(terms.asset)
        vk, wanted = terms.session_vk, terms.consts()
        records = [r for r in await self.log.known() if one_open.opens(r, vk) is not None]
        if records:
            await self.follow()  # what never left, or was lost by a rollback, is sent now
        tip = await self.chain.tip()
        tried = [await one_open.attempt(self.chain, r, vk, wanted, tip) for r in records]
        found = (await self.outputs(terms.asset)).get(vk, [])
        ours = await self._whose(desk).ours(found, vk)
        return one_open.decide(
            [one for one in tried if one is not None],
            [(origin, one_open.consts_of(first) == wanted) for origin, first in ours.items()],
        )

    async def outputs(self, asset: str = "") -> dict[bytes, list[Utxo]]:
        """Every unspent output at the address of this purse's channels that reads as one, by
        key.
        """
        desk = self.desk(asset)
        at = addresses.channel_address(
            desk.scripts.stub_hash, self._stake(desk), self.chain.mainnet
        )
        return await self._whose(desk).at(at)

    async def strays(
        self, session_vk: bytes, outputs: Sequence[Utxo], origin: OutRef, asset: str = ""
    ) -> list[OutRef]:
        """Where channels of the key began that this purse paid for beside the one that began at
        *origin*, and that *outputs* are the rest of.
        """
        ours = await self._whose(self.desk(asset)).ours(outputs, session_vk)
        return [one for one in ours if one != origin]

    def _whose(self, desk: Desk) -> one_open.Whose:
        finder = ChannelFinder(self.chain, desk.scripts, desk.unit)
        return one_open.Whose(self.chain, finder, self.purse.signer.key_hash)

    async def look(
        self, session_vk: bytes, origin: OutRef, asset: str = ""
    ) -> ChannelView | ChannelEnded:
        """The channel as the chain shows it now."""
        return await ChannelFinder(self.chain, scripts_for(asset), bytes.fromhex(asset)).find(
            session_vk, origin
        )

    async def shown(self, view: ChannelView | ChannelEnded) -> Voucher | None:
        """The own voucher with which the channel was claimed from last, read from that
        transaction's bytes; None if it shows none that the session key signed. :class:`ChainFault`,
        also from a door that names a transaction and has no bytes of it: that proves nothing.
        """
        if not view.claimed_by:
            return None
        raw = await self.chain.transaction_bytes(view.claimed_by)
        if raw is None:
            raise ChainFault(f"the chain's door names {view.claimed_by.hex()} and does not show it")
        return shown_vouchers.greatest_voucher(raw, view.session_vk)

    async def checked(self, terms: Terms, origin: OutRef) -> int:
        """The most that the channel can pay, once it was found to be exactly that of *terms*.

        Depth is the provider's worry: what a rollback takes back is then not paid to it either.
        """
        view = await self.look(terms.session_vk, origin, terms.asset)
        if isinstance(view, ChannelEnded):
            return view.claimed
        snapshot = await self.chain.snapshot(scripts_for(terms.asset))
        return check_channel(terms, view, snapshot).most

    async def top_up(self, session_vk: bytes, origin: OutRef, amount: int, asset: str = "") -> int:
        """Add *amount*; the capacity that it will have.

        A channel moves by one transaction at a time: one of ours that is on its way, or somebody's
        claim that was faster, is waited for. :class:`ChainFault` if that takes too long.
        """
        desk = self.desk(asset)
        with anyio.move_on_after(_TOP_UP_S):
            while True:
                view = await self._living(session_vk, origin, asset)
                async with _SPENDING[self.purse.home]:
                    if await self._topped_up(desk, view, amount):
                        snapshot = await self.chain.snapshot(desk.scripts)
                        return channel_capacity(snapshot, at_depth(view, FINAL_DEPTH)).most + amount
                await anyio.sleep(_LOOK_S)
        raise ChainFault("an earlier transaction of this channel is in no block yet")

    async def _topped_up(self, desk: Desk, view: ChannelView, amount: int) -> bool:
        """Sent, unless another transaction has *view*'s output already."""
        if view.utxo.ref in await in_flight(self.log):
            return False
        try:
            await top_up(desk, view, amount)
        except TxRefused as refused:
            if refused.conflict:
                return False
            raise
        return True

    async def close(self, session_vk: bytes, origin: OutRef, asset: str = "") -> bytes:
        """Start the close period: for a provider that is gone. The transaction's id."""
        return await self.close_view(await self._living(session_vk, origin, asset))

    async def close_view(self, view: ChannelView) -> bytes:
        """The same for a channel that was just looked at."""
        return (await close_channel(self.desk(view.unit.hex()), view)).sent.tx_id

    async def leave(
        self, view: ChannelView, voucher: Voucher | None = None, payout: str = ""
    ) -> tuple[Close | Finish, bytes] | None:
        """The next step out of a channel that no provider finishes, and its transaction's id; None
        while there is none to take. Close, and after the close period Finish, which pays what
        *voucher* promises and was never claimed, if *payout* is the address that the channel names,
        and sends the rest home.
        """
        desk = self.desk(view.unit.hex())
        to = _paid_at(payout, view)
        due = Due(view, voucher, to or b"", end=True)
        snapshot = await self.chain.snapshot(desk.scripts)
        match next_step(due, snapshot, _CONSUMER, busy=await in_flight(self.log)):
            case Close() as step:
                return step, await self.close_view(view)
            case Finish(claim) as step:
                paid, payouts = (voucher, {view.consts.payout: to}) if claim and to else (None, {})
                done = await finish_channels(desk, [(view, paid)], payouts)
                return step, done.sent.tx_id
            case _:
                return None

    async def pay(self, to: bytes, lovelace: int) -> bytes:
        """A plain payment; the transaction's id."""
        return (await pay(self.desk(), [Out(to, lovelace)])).tx_id

    async def sweep(self, to: bytes) -> tuple[bytes, int]:
        """Everything to *to*, the collateral included: the transaction's id and what went."""
        desk = self.desk()
        utxos = await self.chain.utxos(desk.wallet.address)
        total = sum(u.lovelace for u in utxos)
        if total <= 2 * _SWEEP_MARGIN:
            raise FundsShort(
                f"the purse holds {show_ada(total)}: too little to be worth a transaction",
                missing=2 * _SWEEP_MARGIN - total,
            )
        snapshot = await self.chain.snapshot(desk.scripts)
        funds = plans.Funds(
            to, tuple(sorted(utxos, key=lambda u: (bool(u.assets), -u.lovelace))), None
        )
        draft = plans.pay(snapshot, funds, [Out(to, total - _SWEEP_MARGIN)])
        sent = await desk.send(draft.finish(), "sweep")
        return sent.tx_id, total - sent.fee

    async def _living(self, session_vk: bytes, origin: OutRef, asset: str) -> ChannelView:
        view = await self.look(session_vk, origin, asset)
        if isinstance(view, ChannelEnded):
            raise FundsShort("the channel has ended already", missing=0)
        return view

    def _stake(self, desk: Desk) -> Credential:
        assert desk.wallet.stake is not None
        return Credential(desk.wallet.stake)


def _paid_at(payout: str, view: ChannelView) -> bytes | None:
    """The bytes of *payout* if the channel really pays there."""
    try:
        address = addresses.from_text(payout)
    except Malformed:
        return None
    return address if addresses.payout_hash(address) == view.consts.payout else None
