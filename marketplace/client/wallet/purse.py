"""The purse: a small hot balance whose keys open channels and sign for them, encrypted at rest.

A purse is a folder: ``keys/`` (see :mod:`marketplace.keystore`) and ``channels/`` (one book and one
lock for each channel, see :mod:`~marketplace.client.payer.journal`). Its payment key signs open,
top-up and close; each channel has a random session key of its own, stored *before* the channel is
opened, so a crash can lose neither. ``wallet`` is the same with another name: a place to fund
purses from.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace import keystore
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.encoding import address as addresses
from marketplace.client.net.signin import SignedMessage, sign_message
from marketplace.domain.hkdf import hkdf_sha256
from marketplace.domain.keys import Signer
from marketplace.keystore import Keys, Keystore, StoredKey
from marketplace.passphrase import passphrase as ask_passphrase

SESSION: Final = "session-"
_MADE_BY: Final = {
    "operator": "tally market address",
    "purse": "tally purse fund",
    "wallet": "tally wallet new",
}
"""The command that makes a key, where it is another than the one that misses it."""


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
            made_by = f": `{_MADE_BY[name]}` makes one" if name in _MADE_BY else ""
            raise keystore.KeyMissing(f"{where} holds no {name}{made_by}")
        keys = store.unlock(ask_passphrase() if passphrase is None else passphrase)
        return Purse(where, keys, name)

    @staticmethod
    def create(
        home: Path | str | None = None, *, passphrase: str | None = None, name: str = "purse"
    ) -> Purse:
        """The purse of *home*, made if it is missing."""
        where = Path(home) if home is not None else default_home()
        where.mkdir(parents=True, exist_ok=True, mode=0o700)
        store = Keystore(where / "keys")
        given = ask_passphrase(confirm=not store.exists) if passphrase is None else passphrase
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
        return self.keys.create(SESSION + seed.verify_key.hex(), seed.seed)

    def session(self, session_vk: bytes) -> Signer:
        """The key of one of its channels; :class:`~marketplace.keystore.KeyMissing`."""
        return self.keys.load(SESSION + session_vk.hex())

    def sessions(self) -> list[StoredKey]:
        """Every session key of this purse, by its public part."""
        return [key for key in Keystore(self.home / "keys").list() if key.name.startswith(SESSION)]

    def forget_session(self, session_vk: bytes) -> None:
        """A key that never came to be on chain; the quote it was for is gone."""
        self.keys.forget(SESSION + session_vk.hex())

    def sign_in(self, message: bytes, *, mainnet: bool) -> SignedMessage:
        """A CIP-8 signature by the payment key, as a wallet's ``signData`` makes it."""
        wallet = self.wallet(mainnet=mainnet)
        return sign_message(wallet.signer, wallet.address, message)


def stake_hash(signer: Signer) -> bytes:
    """The stake part that belongs to a purse's payment key: derived, so a backup needs one key."""
    return Signer(hkdf_sha256(signer.seed, b"tally/purse-stake/v1")).key_hash
