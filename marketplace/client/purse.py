"""The purse: a small hot balance whose keys open channels and sign for them, encrypted at rest.

A purse is a folder: ``keys/`` (see :mod:`marketplace.keystore`) and ``channels/`` (one book and one
lock for each channel, see :mod:`~marketplace.client.journal`). Its payment key signs open, top-up
and close; each channel has a random session key of its own, stored *before* the channel is opened,
so a crash can lose neither. ``wallet`` is the same with another name: a place to fund purses from.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from marketplace import keystore
from marketplace.chain import address as addresses
from marketplace.chain import datum, txs
from marketplace.chain.actions import (
    Desk,
    close_channel,
    finish_channels,
    open_channels,
    pay,
    top_up,
)
from marketplace.chain.channels import (
    ChannelEnded,
    ChannelFinder,
    ChannelView,
    at_depth,
    channel_capacity,
    check_channel,
)
from marketplace.chain.connect import ChainReader
from marketplace.chain.errors import FundsShort, TxRefused
from marketplace.chain.follow import Follower
from marketplace.chain.instance import scripts_for
from marketplace.chain.outputs import Out
from marketplace.chain.submit import FileLog
from marketplace.chain.txs import Opening
from marketplace.chain.utxo import OutRef
from marketplace.chain.wallet import Wallet
from marketplace.client.signin import SignedMessage, sign_message
from marketplace.domain.channel import Credential, Open
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer, hkdf_sha256
from marketplace.domain.terms import Terms
from marketplace.domain.units import show_ada
from marketplace.keystore import Keys, Keystore, StoredKey

_SWEEP_MARGIN: Final = 2_000_000  # fee and a change that may exist; the change goes along
_SESSION: Final = "session-"


def default_home() -> Path:
    """``$TALLY_HOME`` or ``~/.tally``."""
    return Path(os.environ.get("TALLY_HOME") or Path.home() / ".tally")


@dataclass(frozen=True)
class Purse:
    """An unlocked purse; *name* is the key that holds its money."""

    home: Path
    keys: Keys
    name: str = "purse"

    @staticmethod
    def load(
        home: Path | str | None = None, *, passphrase: str | None = None, name: str = "purse"
    ) -> Purse:
        """The purse of *home*; :class:`~marketplace.keystore.KeyMissing` if there is none yet."""
        where = Path(home) if home is not None else default_home()
        store = Keystore(where / "keys")
        if not any(key.name == name for key in store.list()):
            raise keystore.KeyMissing(f"{where} holds no {name}")
        keys = store.unlock(keystore.passphrase() if passphrase is None else passphrase)
        return Purse(where, keys, name)

    @staticmethod
    def create(
        home: Path | str | None = None, *, passphrase: str | None = None, name: str = "purse"
    ) -> Purse:
        """The purse of *home*, made if it is missing."""
        where = Path(home) if home is not None else default_home()
        where.mkdir(parents=True, exist_ok=True, mode=0o700)
        store = Keystore(where / "keys")
        given = keystore.passphrase(confirm=not store.exists) if passphrase is None else passphrase
        keys = store.unlock(given)
        keys.load_or_create(name)
        return Purse(where, keys, name)

    @property
    def signer(self) -> Signer:
        """The payment key."""
        return self.keys.load(self.name)

    @property
    def channels(self) -> Path:
        """Where the books of this purse's channels lie."""
        return self.home / "channels"

    def wallet(self, *, mainnet: bool) -> Wallet:
        """The key and a stake part derived from it: our channels always have a base address."""
        signer = self.signer
        return Wallet(signer, mainnet, stake_hash(signer))

    def address(self, *, mainnet: bool) -> str:
        """Bech32: where to send money to."""
        return addresses.to_text(self.wallet(mainnet=mainnet).address)

    def new_session(self) -> Signer:
        """A fresh session key, stored before anybody hears of it."""
        seed = Signer(os.urandom(32))
        return self.keys.create(_SESSION + seed.verify_key.hex(), seed.seed)

    def session(self, session_vk: bytes) -> Signer:
        """The key of one of its channels; :class:`~marketplace.keystore.KeyMissing`."""
        return self.keys.load(_SESSION + session_vk.hex())

    def sessions(self) -> list[StoredKey]:
        """Every session key of this purse, by its public part."""
        return [key for key in Keystore(self.home / "keys").list() if key.name.startswith(_SESSION)]

    def forget_session(self, session_vk: bytes) -> None:
        """A key that never came to be on chain; the quote it was for is gone."""
        self.keys.forget(_SESSION + session_vk.hex())

    def sign_in(self, message: bytes, *, mainnet: bool) -> SignedMessage:
        """A CIP-8 signature by the payment key, as a wallet's ``signData`` makes it."""
        wallet = self.wallet(mainnet=mainnet)
        return sign_message(wallet.signer, wallet.address, message)


def stake_hash(signer: Signer) -> bytes:
    """The stake part that belongs to a purse's payment key: derived, so a backup needs one key."""
    return Signer(hkdf_sha256(signer.seed, b"tally/purse-stake/v1")).key_hash


def public_address(home: Path, *, mainnet: bool, name: str = "purse") -> StoredKey | None:
    """The public part of the purse of *home*, without its passphrase; None if there is none."""
    del mainnet  # the address needs the stake part, which needs the key
    return next((k for k in Keystore(home / "keys").list() if k.name == name), None)


