"""Private keys at rest: one folder, encrypted under a passphrase, readable by its owner only.

``keystore.json`` holds a random data key, sealed (XSalsa20-Poly1305, NaCl secretbox) under a key
that argon2id derives from the passphrase; every ``<name>.key`` holds one 32-byte seed sealed under
the data key together with its own name, so that two files cannot be exchanged. A passphrase is
changed by sealing the data key anew: an older copy of the folder still opens with the older one.
Public keys are in clear, for listing without a passphrase::

    keys = Keystore(home / "purse").unlock(passphrase())     # one argon2id, about 0.5 s
    purse = keys.load_or_create("purse")                     # -> Signer

Its work is libsodium's *moderate* (256 MiB, three passes), for a passphrase that a person thought
of. One that a machine drew at random is sealed with the least: nobody guesses 128 bits, whatever a
guess costs (libsodium's manual, "Password hashing"). A keystore that was sealed with less opens as
it was written, and is sealed anew with *moderate* when its passphrase is changed.

There is no unencrypted form, on a devnet either. Where the passphrase comes from:
:mod:`marketplace.passphrase`.

* Refusal
    x KeyExists, KeyMissing, PassphraseWrong, KeystoreOfAnother, KeystoreDamaged
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from nacl import pwhash, secret
from nacl import utils as entropy
from nacl.exceptions import CryptoError

from marketplace import disk
from marketplace.disk import DiskFault, Files
from marketplace.domain import canonical
from marketplace.domain.errors import Conflict, Forbidden, Malformed, NotFound, Refusal
from marketplace.domain.keys import Signer
from marketplace.passphrase import LEAST, NewPassphraseMissing, PassphraseMissing

_TAG: Final = "tally/key/v1"
_MASTER_TAG: Final = "tally/keystore/v1"
DRAWN: Final = 22
"""Characters of base64 that hold 128 bits."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class KeyExists(Conflict):
    """A key of that name is there already; nothing was overwritten."""

    code = "KEY_EXISTS"
    remedy = "choose another name, or load the one that exists"


class KeyMissing(NotFound):
    """No key of that name, or no keystore in that folder."""

    code = "KEY_MISSING"
    remedy = (
        "create it first (`tally wallet new`, `tally purse fund`, `tally market address`, `tally"
        " adapter run`), or name the right --home or --state"
    )


class PassphraseWrong(Forbidden):
    """The passphrase does not open this keystore."""

    code = "PASSPHRASE_WRONG"
    remedy = "use the one that the keystore was made with or last changed to; nobody can recover it"


class KeystoreOfAnother(Forbidden):
    """The keystore is another account's: what we wrote into it, that account could not read."""

    code = "KEYSTORE_OF_ANOTHER"
    remedy = "run it as the account that the keystore belongs to (sudo -u); nothing was changed"


class KeystoreDamaged(Malformed):
    """A file of the keystore is not what it was when it was written."""

    code = "KEYSTORE_DAMAGED"
    remedy = "restore the folder from its backup"


@dataclass(frozen=True)
class StoredKey:
    """What can be known without the passphrase: *verify_key* is 32 bytes."""

    name: str
    verify_key: bytes


