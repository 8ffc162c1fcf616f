"""A purse at one chain: its balance, and the transactions that it makes there.

Apart from :mod:`~marketplace.client.wallet.purse` because building transactions takes libraries
that signing in and reading do not need.

Over 400 lines: whatever spends from a purse chooses its coins under one lock and one log; what
holds that lock is all in this file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from marketplace.chain.actions.handed_open import MOST_BYTES
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
from marketplace.chain.errors import ChainFault, ChannelUnknown, FundsShort, TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.follow import Follower
from marketplace.chain.node.submit import (
    OPEN,
    FileLog,
    TxRecord,
    in_flight,
    send_bytes,
    spent_elsewhere,
)
from marketplace.chain.settlement.costs import chain_fees
from marketplace.chain.settlement.next_step import Due, Policy, next_step
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.client.wallet import one_open
from marketplace.client.wallet.one_open import ChannelTwice, OpenUnsure
from marketplace.client.wallet.purse import Purse
from marketplace.client.wallet.spending import inputs_gone, spending
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Credential
from marketplace.domain.money.agreed import Agreed
from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.money.channel import Close, Finish, Open
from marketplace.domain.money.transaction import FINAL_DEPTH, TxState
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.units import show_ada

_SWEEP_MARGIN: Final = 2_000_000  # fee and a change that may exist; the change goes along
_CONSUMER: Final = Policy(consumer=True)
_CONFLICTS: Final = 4
_TOP_UP_S: Final = 180.0
_LOOK_S: Final = 0.5
_REFUSED_S: Final = 120.0  # in which a block shows what took a refused transaction's inputs


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
        return FileLog(self._log_path)

    @property
    def _log_path(self) -> Path:
        return self.purse.home / "transactions" / f"{self.purse.name}-{self.chain.magic}.jsonl"

    @property
    def address(self) -> str:
        """Bech32."""
        return self.purse.address(mainnet=self.chain.mainnet)

    async def balance(self) -> int:
        """Lovelace at its address, in blocks."""
        utxos = await self.chain.utxos(self.purse.wallet(mainnet=self.chain.mainnet).address)
        return sum(u.lovelace for u in utxos)

    async def reserve(self, terms: Agreed, pays: int) -> int:
        """Lovelace that a channel of *terms* which can pay *pays* holds beyond that; comes home at
        its end.
        """
        desk = self.desk(terms.asset)
        snapshot = await self.chain.snapshot(desk.scripts)
        at = addresses.channel_address(
            snapshot.scripts.stub_hash, self._stake(desk), snapshot.mainnet
        )
        body = datum.stage_bytes(Open(terms.consts(), 0))
        return plans.reserve(snapshot, Out(at, pays, datum=body), desk.unit)

    async def fees(self) -> ChainFees:
        """What the chain takes for each step of a channel, by its parameters now."""
        return chain_fees(await self.chain.snapshot(scripts_for()))

    async def open(self, terms: Agreed, amount: int) -> OutRef:
        """Open the channel of *terms* with *amount* in it; its output. Waits for no block.

        One that was opened before, or may still come to be, is taken up instead: see
        :mod:`~marketplace.client.wallet.one_open` for what this can refuse. A chain that took the
        transaction and did not answer has opened it: its bytes are in the log, and are sent until a
        block has them.
        """
        async with self.turn():
            standing = await self._find_open(terms)
            if standing is not None:
                return await self._again(standing)
            for _ in range(_CONFLICTS):
                try:
                    return await self._open_anew(terms, amount)
                except TxRefused as refused:  # something beside this log took an input
                    if not inputs_gone(refused):
                        raise
                    record, ref = await self._last_open(terms)
                    if await self._after_refusal(record):
                        return ref
                except ChainFault:
                    sent = await self._sent_open(terms)
                    if sent is None:
                        raise
                    return sent
        raise OpenUnsure(f"what this purse was to pay with was taken {_CONFLICTS} times")

    async def open_bytes(self, tx_id: bytes) -> bytes:
        """An open of ours that waits for its block, as it was signed, to be handed to its provider;
        empty for one that is included or over, or too long for anybody to take.
        """
        known = [r for r in await self.log.pending() if r.tx_id == tx_id]
        waits = [r.cbor for r in known if r.state in (TxState.BUILT, TxState.SUBMITTED)]
        return waits[0] if waits and len(waits[0]) <= MOST_BYTES else b""

    async def open_all(self, wanted: Sequence[tuple[Agreed, int]]) -> list[OutRef]:
        """Channels in ADA with so much in each, by one transaction; those that were opened before
        are taken up, as :meth:`open` does. FundsShort opens none. Whatever else goes wrong with it:
        each is then opened by itself, which knows what became of this one.
        """
        async with self.turn():
            standing = [await self._find_open(terms) for terms, _ in wanted]
            new = [one for one, at in zip(wanted, standing, strict=True) if at is None]
            made = iter(await self._open_together(new) if new else ())
            return [next(made) if at is None else await self._again(at) for at in standing]

    async def _open_anew(self, terms: Agreed, amount: int) -> OutRef:
        return (await self._open_together([(terms, amount)]))[0]

    async def _open_together(self, wanted: Sequence[tuple[Agreed, int]]) -> tuple[OutRef, ...]:
        desk = self.desk(wanted[0][0].asset)
        openings = [
            Opening(amount, lambda _first, _index, t=terms: t.consts(), self._stake(desk))
            for terms, amount in wanted
        ]
        return (await open_channels(desk, openings)).refs

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """This purse's turn to spend: what a process of it logged, and died before it sent, is sent
        first, because its change is counted on.
        """
        async with spending(self._log_path):
            if any(record.state is TxState.BUILT for record in await self.log.pending()):
                await self._follow()
            yield

    async def _again(self, standing: OutRef) -> OutRef:
        """*standing*, sent again where a refusal ended it and no block says why."""
        for record in await self.log.known():
            if record.tx_id == standing.tx_id and record.state is TxState.EXPIRED:
                if not await self._after_refusal(record):
                    raise OpenUnsure(f"{standing} lost its place, and a rollback may give it back")
        return standing

    async def _last_open(self, terms: Agreed) -> tuple[TxRecord, OutRef]:
        """The latest open of the session key that was logged, and its output there."""
        for record in reversed(await self.log.known()):
            found = one_open.opens(record, terms.session_vk)
            if found is not None:
                return record, found[0].ref
        raise AssertionError("what was refused is logged")

    async def _after_refusal(self, record: TxRecord) -> bool:
        """Whether a refused open is included after all; not, once a block shows that it cannot be,
        so that another may be built.

        Until a block shows one or the other the same bytes are sent, never others: what refused
        them may still let them in. :class:`~marketplace.client.wallet.one_open.OpenUnsure` if no
        block does in time.
        """
        height = -1
        with anyio.move_on_after(_REFUSED_S):
            while True:
                tip = await self.chain.tip()
                if tip.height == height:
                    await anyio.sleep(_LOOK_S)
                    continue
                height = tip.height
                if await self.chain.transaction(record.tx_id) is not None:
                    return True
                await self._follow()
                if await self._never(record, tip.slot):
                    return False
                try:
                    await send_bytes(self.chain, self.log, record.cbor, OPEN)
                    return True
                except TxRefused as refused:
                    if not inputs_gone(refused):
                        raise
        raise OpenUnsure(f"{record.tx_id.hex()} was refused, and no block shows why")

    async def _never(self, record: TxRecord, slot: int) -> bool:
        """Whether a block shows that *record* can be in none: its time is over, an input is spent
        elsewhere, or would come from one of ours of which that is known.
        """
        if record.until is not None and slot >= record.until:
            return True
        over = {r.tx_id for r in await self.log.known() if r.state is TxState.EXPIRED}
        for ref in record.inputs:
            if ref.tx_id in over and await self.chain.transaction(ref.tx_id) is None:
                return True
        return bool(await spent_elsewhere(self.chain, record))

    async def _sent_open(self, terms: Agreed) -> OutRef | None:
        """The output of an unfinished open of exactly *terms* in the log."""
        for record in await self.log.pending():
            found = one_open.opens(record, terms.session_vk)
            if found is not None and found[1] == terms.consts():
                return found[0].ref
        return None

    async def follow(self) -> None:
        """One look after its own transactions: seen, final, sent again after a rollback.

        What another process is just sending is not sent by this one: the later of the two would be
        refused.
        """
        if await self.log.pending():
            async with spending(self._log_path):
                await self._follow()

    async def _follow(self) -> None:
        await Follower(self.chain, self.log).look()

    async def find_open(self, terms: Agreed) -> OutRef | None:
        """The channel of *terms* that stands already or may still come to stand, by the purse's own
        log and the chain; None if a first may be opened. Whatever is found is checked like any
        other channel before anything is signed.
        """
        async with spending(self._log_path):
            return await self._find_open(terms)

    async def _find_open(self, terms: Agreed) -> OutRef | None:
        desk = self.desk(terms.asset)
        vk, wanted = terms.session_vk, terms.consts()
        records = [r for r in await self.log.known() if one_open.opens(r, vk) is not None]
        if records:
            await self._follow()  # what never left, or was lost by a rollback, is sent now
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
        return await self._whose(self.desk(asset)).at(self.channels_address(asset))

    def channels_address(self, asset: str = "") -> bytes:
        """Where this purse's channels in *asset* lie."""
        desk = self.desk(asset)
        stub, mainnet = desk.scripts.stub_hash, self.chain.mainnet
        return addresses.channel_address(stub, self._stake(desk), mainnet)

    async def strays(
        self, session_vk: bytes, outputs: Sequence[Utxo], origin: OutRef, asset: str = ""
    ) -> list[OutRef]:
        """Where channels of the key began that this purse paid for beside the one that began at
        *origin*, and that *outputs* are the rest of.
        """
        ours = await self._whose(self.desk(asset)).ours(outputs, session_vk)
        return [one for one in ours if one != origin]

    async def origin(self, session_vk: bytes, asset: str = "") -> OutRef:
        """Where the channel of the key began that stands now and that this purse paid for;
        :class:`~marketplace.chain.errors.ChannelUnknown`, :class:`ChannelTwice`.
        """
        found = (await self.outputs(asset)).get(session_vk, [])
        ours = await self._whose(self.desk(asset)).ours(found, session_vk)
        if len(ours) > 1:
            raise ChannelTwice(one_open.two(list(ours)))
        if not ours:
            raise ChannelUnknown(f"no channel of {session_vk.hex()[:16]} at this purse's address")
        return next(iter(ours))

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

    async def checked(self, terms: Agreed, origin: OutRef) -> int:
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
                async with self.turn():
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
        except TxRefused as refused:  # two top-ups spend one output: never both are included
            if inputs_gone(refused):
                return False
            raise
        return True

    async def close(self, session_vk: bytes, origin: OutRef, asset: str = "") -> bytes:
        """Start the close period: for a provider that is gone. The transaction's id."""
        return await self.close_view(await self._living(session_vk, origin, asset))

    async def close_view(self, view: ChannelView) -> bytes:
        """The same for a channel that was just looked at."""
        async with self.turn():
            return await self._close_view(view)

    async def _close_view(self, view: ChannelView) -> bytes:
        return (await close_channel(self.desk(view.unit.hex()), view)).sent.tx_id

    async def leave(
        self, view: ChannelView, voucher: Voucher | None = None, payout: str = ""
    ) -> tuple[Close | Finish, bytes] | None:
        """The next step out of a channel that no provider finishes, and its transaction's id; None
        while there is none to take. Close, and after the close period Finish, which pays what
        *voucher* promises and was never claimed, if *payout* is the address that the channel names,
        and sends the rest home.
        """
        async with self.turn():
            return await self._leave(view, voucher, _paid_at(payout, view))

    async def _leave(
        self, view: ChannelView, voucher: Voucher | None, to: bytes | None
    ) -> tuple[Close | Finish, bytes] | None:
        desk = self.desk(view.unit.hex())
        due = Due(view, voucher, to or b"", end=True)
        snapshot = await self.chain.snapshot(desk.scripts)
        match next_step(due, snapshot, _CONSUMER, busy=await in_flight(self.log)):
            case Close() as step:
                return step, await self._close_view(view)
            case Finish(claim) as step:
                paid, payouts = (voucher, {view.consts.payout: to}) if claim and to else (None, {})
                done = await finish_channels(desk, [(view, paid)], payouts)
                return step, done.sent.tx_id
            case _:
                return None

    async def pay(self, to: bytes, lovelace: int, purpose: str = "pay") -> bytes:
        """A plain payment, by *purpose* in the log; the transaction's id."""
        async with self.turn():
            return (await pay(self.desk(), [Out(to, lovelace)], purpose)).tx_id

    async def sweep(self, to: bytes) -> tuple[bytes, int]:
        """Everything to *to*, the collateral included: the transaction's id and what went. What was
        logged and never sent stays so: it would take what is to go.
        """
        async with spending(self._log_path):
            return await self._sweep(to)

    async def _sweep(self, to: bytes) -> tuple[bytes, int]:
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
