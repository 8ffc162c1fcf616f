"""The consumer's own machines in the meshes of its clusters: ``HOME/guests/GANG.json``.

A command writes it, and whoever keeps the cluster reads it at each look and signs by it, in another
process or after a restart: nothing that a market says is in it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from marketplace import disk
from marketplace.domain.canonical import want_fields, want_int, want_items, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work.mesh import Candidate, MeshPeer
from marketplace.domain.work.mesh_net import FIRST_GUEST, MOST_GUESTS, is_guest, want_number

FOLDER: Final = "guests"
_VERSION: Final = 1
_GANG: Final = re.compile("gang_[0-9A-Za-z]{1,40}")
"""A market names it, and it becomes a file's name."""


class GuestsFull(Refusal):
    """No number is left for one more."""

    code = "GUESTS_FULL"
    remedy = "`tally job mesh ID --leave` signs out whom this home let in"


@dataclass(frozen=True)
class Guest:
    """A machine that has WireGuard *key* is *number* in a mesh until *until_ms* (Unix), reached at
    some of *candidates*, sorted; none where it sends first.
    """

    number: int
    key: bytes
    until_ms: int
    candidates: tuple[Candidate, ...] = ()

    @property
    def peer(self) -> MeshPeer:
        """As members are told of it."""
        return MeshPeer(self.number, self.key, self.candidates)


class Guests:
    """Of the cluster *gang*, below *home*. :class:`Malformed` for what is no gang's name."""

    def __init__(self, home: Path, gang: str) -> None:
        if not _GANG.fullmatch(gang):
            raise Malformed(f"{gang[:64]!r} is no gang's name")
        self._path = home / FOLDER / f"{gang}.json"

    def read(self, now_ms: int) -> tuple[Guest, ...]:
        """Whose time is not over, by number. :class:`Malformed`."""
        return tuple(one for one in self._read() if one.until_ms > now_ms)

    def let_in(
        self, key: bytes, until_ms: int, candidates: Sequence[Candidate], now_ms: int
    ) -> Guest:
        """Who has *key*, from now on, under :meth:`number_of` it. :class:`GuestsFull`."""
        with self._locked():
            number = self.number_of(key, now_ms)
            others = [one for one in self.read(now_ms) if one.key != key]
            guest = Guest(number, key, until_ms, tuple(sorted(set(candidates))))
            self._write([*others, guest])
            return guest

    def number_of(self, key: bytes, now_ms: int) -> int:
        """Under which who has *key* is in it, or would be: the lowest that is free.
        :class:`GuestsFull`.
        """
        taken = {one.number for one in self.read(now_ms) if one.key != key}
        known = [one.number for one in self._read() if one.key == key]
        for one in (*known, *range(FIRST_GUEST, FIRST_GUEST + MOST_GUESTS)):
            if one not in taken:
                return one
        raise GuestsFull(f"{MOST_GUESTS} machines are in it already")

    def sign_out(self) -> int:
        """All of them, also where the list is damaged; how many that were."""
        with self._locked():
            try:
                known = len(self._read())
            except Malformed:
                known = 0
            self.forget()
            return known

    def forget(self) -> None:
        """The cluster is over."""
        self._path.unlink(missing_ok=True)

    # ---- on disk ---------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Generator[None]:
        folder = disk.private_folder(self._path.parent)
        guard = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield
        finally:
            os.close(guard)

    def _write(self, guests: Sequence[Guest]) -> None:
        rows = [
            {
                "number": one.number, "key": one.key.hex(), "until_ms": one.until_ms,
                "candidates": [way.to_wire() for way in one.candidates],
            }
            for one in sorted(guests, key=lambda one: one.number)
        ]  # fmt: skip
        told = {"version": _VERSION, "guests": rows}
        disk.write_whole(self._path, json.dumps(told, indent=1).encode())

    def _read(self) -> list[Guest]:
        try:
            told: Any = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise Malformed(f"{self._path} does not read: {error}") from error
        w = want_fields(told, self._path.name, {"version", "guests"})
        if w["version"] != _VERSION:
            raise Malformed(f"{self._path} is of another version")
        found = [_guest(one) for one in want_items(w["guests"], "guests", MOST_GUESTS)]
        numbers, keys = {one.number for one in found}, {one.key for one in found}
        if len(numbers) != len(found) or len(keys) != len(found):
            raise Malformed(f"{self._path} has a guest twice")
        return found


def _guest(value: object) -> Guest:
    w = want_fields(value, "guest", {"number", "key", "until_ms", "candidates"})
    number = want_number(w["number"])
    try:
        key = bytes.fromhex(want_text(w["key"], "key", 64))
    except ValueError:
        key = b""
    if not is_guest(number) or len(key) != 32:
        raise Malformed("a guest has a number of its own, and a key of 32 bytes in hex")
    ways = tuple(map(Candidate.from_wire, want_items(w["candidates"], "candidates", 2)))
    if list(ways) != sorted(set(ways)):
        raise Malformed("a guest's candidates are sorted, each once")
    return Guest(number, key, want_int(w["until_ms"], "until_ms"), ways)