@dataclass(frozen=True)
class Keys:
    """An unlocked keystore; the data key is never printed."""

    folder: Path
    _data_key: bytes = field(repr=False)
    _files: Files = field(default=disk.OS, repr=False)

    def create(self, name: str, seed: bytes | None = None) -> Signer:
        """A new key, random unless *seed* (32 bytes) is given. :class:`KeyExists`."""
        signer = Signer(entropy.random(32) if seed is None else seed)
        body = canonical.encode([_TAG, name, signer.seed])
        box = bytes(secret.SecretBox(self._data_key).encrypt(body))
        row = {"version": 1, "public": signer.verify_key.hex(), "box": _text(box)}
        exists = KeyExists(f"key {name!r} exists")
        _write_new(self.folder / f"{_checked(name)}.key", row, exists, self._files)
        return signer

    def load(self, name: str) -> Signer:
        """The key *name*. :class:`KeyMissing`, :class:`KeystoreDamaged`."""
        row = _read(self.folder / f"{_checked(name)}.key", KeyMissing(f"there is no key {name!r}"))
        try:
            body = secret.SecretBox(self._data_key).decrypt(_bytes(row, "box"))
            found, seed = canonical.decode_tagged(body, _TAG, 2)
        except CryptoError as error:
            raise KeystoreDamaged(f"key {name!r} does not open with this keystore") from error
        if found != name or Signer(seed).verify_key.hex() != row.get("public"):
            raise KeystoreDamaged(f"the file of key {name!r} holds another key")
        return Signer(seed)

    def load_or_create(self, name: str) -> Signer:
        """The key *name*, made at first use; safe when two processes do so at once."""
        try:
            return self.load(name)
        except KeyMissing:
            pass
        try:
            return self.create(name)
        except KeyExists:
            return self.load(name)

    def forget(self, name: str) -> None:
        """Remove a key that can never be needed again (a settled channel's session key)."""
        (self.folder / f"{_checked(name)}.key").unlink(missing_ok=True)


class Keystore:
    """The keys of one folder (made 0700, files 0600)."""

    def __init__(self, folder: Path | str, files: Files = disk.OS) -> None:
        self.folder = Path(folder)
        self._files = files

    @property
    def _master(self) -> Path:
        return self.folder / "keystore.json"

    @property
    def exists(self) -> bool:
        """True once a passphrase was set."""
        return self._master.exists()

    def unlock(self, passphrase: str) -> Keys:
        """All keys, for a process that uses several: argon2id runs once. Made at first use."""
        if not self.exists:
            self.make(passphrase)
        return Keys(self.folder, self._open(passphrase), self._files)

    def create(self, name: str, passphrase: str, seed: bytes | None = None) -> Signer:
        """A new key; the keystore itself is made at first use."""
        return self.unlock(passphrase).create(name, seed)

    def load(self, name: str, passphrase: str) -> Signer:
        """One key; :class:`KeyMissing`, :class:`PassphraseWrong`."""
        if not self.exists:
            raise KeyMissing(f"{self.folder} holds no keystore")
        return self.unlock(passphrase).load(name)

    def list(self) -> list[StoredKey]:
        """Names and public keys, by name; needs no passphrase."""
        found: list[StoredKey] = []
        for path in sorted(self.folder.glob("*.key")):
            row = _read(path, KeyMissing(path.name))
            try:
                found.append(StoredKey(path.stem, bytes.fromhex(str(row["public"]))))
            except (KeyError, ValueError) as error:
                raise KeystoreDamaged(f"{path.name} names no public key") from error
        return found

    def change_passphrase(self, old: str, new: str) -> None:
        """Seal the data key under *new*, with today's work; every key stays as it is.

        One at a time, and in one step: after a crash or a :class:`~marketplace.disk.DiskFault`
        either *old* or *new* opens the keystore. :class:`NewPassphraseMissing`,
        :class:`PassphraseWrong`, :class:`KeystoreOfAnother`.
        """
        if len(new) < LEAST:
            raise NewPassphraseMissing(f"a passphrase has {LEAST} characters or more")
        if not self.exists:
            raise KeyMissing(f"{self.folder} holds no keystore")
        if self._master.stat().st_uid != os.geteuid():
            raise KeystoreOfAnother(f"{self.folder} belongs to another account")
        with _one_at_a_time(self.folder):
            row = _sealed(self._open(old), new)
            try:
                disk.write_whole(self._master, json.dumps(row).encode(), self._files)
            except DiskFault as fault:  # it may have come after the new file was in place
                both = "the old passphrase opens the keystore, or else the new one does"
                raise type(fault)(f"{fault.message}; {both}") from fault

    def make(self, passphrase: str, *, drawn: bool = False) -> None:
        """The keystore itself, without a key; nothing where it exists. *drawn*: the passphrase was
        drawn at random, 128 bits or more.
        """
        if self.exists:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            os.chmod(self.folder, 0o700)
        except OSError as error:
            raise disk.fault(error, "a keystore cannot be made", self.folder) from error
        try:
            row = _sealed(entropy.random(32), passphrase, drawn=drawn)
            _write_new(self._master, row, KeyExists("made"), self._files)
        except KeyExists:
            return  # another process was first: its data key holds

    def _open(self, passphrase: str) -> bytes:
        row = _read(self._master, KeyMissing(f"{self.folder} holds no keystore"))
        operations, memory = row.get("operations"), row.get("memory")
        if not isinstance(operations, int) or not isinstance(memory, int):
            raise KeystoreDamaged("keystore.json lacks its argon2id parameters")
        if (
            operations > pwhash.argon2id.OPSLIMIT_SENSITIVE
            or memory > pwhash.argon2id.MEMLIMIT_SENSITIVE
        ):
            raise KeystoreDamaged("keystore.json asks for more work than any keystore we write")
        try:
            key = _derive(passphrase, _bytes(row, "salt"), operations, memory)
            body = secret.SecretBox(key).decrypt(_bytes(row, "box"))
        except CryptoError as error:
            raise PassphraseWrong(f"this passphrase does not open {self.folder}") from error
        return canonical.want_bytes(
            canonical.decode_tagged(body, _MASTER_TAG, 1)[0], 32, "data key"
        )


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Generator[None]:
    """Two that change one keystore follow each other; the kernel gives the lock back after a
    crash.
    """
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sealed(data_key: bytes, passphrase: str, *, drawn: bool = False) -> dict[str, Any]:
    least = DRAWN if drawn else LEAST
    if len(passphrase) < least:
        raise PassphraseMissing(f"a passphrase has {least} characters or more")
    operations, memory = pwhash.argon2id.OPSLIMIT_MODERATE, pwhash.argon2id.MEMLIMIT_MODERATE
    if drawn:
        operations, memory = pwhash.argon2id.OPSLIMIT_MIN, pwhash.argon2id.MEMLIMIT_MIN
    salt = entropy.random(pwhash.argon2id.SALTBYTES)
    key = _derive(passphrase, salt, operations, memory)
    box = bytes(secret.SecretBox(key).encrypt(canonical.encode([_MASTER_TAG, data_key])))
    return {
        "version": 1,
        "kdf": "argon2id",
        "operations": operations,
        "memory": memory,
        "salt": _text(salt),
        "box": _text(box),
    }


