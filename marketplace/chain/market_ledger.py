"""The chain as the market's use cases see it: implements ``marketplace.market.base.ports.Ledger``.

The operator's key pays for claims and takes their bounty; it can touch nobody's money. Without a
key the market still reads channels and builds unsigned transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import anyio
import structlog

from marketplace.chain.actions import external_wallet
from marketplace.chain.actions.external_wallet import ForeignWallet
from marketplace.chain.actions.session import Desk
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Opening
from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder, ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum, txbytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChannelUnknown, NotDeployed, TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import TxRecord, spent_elsewhere
from marketplace.chain.settlement.batched_ends import EndBatcher, OfferedEnd
from marketplace.chain.settlement.consent import Consent
from marketplace.chain.settlement.costs import chain_fees
from marketplace.chain.settlement.settler import Settler
from marketplace.chain.settlement.wanted import Wanted
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for, unit_of
from marketplace.chain.transaction.signing import Unsigned
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.address import Credential
from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.money.channel import Closing, Open
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.transaction import FINAL_DEPTH, depth
from marketplace.domain.money.voucher import Voucher
from marketplace.market.base.ports import (
    AskEnds,
    ChannelOnChain,
    Claimable,
    Claimed,
    ClaimRound,
    EndOffer,
    EndsDone,
    Sighting,
    TxLook,
    UnsignedTx,
)

_log = structlog.get_logger(__name__)
_NO_STAKE: Final = bytes(28)
_FEES_S: Final = 60.0
"""Fees are reckoned again so often: parameters change with an epoch."""


class ChainLedger:
    """One chain. *desk* is the operator's wallet and log, or None; *public_url* is told to
    clients.
    """

    def __init__(self, chain: ChainReader, desk: Desk | None, public_url: str = "") -> None:
        self._chain = chain
        self._desk = desk
        self._public_url = public_url
        self._finders: dict[str, ChannelFinder] = {}
        self._settlers: dict[str, Settler] = {}
        self._origins: dict[tuple[bytes, str], OutRef] = {}  # an output's place never changes
        self._fees: tuple[float, ChainFees] | None = None
        self._purse = anyio.Lock()  # one transaction is built from the operator's money at a time

    async def network(self) -> dict[str, Any]:
        """Magic, script hashes and the deployed reference scripts."""
        scripts = scripts_for()
        deployment = await self._chain.deployment(scripts)
        return {
            "magic": self._chain.magic,
            "settle_hash": scripts.settle_hash.hex(),
            "stub_hash": scripts.stub_hash.hex(),
            "deployed": deployment is not None,
            "chain_url": self._public_url,
        }

    async def fees(self) -> ChainFees | None:
        """What the chain takes for each step; None where no channel can be yet."""
        known, now = self._fees, anyio.current_time()
        if known is None or now >= known[0] + _FEES_S:
            try:
                known = now, chain_fees(await self._chain.snapshot(scripts_for()))
            except NotDeployed:
                return None
            self._fees = known
        return known[1]

    async def reserve(self, terms: Terms) -> int:
        """Lovelace beyond the ceiling: Close and the refund need it, and it goes home."""
        snapshot = await self._chain.snapshot(scripts_for(terms.asset))
        at = addresses.channel_address(
            snapshot.scripts.stub_hash, Credential(_NO_STAKE), snapshot.mainnet
        )
        body = datum.stage_bytes(Open(terms.consts(), 0))
        return plans.reserve(snapshot, Out(at, terms.ceiling, datum=body), unit_of(terms.asset))

    async def channel(self, terms: Terms, open_tx: str) -> ChannelOnChain | None:
        """The channel that *open_tx* opened, None while no block shows it."""
        try:
            found = await self._find(terms, open_tx)
        except ChannelUnknown:
            return None
        if isinstance(found, ChannelEnded):
            return ChannelOnChain(
                ChannelStage.ENDED, 0, found.claimed, found.finished_by.hex(), found.height
            )
        closing = found.stage if isinstance(found.stage, Closing) else None
        return ChannelOnChain(
            state=ChannelStage.CLOSING if closing else ChannelStage.OPEN,
            value=found.amount,
            claimed=found.claimed,
            ref=str(found.utxo.ref),
            depth=found.depth,
            expire_at_ms=closing.expire_at_ms if closing else 0,
            agreed=found.consts == terms.consts(),
        )

    async def unsigned_open(
        self, terms: Terms, amount: int, address: str, utxos: Sequence[bytes]
    ) -> UnsignedTx:
        """A plain payment to the channel's address, from the wallet at *address*."""
        wallet = await self._wallet(address, utxos)
        opening = Opening(amount, lambda _first, _index: terms.consts(), _stake_of(wallet.change))
        unsigned = await external_wallet.unsigned_open(self._chain, wallet, [opening], terms.asset)
        return _shown(unsigned, {"step": "open", "amount": amount, "session_vk": _hex(terms)})

    async def unsigned_top_up(
        self, terms: Terms, open_tx: str, amount: int, address: str, utxos: Sequence[bytes]
    ) -> UnsignedTx:
        """Add *amount* to the channel."""
        view = await self._living(terms, open_tx)
        wallet = await self._wallet(address, utxos)
        unsigned = await external_wallet.unsigned_top_up(self._chain, wallet, view, amount)
        return _shown(unsigned, {"step": "top up", "amount": amount, "session_vk": _hex(terms)})

    async def unsigned_close(
        self, terms: Terms, open_tx: str, address: str, utxos: Sequence[bytes]
    ) -> UnsignedTx:
        """Start the close period."""
        view = await self._living(terms, open_tx)
        wallet = await self._wallet(address, utxos)
        unsigned = await external_wallet.unsigned_close(self._chain, wallet, view)
        return _shown(unsigned, {"step": "close", "session_vk": _hex(terms)})

    async def witness(self, body: bytes, witnesses: bytes) -> tuple[str, bytes]:
        """The wallet's signatures, put into the very bytes that it signed."""
        signed = external_wallet.signed_by_wallet(external_wallet.restore(body), witnesses)
        return signed.tx_id.hex(), signed.bytes

    async def submit(self, signed: bytes) -> str:
        """The id; submitting the same bytes twice is no error."""
        tx_id = txbytes.split(signed).tx_id
        try:
            return (await self._chain.submit(signed)).hex()
        except TxRefused:
            if await self._chain.transaction(tx_id) is None:
                raise
            return tx_id.hex()

    async def claim(self, channels: Sequence[Claimable]) -> ClaimRound:
        """One round of the settler over *channels*: what was sent, ids logged before the bytes
        left.

        The settler follows what it sent by its own log, also over rollbacks and restarts; so every
        channel is passed to it each round, whatever was claimed: the chain alone says what is due.
        """
        done = ClaimRound([], {})
        if self._desk is None:
            return done
        wanted: dict[str, list[Wanted]] = {}
        for each in channels:
            want = await self._wanted(each)
            if want is not None:
                wanted.setdefault(each.terms.asset, []).append(want)
        # Also without channels: what an earlier round sent is followed, and sent again if it
        # vanished.
        for asset in sorted(wanted.keys() | self._settlers.keys() | {""}):
            settler = self._settlers.get(asset)
            if settler is None:
                settler = self._settlers[asset] = Settler(replace(self._desk, asset=asset))
            async with self._purse:
                await self._round(settler, wanted.get(asset, []), done)
        return done

    async def end_together(
        self, offers: Sequence[EndOffer], ask: AskEnds, share_most: int
    ) -> EndsDone:
        """Ends of many adapters in one transaction: the operator pays, each adapter signs."""
        if self._desk is None:
            return EndsDone(unfit={o.terms.session_vk: "this market pays for none" for o in offers})
        unfit: dict[bytes, str] = {}
        wanted: list[OfferedEnd] = []
        for each in offers:
            try:
                wanted.append(_offered(each))
            except Refusal as refusal:
                unfit[each.terms.session_vk] = refusal.message

        async def consent(provider: str, tx: bytes) -> Consent | str:
            answer = await ask(provider, tx)
            return answer if isinstance(answer, str) else Consent(*answer)

        async with self._purse:
            done = await EndBatcher(self._desk, share_most).round(wanted, consent)
        unfit |= done.unfit
        if done.sent is None:
            return EndsDone(left=done.left, unfit=unfit)
        sent = done.sent.sent
        ended = tuple(one.session_vk for one in done.ended)
        return EndsDone(sent.tx_id.hex(), sent.fee, ended, done.left, unfit)

    async def _wanted(self, each: Claimable) -> Wanted | None:
        """None for what is not on the chain yet, or was told wrongly: it stops no other channel."""
        try:
            address = addresses.from_text(each.payout_address)
            origin = await self._origin(each.terms, each.open_tx)
        except ChannelUnknown:
            return None
        except Refusal as refusal:
            _log.warning("not_claimable", channel=_hex(each.terms), cause=refusal.line())
            return None
        if addresses.payout_hash(address) != each.terms.payout:
            _log.warning("not_claimable", channel=_hex(each.terms), cause="another payout address")
            return None
        return Wanted(
            each.terms.session_vk, origin, each.voucher, address, drain=each.urgent,
            consts=each.terms.consts(), owed=each.owed,
        )  # fmt: skip

    async def _round(self, settler: Settler, wanted: list[Wanted], done: ClaimRound) -> None:
        found = await settler.round(wanted)
        for settled in found.sent:
            claims = {
                datum.read_stage(move.utxo.datum or b"").consts.session_vk: (
                    datum.read_stage(move.utxo.datum or b"").claimed + will.taken
                )
                for move, will in zip(settled.moves, settled.wills, strict=True)
            }
            sent = settled.sent
            done.sent.append(Claimed(sent.tx_id.hex(), sent.bytes, sent.fee, claims))
        for session_vk, view in found.views.items():
            state = ChannelStage.CLOSING if view.closing else ChannelStage.OPEN
            done.seen[session_vk] = Sighting(state, view.claimed)
        height = (await self._chain.tip()).height if found.ended else 0
        for session_vk, ended in found.ended.items():
            deep = bool(ended.height) and depth(height, ended.height) >= FINAL_DEPTH
            done.seen[session_vk] = Sighting(ChannelStage.ENDED, ended.claimed, deep)

    async def look(self, tx: str, body: bytes) -> TxLook:
        """Where a transaction stands; *body* may be empty where only its id is known."""
        included, tip = await self._chain.transaction(_tx_id(tx)), await self._chain.tip()
        signed = bool(body) and bool(txbytes.key_witnesses(txbytes.split(body).witnesses))
        if included is not None:
            return TxLook(max(1, depth(tip.height, included.height)), False, signed)
        if not body:
            return TxLook(0, False, False)
        record = TxRecord(_tx_id(tx), body, "")
        late = record.until is not None and tip.slot >= record.until
        return TxLook(0, late or bool(await spent_elsewhere(self._chain, record)), signed)

    # ---- inside ----------------------------------------------------------------------------

    async def _find(self, terms: Terms, open_tx: str) -> ChannelView | ChannelEnded:
        finder = self._finders.setdefault(
            terms.asset,
            ChannelFinder(self._chain, scripts_for(terms.asset), unit_of(terms.asset)),
        )
        return await finder.find(terms.session_vk, await self._origin(terms, open_tx))

    async def _living(self, terms: Terms, open_tx: str) -> ChannelView:
        found = await self._find(terms, open_tx)
        if isinstance(found, ChannelEnded):
            raise ChannelUnknown("the channel has ended already")
        return found

    async def _origin(self, terms: Terms, open_tx: str) -> OutRef:
        """Which output of *open_tx* is the channel: the one at the contract's address that names
        its key.
        """
        known = self._origins.get((terms.session_vk, open_tx))
        if known is not None:
            return known
        moves = await self._chain.moves(_tx_id(open_tx))
        for output in moves.outputs if moves is not None else ():
            if _opens(output.utxo, terms):
                self._origins[terms.session_vk, open_tx] = output.utxo.ref
                return output.utxo.ref
        raise ChannelUnknown(f"no block shows that {open_tx} opened this channel")

    async def _wallet(self, address: str, utxos: Sequence[bytes]) -> ForeignWallet:
        change = _address(address)
        given = tuple(txbytes.read_utxo(raw) for raw in utxos)
        return ForeignWallet(change, given or tuple(await self._chain.utxos(change)))


