"""A router's keys, encrypted at rest in its folder, made at first use.

* ``router``: signs its offer and every route;
* ``end``: ends hops in, and holds no money: stolen, it can end one with an old voucher;
* ``purse``: its money. Opens hops out, is where their rest comes home, and pays every fee;
* one session key for each hop out, stored before the hop is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from marketplace.client.wallet.purse import Purse
from marketplace.domain.keys import Signer


@dataclass(frozen=True)
class RouterKeys:
    """Private keys in memory; never printed."""

    purse: Purse
    router: Signer
    end: Signer
    _sessions: dict[bytes, Signer] = field(default_factory=dict[bytes, Signer], repr=False)

    @staticmethod
    def load(folder: Path, phrase: str | None = None) -> RouterKeys:
        """Those of *folder*; *phrase* defaults to the process's passphrase."""
        purse = Purse.create(folder, passphrase=phrase)
        return RouterKeys(
            purse, purse.keys.load_or_create("router"), purse.keys.load_or_create("end")
        )

    def session(self, session_vk: bytes) -> Signer:
        """Of a hop out; :class:`~marketplace.keystore.KeyMissing`."""
        if session_vk not in self._sessions:
            self._sessions[session_vk] = self.purse.session(session_vk)
        return self._sessions[session_vk]

    def new_session(self) -> Signer:
        """For a hop out that is to be opened."""
        made = self.purse.new_session()
        self._sessions[made.verify_key] = made
        return made