def _opens(body: bytes, terms: Terms) -> bool:
    try:
        stage = datum.read_stage(body)
    except Malformed:
        return False
    return isinstance(stage, Open) and stage.consts == terms.consts() and stage.claimed == 0


_CONFLICTS: Final = 4
_SPENDING: Final[defaultdict[Path, anyio.Lock]] = defaultdict(anyio.Lock)


@dataclass(frozen=True)
class Till:
    """A purse at one chain: what it has, and what it does there."""

    purse: Purse
    chain: ChainReader

    def desk(self, asset: str = "") -> Desk:
        """For the actions of :mod:`marketplace.chain`; its log is kept with the purse."""
        wallet = self.purse.wallet(mainnet=self.chain.mainnet)
        log = FileLog(
            self.purse.home / "transactions" / f"{self.purse.name}-{self.chain.magic}.jsonl"
        )
        return Desk(self.chain, wallet, asset, log)

    @property
    def address(self) -> str:
        """Bech32."""
        return self.purse.address(mainnet=self.chain.mainnet)

    async def balance(self) -> int:
        """Lovelace at its address, in blocks."""
        utxos = await self.chain.utxos(self.purse.wallet(mainnet=self.chain.mainnet).address)
        return sum(u.lovelace for u in utxos)

    async def reserve(self, terms: Terms) -> int:
        """Lovelace that a channel for *terms* holds beyond what it can pay; comes home at its end."""
        desk = self.desk(terms.asset)
        snapshot = await self.chain.snapshot(desk.scripts)
        at = addresses.channel_address(
            snapshot.scripts.stub_hash, self._stake(desk), snapshot.mainnet
        )
        body = datum.stage_bytes(Open(terms.consts(), 0))
        return txs.reserve(snapshot, Out(at, terms.ceiling, datum=body), desk.unit)

    async def open(self, terms: Terms, amount: int) -> OutRef:
        """Open the channel of *terms* with *amount* in it; its output. Waits for no block."""
        for turn in range(_CONFLICTS):
            desk = self.desk(terms.asset)
            opening = Opening(amount, lambda _first, _index: terms.consts(), self._stake(desk))
            async with _SPENDING[self.purse.home]:
                try:
                    return (await open_channels(desk, [opening])).refs[0]
                except TxRefused as refused:  # another process of this purse was faster
                    if not refused.conflict or turn == _CONFLICTS - 1:
                        raise
        raise AssertionError("unreachable")

    async def follow(self) -> None:
        """One look after its own transactions: seen, final, sent again after a rollback."""
        log = self.desk().log
        assert log is not None
        await Follower(self.chain, log).look()

    async def find_open(self, terms: Terms) -> OutRef | None:
        """An output that looks like the channel of *terms*: after a crash between sending the open
        transaction and noting its id. It is checked like any other before anything is signed.
        """
        desk = self.desk(terms.asset)
        snapshot = await self.chain.snapshot(desk.scripts)
        at = addresses.channel_address(
            snapshot.scripts.stub_hash, self._stake(desk), snapshot.mainnet
        )
        for utxo in await ChannelFinder(self.chain, desk.scripts, desk.unit).at_address(at):
            if _opens(utxo.datum or b"", terms):
                return utxo.ref
        return None

    async def look(
        self, session_vk: bytes, origin: OutRef, asset: str = ""
    ) -> ChannelView | ChannelEnded:
        """The channel as the chain shows it now."""
        return await ChannelFinder(self.chain, scripts_for(asset), bytes.fromhex(asset)).find(
            session_vk, origin
        )

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
        """Add *amount*; the capacity that it will have."""
        view = await self._living(session_vk, origin, asset)
        desk = self.desk(asset)
        await top_up(desk, view, amount)
        snapshot = await self.chain.snapshot(desk.scripts)
        return channel_capacity(snapshot, at_depth(view, 15)).most + amount

    async def close(self, session_vk: bytes, origin: OutRef, asset: str = "") -> bytes:
        """Start the close period: for a provider that is gone. The transaction's id."""
        return await self.close_view(await self._living(session_vk, origin, asset))

    async def close_view(self, view: ChannelView) -> bytes:
        """The same for a channel that was just looked at."""
        return (await close_channel(self.desk(view.unit.hex()), view)).sent.tx_id

    async def finish(self, view: ChannelView) -> bytes:
        """Send the rest home once the close period is over; the transaction's id.

        Takes nothing for the provider: whoever holds a voucher had the period to claim it.
        """
        done = await finish_channels(self.desk(view.unit.hex()), [(view, None)], {})
        return done.sent.tx_id

    async def on_its_way(self, view: ChannelView) -> bool:
        """Whether an unfinished transaction of this purse already spends *view*'s output."""
        log = self.desk(view.unit.hex()).log
        assert log is not None
        return any(view.utxo.ref in record.inputs for record in await log.pending())

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
        funds = txs.Funds(
            to, tuple(sorted(utxos, key=lambda u: (bool(u.assets), -u.lovelace))), None
        )
        draft = txs.pay(snapshot, funds, [Out(to, total - _SWEEP_MARGIN)])
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
