"""Volumes: disk that is rented by itself, and what a job says of those that it mounts.

A volume is a job of ``kind: volume`` with a lease of its own, which runs nothing: it is priced by
the GB-second, metered, paid and ended like any other lease. A job mounts it by that lease's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from marketplace.domain.canonical import want_fields, want_flag, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.units import WHOLE

LEAST_MIB: Final = 64
MOST_MOUNTS: Final = 8
DESTROYED: Final = "destroyed.json"
"""What a volume gives back at its end: its provider's word of when its key was destroyed."""
_MIB_A_GB: Final = 1024
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){1,8}")
_TAKEN: Final = frozenset({"proc", "sys", "dev", "run", "tmp", "workspace"})
"""What a workload has there is the runtime's."""


def units_milli(disk_mib: int) -> int:
    """Thousandths of a GB, rounded up: ``Terms.units_milli`` of a lease of disk."""
    return -(-disk_mib * WHOLE // _MIB_A_GB)


@dataclass(frozen=True)
class Mount:
    """The volume of lease *volume* (in a job file also its name), seen by the workload at *path*;
    *read_only*: it cannot write there.
    """

    volume: str
    path: str
    read_only: bool = False

    def checked(self) -> Mount:
        """This one, if the workload may have something there; Malformed."""
        if not _PATH.fullmatch(self.path) or self.path.split("/")[1] in _TAKEN:
            beside = ", ".join(f"/{one}" for one in sorted(_TAKEN))
            raise Malformed(f"a volume's path is such as /data, and not below {beside}")
        return self

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)

    @staticmethod
    def from_wire(value: object) -> Mount:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, "volume", {"volume", "path", "read_only"})
        return Mount(
            want_text(w["volume"], "volume", 80),
            want_text(w["path"], "path", 200),
            want_flag(w["read_only"], "read_only"),
        ).checked()


def want_apart(mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """*mounts* if no two are of one volume, at one place, or one below the other; Malformed."""
    for at, one in enumerate(mounts):
        for other in mounts[:at]:
            if one.volume == other.volume:
                raise Malformed(f"volume {one.volume} is mounted twice")
            if f"{one.path}/".startswith(f"{other.path}/") or f"{other.path}/".startswith(
                f"{one.path}/"
            ):
                raise Malformed(f"two volumes are mounted at {one.path} and {other.path}")
    return tuple(mounts)
