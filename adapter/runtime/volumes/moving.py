"""A volume's content on its way out of it, or into it, as what a connection's other end leads to.

Out: the sealed archive, as it comes. In: pieces, each a length (4 bytes, big-endian) and as many
bytes; one of length 0 ends it, and is answered with the end of the connection. The content appears
in the volume as a whole or not at all: it is unpacked beside, in a folder that takes the empty
one's place.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from adapter.core.workload import RuntimeFault, RuntimeRefused
from adapter.runtime.calls import in_thread
from adapter.runtime.volumes import fscrypt
from adapter.runtime.volumes.filesystem import FileSystem
from marketplace.domain.keys import Signer, unseal
from marketplace.domain.work.pool_keys import MOST_FILE, refuse_in
from marketplace.domain.work.volume_move import Move, Way

READ: Final = 64 * 1024
MOST_PIECE: Final = 1 << 20
FINISH_S: Final = 600.0
MOST_LOOKED_AT: Final = 100_000
MOST_READ: Final = 1 << 30


class Moving:
    """One that goes on. Like a terminal, but for its screen."""

    def __init__(self, place: FileSystem, way: Way, program: anyio.abc.Process,
                 let_go: Callable[[], None]) -> None:  # fmt: skip
        self._place, self._way, self._program, self._let_go = place, way, program, let_go
        self._came = bytearray()
        self._deaf = way is Way.EXPORT
        self._over = False

    async def read(self) -> bytes:
        """Out: more of the archive. Empty when all is done; RuntimeRefused why it is not."""
        if self._way is Way.EXPORT and self._program.stdout is not None:
            try:
                return await self._program.stdout.receive(READ)
            except anyio.EndOfStream:
                pass
        code = await self._program.wait()
        if code:
            why = await self._said() or f"ended with {code}"
            full = "No space left on device: " if self._place.full else ""
            raise RuntimeRefused(f"{self._way}: {full}{why}")
        if self._way is Way.IMPORT and not self._over:
            with anyio.CancelScope(shield=True):  # or it would appear when nobody thinks of it
                await in_thread("take in", self._take_in, FINISH_S)
        self._over = True
        return b""

    async def write(self, data: bytes) -> None:
        """In: more pieces. What nobody reads any more is dropped: :meth:`read` tells why."""
        if self._deaf or self._program.stdin is None:
            return
        self._came += data
        try:
            for piece in self._pieces():
                await self._program.stdin.send(piece)
            if self._deaf:
                await self._program.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._deaf = True

    def _pieces(self) -> Iterator[bytes]:
        while len(self._came) >= 4:
            size = int.from_bytes(self._came[:4], "big")
            if size > MOST_PIECE:
                raise RuntimeRefused(f"a piece of {size} bytes: {MOST_PIECE} are the most")
            if len(self._came) < 4 + size:
                return
            piece = bytes(self._came[4 : 4 + size])
            del self._came[: 4 + size]
            if not size:
                self._deaf = True
                return
            yield piece

    async def resize(self, rows: int, columns: int) -> None:
        """It has no screen."""

    async def end(self) -> None:
        """Done, or given up: what was half taken in is gone."""
        with anyio.CancelScope(shield=True):
            if self._program.returncode is None:
                self._program.kill()
            await self._program.aclose()
            try:
                await in_thread("clear", lambda: clear(self._place), FINISH_S)
            finally:
                self._let_go()

    async def _said(self) -> str:
        if self._program.stderr is None:
            return ""
        try:
            return (await self._program.stderr.receive()).decode(errors="replace")[:180]
        except anyio.EndOfStream:
            return ""

    def _take_in(self) -> None:
        try:
            look_for_pool_keys(self._place.incoming)
            subprocess.run(("sync", "--file-system", str(self._place.incoming)), check=True)
            self._place.incoming.rename(self._place.files)  # which is empty: rename(2)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeFault(f"import: {error}") from error


async def begin(
    place: FileSystem, move: Move, signer: Signer, let_go: Callable[[], None]
) -> Moving:
    """What *move* asks of the volume at *place*, which nobody mounts meanwhile; *signer*: what is
    secret of it is sealed to that. RuntimeRefused, Malformed.
    """
    line = [sys.executable, "-m", "adapter.runtime.volumes.packed", move.way.value]
    first = b""
    if move.way is Way.EXPORT:
        line += [str(place.files), move.key.decode("ascii", errors="replace")]
    else:
        first = unseal(signer, move.key) + b"\n"
        await in_thread("prepare", lambda: _prepare(place, move, signer), FINISH_S)
        line.append(str(place.incoming))
    program = await anyio.open_process(line, stdin=subprocess.PIPE, cwd="/")
    if first and program.stdin is not None:
        await program.stdin.send(first)
    return Moving(place, move.way, program, let_go)


def _prepare(place: FileSystem, move: Move, signer: Signer) -> None:
    """A folder for what comes. An import is good once: who passed it on has kept it."""
    known = place.folder / "imported"
    names = known.read_text().split() if known.exists() else []
    if move.name in names:
        raise RuntimeRefused("this import was made already: make another one")
    if any(place.files.iterdir()):
        raise RuntimeRefused("the volume is not empty: content goes into an empty one")
    with known.open("a") as file:
        file.write(f"{move.name}\n")
        file.flush()
        os.fsync(file.fileno())
    key = unseal(signer, (place.folder / "key").read_bytes())
    place.incoming.mkdir(mode=0o755)
    fscrypt.encrypt(place.incoming, fscrypt.add_key(place.mounted, key))


def clear(place: FileSystem) -> None:
    """Nothing moves there any more."""
    shutil.rmtree(place.incoming, ignore_errors=True)
    place.moving.unlink(missing_ok=True)


def look_for_pool_keys(folder: Path) -> None:
    """:class:`PoolKeyRefused` if one of its small files holds a key of a block producer. No more
    than :data:`MOST_LOOKED_AT` are read, and :data:`MOST_READ` bytes: it guards against a mistake,
    and a job waits for it.
    """
    looked = size = 0
    for where, _, names, at in os.fwalk(folder):
        for name in names:
            about = os.stat(name, dir_fd=at, follow_symlinks=False)
            if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= MOST_FILE:
                continue
            looked, size = looked + 1, size + about.st_size
            if looked > MOST_LOOKED_AT or size > MOST_READ:
                return
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            with os.fdopen(opened, "rb") as file:
                data = file.read(MOST_FILE)
            refuse_in(data, f"the volume's {os.path.relpath(os.path.join(where, name), folder)}")
