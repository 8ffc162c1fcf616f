"""A folder as a sealed archive, and a sealed archive as a folder: tar in age's format.

``python -m adapter.runtime.volumes.packed export FOLDER RECIPIENT`` writes it to standard output;
``… import FOLDER`` reads from standard input the identity, a line, and then the archive. A process
of its own: what it reads was made by a tenant, or by whoever sealed it. tar itself runs where it
sees the folder and the system's programs and nothing else, without network, with the rights to
give files their owners and none to make devices. Exit code 1, and one line of standard error, when
it could not be done.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Final

import pyrage

_TAR: Final = ("tar", "--numeric-owner", "--directory=/files", "--file=-")
_PACK: Final = (*_TAR, "--create", "--sparse", "--format=gnu", ".")
_UNPACK: Final = (*_TAR, "--extract", "--preserve-permissions", "--same-owner")
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
_RIGHTS: Final = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER")
_SAID_MOST: Final = 300
_PARENT_DEATH_SIGNAL: Final = 1  # prctl(2)


def sandbox(folder: str, *, writable: bool) -> list[str]:
    """The command line before that of a program which sees *folder* as ``/files``."""
    line = [
        "bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc",
        "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--clearenv",
        "--setenv", "PATH", "/usr/bin:/bin", "--cap-drop", "ALL",
    ]  # fmt: skip
    for right in _RIGHTS:
        line += ["--cap-add", right]
    for path in _SYSTEM:
        line += ["--ro-bind-try", path, path]
    return [*line, "--bind" if writable else "--ro-bind", folder, "/files", "--"]


class Tar:
    """A tar that runs, and the first of what it says."""

    def __init__(self, line: Sequence[str], *, reads: bool) -> None:
        self._program = subprocess.Popen(
            line, stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if reads else subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._said = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._program.stderr is not None
        for line in self._program.stderr:  # to the end: a full pipe would hold it up
            self._said += line[: _SAID_MOST - len(self._said)]

    def ended(self) -> None:
        """After the last byte: OSError in its own words unless all went well."""
        if self._program.stdin is not None:
            try:
                self._program.stdin.close()
            except BrokenPipeError:
                pass  # its code tells
        code = self._program.wait()
        self._listener.join()
        if code:
            said = self._said.decode(errors="replace").strip().splitlines()
            raise OSError(said[0] if said else f"tar ended with {code}")

    # ---- as a file: read what it packs, write what it unpacks -----------------------------------

    def read(self, size: int = -1) -> bytes:
        """Of the archive; at its end only if all of it was packed."""
        assert self._program.stdout is not None
        data = self._program.stdout.read(size)
        if not data:
            self.ended()
        return data

    def write(self, data: bytes) -> int:
        """More of the archive. What comes after its end is read, and dropped."""
        assert self._program.stdin is not None
        try:
            return self._program.stdin.write(data)
        except BrokenPipeError:
            return len(data)

    def flush(self) -> None:
        """All of it reaches the program when it is closed."""


def pack(folder: str, recipient: str, into: IO[bytes]) -> None:
    """What lies in *folder*, sealed to *recipient* (``age1…``)."""
    sealed_to = pyrage.x25519.Recipient.from_str(recipient)
    pyrage.encrypt_io(
        Tar([*sandbox(folder, writable=False), *_PACK], reads=False), into, [sealed_to]
    )
    into.flush()


def unpack(folder: str, source: IO[bytes]) -> None:
    """What *source* holds, into *folder*."""
    identity = pyrage.x25519.Identity.from_str(source.readline().decode("ascii").strip())
    tar = Tar([*sandbox(folder, writable=True), *_UNPACK], reads=True)
    pyrage.decrypt_io(source, tar, [identity])  # of what fails there, tar is not the cause
    tar.ended()


def main(way: str, folder: str, recipient: str = "") -> int:
    """The exit code."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    try:
        if way == "export":
            pack(folder, recipient, sys.stdout.buffer)
        else:
            unpack(folder, sys.stdin.buffer)
    except (OSError, ValueError, pyrage.DecryptError, pyrage.EncryptError,
            pyrage.RecipientError, pyrage.IdentityError) as error:  # fmt: skip
        sys.stderr.write(f"{error}"[:_SAID_MOST])
        return 1
    return 0


def lacks() -> str:
    """The program that this host lacks for it; empty for none."""
    return next(
        (f"{name} is not installed" for name in ("bwrap", "tar") if not shutil.which(name)), ""
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
