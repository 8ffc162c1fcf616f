"""How far a kept relay is, on disk: ``HOME/relays/NAME.json``, and a lock that its keeper holds."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from marketplace import disk
from marketplace.client.relays.core import Kept
from marketplace.client.relays.stage import Stage
from marketplace.domain.canonical import want_fields, want_flag, want_int, want_items, want_text
from marketplace.domain.errors import Malformed, Refusal

FOLDER: Final = "relays"
_VERSION: Final = 1


class RelayKept(Refusal):
    """Another process of this home keeps the relay."""

    code = "RELAY_KEPT"
    remedy = "it goes on there; end that `tally node keep` first"


class RelayFile:
    """Of one relay, called *name*."""

    def __init__(self, home: Path, name: str) -> None:
        self.name, self._path = name, home / FOLDER / f"{name}.json"

    @contextmanager
    def held(self) -> Generator[None]:
        """As its keeper; :class:`RelayKept`."""
        disk.private_folder(self._path.parent)
        guard = os.open(
            self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise RelayKept(f"relay {self.name} is kept by another command") from None
        finally:
            os.close(guard)

    def write(self, kept: Kept) -> None:
        """From now on it is so far."""
        row = {**asdict(kept), "stage": kept.stage.name, "version": _VERSION}
        disk.write_whole(self._path, json.dumps(row, indent=1).encode())

    def read(self) -> Kept:
        """As it was written last; at its beginning without. Malformed."""
        try:
            row: Any = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return Kept()
        except ValueError as error:
            raise Malformed(f"{self._path} does not read: {error}") from error
        w = want_fields(row, self._path.name, {*asdict(Kept()), "version"})
        if w["version"] != _VERSION or w["stage"] not in Stage.__members__:
            raise Malformed(f"{self._path} is of another version, or damaged")
        return Kept(
            stage=Stage[w["stage"]],
            volume=want_text(w["volume"], "volume", 64),
            relay=want_text(w["relay"], "relay", 64),
            provider=want_text(w["provider"], "provider", 64),
            fill=want_flag(w["fill"], "fill"),
            tries=want_int(w["tries"], "tries"),
            place=want_text(w["place"], "place", 300),
            told=want_text(w["told"], "told", 300),
            left=tuple(want_text(one, "left", 64) for one in want_items(w["left"], "left", 64)),
            replaced_ms=tuple(
                want_int(one, "replaced_ms")
                for one in want_items(w["replaced_ms"], "replaced_ms", 64)
            ),
            falls=want_int(w["falls"], "falls"),
            again_ms=want_int(w["again_ms"], "again_ms"),
        )
