"""``tally purse passphrase``, and the same of a wallet and an adapter: a keystore's passphrase
changed.
"""

from __future__ import annotations

from pathlib import Path

from marketplace.cli.shared.screen import out
from marketplace.keystore import KeyMissing, Keystore
from marketplace.passphrase import new_passphrase, passphrase


def change_passphrase(folder: Path) -> None:
    """Ask for the passphrase of the keystore in *folder* and for the new one, and seal it anew.

    :class:`KeyMissing` before anything is asked; else what :meth:`Keystore.change_passphrase`
    refuses.
    """
    store = Keystore(folder)
    if not store.exists:
        raise KeyMissing(f"{folder} holds no keystore")
    store.change_passphrase(passphrase(), new_passphrase())
    out.print(
        f"{folder} opens with the new passphrase. Whatever starts unattended needs it from now on"
        " (TALLY_PASSPHRASE_FILE, tally-passphrase); an older copy of the folder still opens with"
        " the old one.",
        markup=False,
    )