def _derive(passphrase: str, salt: bytes, operations: int, memory: int) -> bytes:
    try:
        return pwhash.argon2id.kdf(
            secret.SecretBox.KEY_SIZE, passphrase.encode(), salt, operations, memory
        )
    except (ValueError, TypeError) as error:
        raise KeystoreDamaged(f"keystore.json: {error}") from error


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Malformed(f"{name!r} is not a key's name: lower case letters, digits, . _ -")
    return name


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(row: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(row[name], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise KeystoreDamaged(f"the keystore's {name} cannot be read") from error


def _read(path: Path, missing: Refusal) -> dict[str, Any]:
    try:
        row = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise missing from None
    except (OSError, ValueError) as error:
        raise KeystoreDamaged(f"{path.name} cannot be read: {error}") from error
    if not isinstance(row, dict) or cast("dict[str, Any]", row).get("version") != 1:
        raise KeystoreDamaged(f"{path.name} is not of version 1")
    return cast("dict[str, Any]", row)


def _write_new(path: Path, row: Mapping[str, Any], exists: Refusal, files: Files) -> None:
    """Whole or not at all, and never over another: a hard link refuses what exists.

    :class:`~marketplace.disk.DiskFault`; the key is then not there.
    """
    fresh = path.with_name(f".new-{secrets.token_hex(8)}")
    disk.new_file(fresh, json.dumps(row).encode(), files)
    try:
        os.link(fresh, path)
        disk.sync_folder(path.parent, files)
    except FileExistsError:
        raise exists from None
    except OSError as error:
        raise disk.fault(error, "a key cannot be stored", path) from error
    finally:
        os.unlink(fresh)
