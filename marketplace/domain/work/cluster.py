"""A cluster: a gang whose members work as one. It begins, pauses and goes on as a whole, and none
of them is billed for time in which it does not.

Each member stays a job with a lease, a channel and receipts of its own. When all of them run is
said by their consumer alone, in orders signed by each lease's session key (:mod:`.cluster_order`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from marketplace.domain.canonical import want_fields, want_flag, want_int, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.work.cluster_store import Store

ASSEMBLE_MS: Final = 60_000
HOLD_MS: Final = 120_000
"""Together what an adapter bears by default (``Offer.cluster_free_ms``)."""
MOST_MS: Final = 3_600_000


class Stall(StrEnum):
    """What becomes of the members that are left when fewer than *least* are."""

    PAUSE = "pause"  # they are frozen and unbilled until there are enough again
    RUN = "run"  # they run on, and are billed


@dataclass(frozen=True)
class Cluster:
    """It begins once *least* of the members run and, with a *mesh*, reach each other.

    *assemble_ms*: how long a member runs unbilled before the first order to RUN, at most;
    *hold_ms*: how long it is frozen, all holds together. Either limit ends its lease. *mesh*: the
    members have a network of their own; *store*: a folder that they share, which outlives them.
    """

    least: int
    mesh: bool
    stall: Stall = Stall.PAUSE
    assemble_ms: int = ASSEMBLE_MS
    hold_ms: int = HOLD_MS
    store: Store | None = None

    @property
    def free_ms(self) -> int:
        """The longest that one member can be without pay."""
        return self.assemble_ms + self.hold_ms

    def to_wire(self) -> dict[str, Any]:
        """Every field; a store where there is one."""
        store = {} if self.store is None else {"store": self.store.to_wire()}
        return {
            "least": self.least,
            "stall": self.stall.value,
            "assemble_ms": self.assemble_ms,
            "hold_ms": self.hold_ms,
            "mesh": self.mesh,
            **store,
        }

    @staticmethod
    def from_wire(value: object, members: int) -> Cluster:
        """The reverse, of a gang of so many *members*; :class:`Malformed`."""
        fields = {"least", "stall", "assemble_ms", "hold_ms", "mesh"}
        w = want_fields(value, "cluster", fields, {"store"})
        stall = want_text(w["stall"], "stall", 10)
        if stall not in tuple(Stall):
            raise Malformed(f"stall {stall!r} is none of {', '.join(Stall)}")
        return Cluster(
            least=want_int(w["least"], "least", 1, members),
            stall=Stall(stall),
            assemble_ms=want_int(w["assemble_ms"], "assemble_ms", 1, MOST_MS),
            hold_ms=want_int(w["hold_ms"], "hold_ms", 1, MOST_MS),
            mesh=want_flag(w["mesh"], "mesh"),
            store=Store.from_wire(w["store"]) if "store" in w else None,
        )
