"""Stores as folders of WsgiDAV's: a file is there whole or not at all, and each store is full at
its limit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from wsgidav.dav_error import DAVError
from wsgidav.dav_provider import DAVNonCollection
from wsgidav.fs_dav_provider import FileResource, FilesystemProvider, FolderResource
from wsgidav.util import join_uri

from marketplace.cluster_store.gate import HIDDEN, Held
from marketplace.cluster_store.habits import Answer

INCOMING: Final = f"{HIDDEN}incoming"
GOING: Final = f"{HIDDEN}going-"
SPARE: Final = 1 << 30
"""Of the disk so much stays free, bytes."""
MOST_ENTRIES: Final = 10_000
"""Files and folders of one store."""
LOOK_S: Final = 10.0
HELD_S: Final = 60.0
"""How much a store holds is looked at no more often, for who asks and writes nothing: that takes no
lock, which others' writes would wait for.
"""
FULL: Final = 507
Over = Callable[[], Answer | None]
_BAD: Final = 400
_FORBIDDEN: Final = 403


class Room:
    """How much is in each store below *root*, *most* bytes in each."""

    def __init__(self, root: Path, most: int, spare: int = SPARE) -> None:
        self._root, self._most, self._spare = root, most, spare
        self._lock = threading.Lock()
        self._used: dict[str, tuple[float, int, int]] = {}
        self._held: dict[str, tuple[float, int, int]] = {}

    def take(self, store: str, size: int, entries: int = 0) -> None:
        """So much more; DAVError 507 where it does not fit."""
        with self._lock:
            at, used, count = self._used.get(store, (0.0, 0, 0))
            now = time.monotonic()
            if not at or now - at > LOOK_S:
                at, (used, count) = now, self._look(store)
            self._used[store] = (at, used + size, count + entries)
            if used + size > self._most or count + entries > MOST_ENTRIES:
                self._used[store] = (at, used, count)
                raise DAVError(FULL, "STORE_FULL: delete what is not needed any more")
            if shutil.disk_usage(self._root).free - size < self._spare:
                raise DAVError(FULL, "STORE_FULL: this market's disk is")

    def has(self, store: str) -> bool:
        """Whether it is there."""
        return (self._root / store).is_dir()

    def holds(self, store: str) -> Held | None:
        """How much is in it, as of at most :data:`HELD_S` ago; None: it is not there."""
        try:
            used_s = int((self._root / store).stat().st_mtime)
        except FileNotFoundError:
            return None
        at, size, count = self._held.get(store, (0.0, 0, 0))
        if not at or time.monotonic() - at > HELD_S:
            size, count = self._look(store)
            self._held[store] = (time.monotonic(), size, count)
        return Held(size, count, used_s)

    def remove(self, store: str) -> bool:
        """It is out of reach at once, and then goes with all that is in it; False: it is not
        there.
        """
        going = Path(tempfile.mkdtemp(prefix=GOING, dir=self._root))
        try:
            (self._root / store).rename(going / store)
        except FileNotFoundError:
            going.rmdir()
            return False
        self.looked_at(store)
        self._held.pop(store, None)
        threading.Thread(target=shutil.rmtree, args=(going, True), daemon=True).start()
        return True

    def is_file(self, path: str) -> bool:
        """Whether a file is at *path*, which begins with its store."""
        return not path.endswith("/") and (self._root / path[1:]).is_file()

    def looked_at(self, store: str) -> None:
        """Something went: it is looked at again."""
        with self._lock:
            self._used.pop(store, None)

    def _look(self, store: str) -> tuple[int, int]:
        size = count = 0
        folders = [self._root / store]
        while folders:
            with suppress(FileNotFoundError), os.scandir(folders.pop()) as found:
                for entry in found:
                    with suppress(FileNotFoundError):  # it went meanwhile
                        size += entry.stat(follow_symlinks=False).st_size
                        count += 1
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(Path(entry.path))
        return size, count


class Incoming:
    """What is written beside its place, and put there once all of it is on the disk; *over*: why
    nobody may who began it, by now.
    """

    def __init__(
        self, room: Room, store: str, draft: Path, to: str, length: int | None, over: Over
    ) -> None:
        self._room, self._store, self._to, self._length = room, store, to, length
        self._over = over
        self._draft = draft
        self._size = 0
        self._file: BinaryIO = draft.open("xb")

    def write(self, data: bytes) -> None:
        """More of it; DAVError where it does not fit."""
        self._room.take(self._store, len(data))
        self._file.write(data)
        self._size += len(data)

    def close(self) -> None:
        """It was all: durable when this returns."""
        if self._length is not None and self._size != self._length:
            raise DAVError(_BAD, "it ended early")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        over = self._over()
        if over is not None:  # a host that was cut off and is back would replace what is newer
            raise DAVError(int(over[0].split()[0]), f"{over[1]}: {over[2]}")
        os.replace(self._draft, self._to)
        _settle(os.path.dirname(self._to))

    def drop(self) -> None:
        """Nothing of it stays."""
        self._file.close()
        self._draft.unlink(missing_ok=True)
        self._room.looked_at(self._store)


def _settle(folder: str) -> None:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(held)
    finally:
        os.close(held)


class Stored(FileResource):
    """A file of a store, or the place of one that comes."""

    provider: Stores

    def __init__(self, path: str, environ: dict[str, Any], file_path: str) -> None:
        self._incoming: Incoming | None = None
        if os.path.exists(file_path):
            super().__init__(path, environ, file_path)
        else:
            DAVNonCollection.__init__(self, path, environ)
            self._file_path = file_path
            self.name = os.path.basename(file_path)

    def begin_write(self, *, content_type: str | None = None) -> Any:
        """See :class:`Incoming`."""
        said = str(self.environ.get("CONTENT_LENGTH") or "")
        length = int(said) if said.isdecimal() and not _chunked(self.environ) else None
        self._incoming = self.provider.incoming(
            self.environ["tally.store"], self._file_path, length, self.environ["tally.over"]
        )
        return self._incoming

    def end_write(self, *, with_errors: bool) -> None:
        """What failed leaves what was there before."""
        if with_errors and self._incoming is not None:
            self._incoming.drop()

    def handle_move(self, dest_path: str) -> Any:
        """In one step, also over another file."""
        to = self.provider.path_of(dest_path, self.environ)
        if os.path.isdir(to):
            return False
        os.replace(self._file_path, to)
        _settle(os.path.dirname(to))
        if os.path.dirname(to) != os.path.dirname(self._file_path):
            _settle(os.path.dirname(self._file_path))
        return True

    def delete(self) -> None:
        """And its bytes are free again."""
        super().delete()
        self.provider.room.looked_at(self.environ["tally.store"])


class Folder(FolderResource):
    """A folder of a store."""

    provider: Stores

    def create_empty_resource(self, name: str) -> Stored:
        """The place of a file; there is none before it is whole."""
        self.provider.room.take(self.environ["tally.store"], 0, entries=1)
        path = join_uri(self.path, name)
        return Stored(path, self.environ, self.provider.path_of(path, self.environ))

    def create_collection(self, name: str) -> None:
        """One more."""
        self.provider.room.take(self.environ["tally.store"], 0, entries=1)
        super().create_collection(name)

    def delete(self) -> None:
        """And its bytes are free again."""
        super().delete()
        self.provider.room.looked_at(self.environ["tally.store"])


class Stores(FilesystemProvider):
    """All stores below *root*."""

    def __init__(self, root: Path, room: Room) -> None:
        super().__init__(str(root), fs_opts={"follow_symlinks": False})
        self.room = room
        self._root = Path(os.path.abspath(root))  # as what WsgiDAV finds begins
        self._drafts = self._root / INCOMING
        for left in (self._drafts, *self._root.glob(f"{GOING}*")):  # by a run before
            shutil.rmtree(left, ignore_errors=True)
        self._drafts.mkdir(parents=True, mode=0o700)
        self._number = 0
        self._lock = threading.Lock()

    def incoming(self, store: str, to: str, length: int | None, over: Over) -> Incoming:
        """A file on its way to *to*."""
        if length is not None:
            self.room.take(store, length)
            self.room.take(store, -length)
        with self._lock:
            self._number += 1
            draft = self._drafts / str(self._number)
        return Incoming(self.room, store, draft, to, length, over)

    def path_of(self, path: str, environ: dict[str, Any]) -> str:
        """Where it lies on the disk; DAVError outside its store, whatever led there."""
        at = str(self._loc_to_file_path(path, environ))
        store = str(self._root / environ["tally.store"])
        if at != store and not at.startswith(store + os.sep):
            raise DAVError(_FORBIDDEN)
        return at

    def get_resource_inst(self, path: str, environ: dict[str, Any]) -> Any:
        """What is at *path*; None for nothing."""
        at = self.path_of(path, environ)
        if os.path.islink(at) or not os.path.exists(at):
            return None
        return (Folder if os.path.isdir(at) else Stored)(path, environ, at)


def _chunked(environ: dict[str, Any]) -> bool:
    return "chunked" in str(environ.get("HTTP_TRANSFER_ENCODING", "")).lower()
