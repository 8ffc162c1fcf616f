"""A volume's content outside of it: a tar archive in age's format (https://age-encryption.org/v1).

Anybody opens it with the ``age`` command who has an identity that it was sealed to. Without
another it is sealed to the purse's own, which follows from the purse's key alone: whoever restores
the purse opens what was exported before.
"""

from __future__ import annotations

import os
import tarfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

import pyrage

from marketplace.chain.encoding import bech32
from marketplace.domain.errors import Refusal, TallyError
from marketplace.domain.hkdf import hkdf_sha256
from marketplace.domain.keys import Signer
from marketplace.domain.work.pool_keys import MOST_FILE, refuse_in
from marketplace.domain.work.workload import DEFAULT_USER

MAGIC: Final = b"age-encryption.org/"


class NoArchive(Refusal):
    """What should be a volume's content is none, or is sealed to somebody else."""

    code = "NO_ARCHIVE"
    remedy = "give a folder, a tar archive, or what `tally volume export` wrote, with its identity"


def identity_of(purse: Signer) -> pyrage.x25519.Identity:
    """The one that opens what was exported to *purse*, the payment key."""
    secret = hkdf_sha256(purse.seed, b"tally/volumes/v1")
    return pyrage.x25519.Identity.from_str(bech32.encode("age-secret-key-", secret).upper())


def identity_in(file: Path) -> pyrage.x25519.Identity:
    """The one of a file as ``age-keygen`` writes it; NoArchive."""
    for line in file.read_text(errors="replace").splitlines():
        if line.startswith("AGE-SECRET-KEY-1"):
            try:
                return pyrage.x25519.Identity.from_str(line.strip())
            except pyrage.IdentityError as error:
                raise NoArchive(f"{file}: {error}") from error
    raise NoArchive(f"{file} holds no age identity")


def recipient(text: str) -> str:
    """*text*, which is an age recipient (``age1…``); NoArchive."""
    try:
        pyrage.x25519.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise NoArchive(f"{text[:80]!r} is no recipient of age's: {error}") from error
    return text


def unsealed(source: IO[bytes], into: IO[bytes], identity: pyrage.x25519.Identity) -> None:
    """The archive in *source*; NoArchive unless all of it is there, and sealed to *identity*."""
    try:
        pyrage.decrypt_io(source, into, [identity])
    except BrokenPipeError:
        raise  # who reads it has stopped
    except (pyrage.DecryptError, OSError) as error:
        raise NoArchive(f"it cannot be opened: {error}") from error


class _Nowhere:
    def write(self, data: bytes, /) -> int:
        return len(data)

    def flush(self) -> None: ...


def whole(file: Path, identity: pyrage.x25519.Identity) -> None:
    """NoArchive unless *file* opens, to its end."""
    with file.open("rb") as source:
        unsealed(source, cast("IO[bytes]", _Nowhere()), identity)


@contextmanager
def archive(
    source: Path | None, identity: pyrage.x25519.Identity, standard_input: IO[bytes]
) -> Generator[IO[bytes]]:
    """The tar archive of *source* to read: a folder, an archive, a sealed one, or None for what
    comes by *standard_input*. NoArchive, PoolKeyRefused, OSError.
    """
    if source is None:
        yield standard_input
    elif source.is_dir():
        with _filled(lambda into: _packed(source, into)) as packed:
            yield packed
    else:
        with source.open("rb") as file:
            begins = file.read(len(MAGIC))
            file.seek(0)
            if begins == MAGIC:
                with _filled(lambda into: unsealed(file, into, identity)) as opened:
                    yield opened
                return
            _look_at(source)
            yield file


def _packed(folder: Path, into: IO[bytes]) -> None:
    """All that lies in *folder*, as the user's whom a job runs as."""
    uid, gid = map(int, DEFAULT_USER.split(":"))

    def taken(about: tarfile.TarInfo) -> tarfile.TarInfo:
        if about.isreg() and about.size <= MOST_FILE:
            refuse_in((folder / about.name).read_bytes(), about.name)
        about.uid, about.gid, about.uname, about.gname = uid, gid, "", ""
        return about

    with tarfile.open(fileobj=into, mode="w|", format=tarfile.GNU_FORMAT) as made:
        made.add(folder, arcname=".", filter=taken)


def _look_at(file: Path) -> None:
    """That an archive is one, and that no key of a block producer leaves this machine in it."""
    try:
        with tarfile.open(file, "r:") as found:
            for about in found:
                if about.isreg() and about.size <= MOST_FILE:
                    part = found.extractfile(about)
                    refuse_in(part.read() if part else b"", about.name)
    except tarfile.TarError as error:
        raise NoArchive(f"{file} is no plain tar archive: {error}") from error


@contextmanager
def _filled(fill: Callable[[IO[bytes]], None]) -> Generator[IO[bytes]]:
    """What *fill* writes, in a thread of its own, as a file to read. Its failure is raised by the
    read that would have been its end, and by the block, whatever its reader made of it.
    """
    far, near = os.pipe()
    failed: list[TallyError | OSError] = []

    def run() -> None:
        try:
            with os.fdopen(near, "wb") as into:
                fill(into)
        except BrokenPipeError:
            pass  # nobody reads on
        except (TallyError, OSError) as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    source = os.fdopen(far, "rb")
    try:
        yield cast("IO[bytes]", _Watched(source, thread, failed))
    finally:
        source.close()  # who still writes hears of it
        thread.join()
        if failed:
            raise failed[0]


class _Watched:
    def __init__(
        self,
        source: IO[bytes],
        thread: threading.Thread,
        failed: list[TallyError | OSError],
    ) -> None:
        self._source, self._thread, self._failed = source, thread, failed

    def read(self, size: int = -1, /) -> bytes:
        data = self._source.read(size)
        if not data:
            self._thread.join()
            if self._failed:
                raise self._failed[0]
        return data
