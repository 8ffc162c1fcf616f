"""``kind: volume``, which rents disk alone; and the volumes that any other job mounts."""

from __future__ import annotations

from typing import Final

from marketplace.domain.work.jobfile import values
from marketplace.domain.work.jobfile.nodes import BadValue, Node, Notes, Table
from marketplace.domain.work.jobfile.values import Section, guarded, many, matching
from marketplace.domain.work.parts import Range, Resources
from marketplace.domain.work.volume import LEAST_MIB, MOST_MOUNTS, Mount, want_apart

WORKLOADS: Final = (
    "image", "command", "any_of", "files", "env", "secrets", "ports", "egress", "outputs", "gang",
    "relay", "volumes",
)  # fmt: skip
"""What only something that runs can use."""
_volume: Final = matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", "a volume's name, or its lease")


def volume_of(top: Section) -> tuple[Resources, ...]:
    """``resources: {disk: 20GB}``, and nothing that is for workloads."""
    for key in WORKLOADS:
        node = top.get(key)
        if node is not None:
            top.notes.add(BadValue, node, key, f"a volume runs nothing: leave {key} out")
    own = top.get("resources")
    if own is None:
        top.lacks("resources", "say how large, e.g. resources: {disk: 20GB}")
        return ()
    s = Section.read(top.notes, own, "resources", ("disk",))
    if s.table is None:
        return ()
    disk = s.need("disk", _disk, Range(LEAST_MIB), "say how large, e.g. disk: 20GB")
    return (Resources(cpu=Range(0), memory=Range(0), disk=disk),)


def _disk(notes: Notes, node: Node, path: str) -> Range:
    found = values.size(notes, node, path)
    if found.least < LEAST_MIB:
        notes.add(BadValue, node, path, f"starts at {LEAST_MIB}MB or more")
    return found


def mounts(notes: Notes, node: Node, path: str) -> tuple[Mount, ...]:
    """``[{volume: chain, path: /data, read_only: true}]``."""
    found = [one for one in many(_mount, MOST_MOUNTS)(notes, node, path) if one is not None]
    return guarded(notes, node, path, lambda: want_apart(found)) or ()


def _mount(notes: Notes, node: Node, path: str) -> Mount | None:
    s = Section.read(notes, node, path, ("volume", "path", "read_only"))
    if not isinstance(node, Table):
        return None  # noted already: it is no map
    volume = s.need("volume", _volume, "", "name it, as `tally volume list` does")
    at = s.need("path", values.text, "/data", "say where the workload sees it, e.g. /data")
    read_only = s.take("read_only", values.flag, False)
    return guarded(notes, node, path, Mount(volume, at, read_only).checked)
