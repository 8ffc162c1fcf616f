"""The console's scripts lie in rooms: small ones, and what one needs of another goes one way."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

ASSETS = Path(__file__).parents[3] / "web" / "assets"
MOST = 12
NAMED = re.compile(r'(?:from|import\(|new URL\(|@import \{[^}]*\} from)\s*"(\.{1,2}/[^"]+)"')


def imports() -> list[tuple[str, str]]:
    """(file, what it names) of every import, of types and of the worker too."""
    return [
        (name, posixpath.normpath(posixpath.join(posixpath.dirname(name), to)))
        for file in sorted(ASSETS.rglob("*.js"))
        for name in [file.relative_to(ASSETS).as_posix()]
        for to in NAMED.findall(file.read_text())
    ]


def test_every_import_names_a_file_that_is_there() -> None:
    assert len(found := imports()) > 100
    assert [(name, to) for name, to in found if not (ASSETS / to).is_file()] == []


def test_no_room_holds_more_than_a_dozen_files() -> None:
    rooms = Counter(file.parent for file in ASSETS.rglob("*") if file.is_file())
    assert {str(room): count for room, count in rooms.items() if count > MOST} == {}


def test_rooms_need_each_other_in_one_direction() -> None:
    needs: dict[str, set[str]] = {}
    for name, to in imports():
        room, other = posixpath.dirname(name), posixpath.dirname(to)
        if room != other:
            needs.setdefault(room, set()).add(other)
    order = list(TopologicalSorter(needs).static_order())  # CycleError names the rooms
    assert order[-1] == "", "what stands above the rooms is needed by none"
