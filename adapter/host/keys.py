"""The adapter's three keys, encrypted at rest by the keystore; no key of the payout among them.

* ``meter``: Ed25519, signs terms and receipts and opens the secrets that consumers sealed to it;
  its public key is the provider's name;
* ``end``: Ed25519, ends channels, and holds no money, so that it may sign what others built:
  stolen, it can end channels with an old voucher, nothing more. In the keystore it is ``hot``, as
  it was named when it paid fees as well: open channels name its hash;
* ``fee``: Ed25519, pays the fees of what the adapter sends: stolen, its small balance is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, unseal
from marketplace.keystore import Keystore
from marketplace.passphrase import passphrase


class SecretSealedElsewhere(Refusal):
    """A secret that this adapter's key does not open."""

    code = "SECRET_NOT_OURS"
    remedy = "seal the secret to the key that signed the terms, and post the job again"


@dataclass(frozen=True)
class Keys:
    """Private keys in memory; never printed."""

    meter: Signer
    end: Signer
    fee: Signer

    @property
    def provider(self) -> str:
        """The provider's name everywhere: hex of the metering key."""
        return self.meter.verify_key.hex()

    def open_secrets(self, sealed: Mapping[str, bytes]) -> dict[str, str]:
        """The values, in clear; keep them out of logs and stores.
        :class:`SecretSealedElsewhere`.
        """
        opened: dict[str, str] = {}
        for name, box in sealed.items():
            try:
                opened[name] = unseal(self.meter, box).decode()
            except (Malformed, UnicodeDecodeError) as error:
                raise SecretSealedElsewhere(f"secret {name} does not open") from error
        return opened


def load_keys(folder: Path, phrase: str | None = None) -> Keys:
    """The keys in *folder*, made at first use; *phrase* defaults to the process's passphrase."""
    store = Keystore(folder)
    secret = phrase if phrase is not None else passphrase(confirm=not store.exists)
    unlocked = store.unlock(secret)
    return Keys(
        meter=unlocked.load_or_create("meter"),
        end=unlocked.load_or_create("hot"),
        fee=unlocked.load_or_create("fee"),
    )