def _offered(each: EndOffer) -> OfferedEnd:
    """As the builder takes it; a Refusal for what was told wrongly."""
    said, terms = each.offered, each.terms
    if terms.asset:
        raise ChannelUnfit("ends in a token are not put together")
    if len(said.tx_id) != 32 or not 0 <= said.index < 2**16:
        raise Malformed("that names no output")
    address = addresses.from_text(each.payout_address)
    voucher = Voucher(terms.session_vk, said.cumulative, said.signature)
    claim = None
    if said.signature:
        voucher.verify()
        claim = plans.claim_step(voucher, said.take_to)
    return OfferedEnd(
        each.provider, terms.adapter_vkh, terms.session_vk, OutRef(said.tx_id, said.index), claim,
        address, said.until_ms,
    )  # fmt: skip


def _opens(utxo: Utxo, terms: Terms) -> bool:
    """Whether it is a channel of the terms' session key: a copy of the datum elsewhere is none."""
    try:
        found = datum.read_channel(utxo)
    except Malformed:
        return False
    at = Credential(scripts_for(terms.asset).stub_hash, is_script=True)
    return found.address.payment == at and found.stage.consts.session_vk == terms.session_vk


def _address(text: str) -> bytes:
    """From Bech32, or from hex as CIP-30's ``getChangeAddress`` gives it."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return addresses.from_text(text)
    addresses.is_mainnet(raw)
    return raw


def _stake_of(address: bytes) -> Credential | None:
    """The stake part of a base address (CIP-19: types 0 to 3), so that the refund keeps it."""
    kind = address[0] >> 4
    if kind > 3 or len(address) != 57:
        return None
    return Credential(address[29:], is_script=kind in (2, 3))


def _shown(unsigned: Unsigned, summary: dict[str, Any]) -> UnsignedTx:
    return UnsignedTx(unsigned.tx_id.hex(), unsigned.bytes, unsigned.fee, summary)


def _tx_id(text: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raise Malformed("a transaction id is 64 hex digits") from None
    if len(raw) != 32:
        raise Malformed("a transaction id is 64 hex digits")
    return raw


def _hex(terms: Terms) -> str:
    return terms.session_vk.hex()
