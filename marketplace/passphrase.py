"""Where a keystore's passphrase comes from: nothing is ever read from an argument or a variable's
value.

From the file named by ``TALLY_PASSPHRASE_FILE``, from the systemd credential ``tally-passphrase``,
or from a prompt; a new one, where it is changed, from ``TALLY_NEW_PASSPHRASE_FILE``,
``tally-new-passphrase``, or a prompt.

* Refusal
    x PassphraseMissing
        x NewPassphraseMissing
"""

from __future__ import annotations

import getpass
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace.domain.errors import Refusal

LEAST: Final = 8
"""Characters of the shortest passphrase that protects anything."""


class PassphraseMissing(Refusal):
    """Nobody gave a passphrase, or one that cannot protect anything."""

    code = "PASSPHRASE_MISSING"
    remedy = (
        "write one of 8 characters or more to a file that only you can read and name it in"
        " TALLY_PASSPHRASE_FILE, pass the systemd credential tally-passphrase, or start from a"
        " terminal"
    )


class NewPassphraseMissing(PassphraseMissing):
    """Nobody gave the passphrase that a keystore is to have, or one that cannot protect
    anything.
    """

    code = "NEW_PASSPHRASE_MISSING"
    remedy = (
        "write one of 8 characters or more to a file that only you can read and name it in "
        "TALLY_NEW_PASSPHRASE_FILE, or start from a terminal; nothing was changed"
    )


@dataclass(frozen=True)
class _Places:
    """Where one passphrase may be given."""

    variable: str
    credential: str
    prompt: str


_PRESENT: Final = _Places("TALLY_PASSPHRASE_FILE", "tally-passphrase", "Passphrase")
_NEW: Final = _Places("TALLY_NEW_PASSPHRASE_FILE", "tally-new-passphrase", "New passphrase")


def passphrase(*, confirm: bool = False, ask: bool = True) -> str:
    """The passphrase of this process: file, systemd credential, or prompt, in this order.

    *confirm* asks twice (for a keystore that is being made); without a terminal, or with *ask*
    off, :class:`PassphraseMissing`.
    """
    return _given(_PRESENT, confirm=confirm, ask=ask)


def new_passphrase() -> str:
    """What a keystore's passphrase is to be: from the same three places, under names of its own,
    and asked for twice. :class:`NewPassphraseMissing`.
    """
    try:
        return _given(_NEW, confirm=True, ask=True)
    except PassphraseMissing as missing:
        raise NewPassphraseMissing(missing.message) from missing


def _given(places: _Places, *, confirm: bool, ask: bool) -> str:
    named = os.environ.get(places.variable)
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if named:
        return _from_file(Path(named), private=True)
    if credentials and (Path(credentials) / places.credential).exists():
        # systemd hands credentials over in a folder that only the service sees
        return _from_file(Path(credentials) / places.credential, private=False)
    if not ask or not sys.stdin.isatty():
        raise PassphraseMissing(f"no {places.prompt.lower()} was given and nobody is there to ask")
    given = getpass.getpass(f"{places.prompt}: ")
    if confirm and getpass.getpass("Again: ") != given:
        raise PassphraseMissing("the two passphrases differ")
    return given


def _from_file(path: Path, *, private: bool) -> str:
    try:
        text = path.read_text().strip("\r\n")
        exposed = private and _others_can_read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise PassphraseMissing(f"cannot read the passphrase file {path}: {error}") from error
    if exposed:
        raise PassphraseMissing(f"others on this machine can read {path}: chmod 600 {path}")
    return text


def _others_can_read(path: Path) -> bool:
    """True when another account, of the file's group or a stranger's, can reach and read *path*."""
    resolved = path.resolve()
    readable = resolved.stat().st_mode
    above = [parent.stat().st_mode for parent in resolved.parents]
    if readable & stat.S_IROTH and all(mode & stat.S_IXOTH for mode in above):
        return True
    # Whose group a folder above is does not matter here: any way in counts.
    way_in = stat.S_IXGRP | stat.S_IXOTH
    return bool(readable & stat.S_IRGRP) and all(mode & way_in for mode in above)
