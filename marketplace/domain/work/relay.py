"""A workload that is a Cardano relay: where it answers, and how old its tip may be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from marketplace.domain.canonical import want_fields, want_int, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.ouroboros.reading import NETWORKS, Network

LAG_LEAST_MS: Final = 20_000
"""A block comes every 20 s in the mean; below that nobody is at the tip."""
LAG_MOST_MS: Final = 3_600_000
LAG_MS: Final = 300_000
"""Where a job does not say: on a network that lives, no five minutes in a million go without a
block (20 s in the mean, as chance has it).
"""


@dataclass(frozen=True)
class RelayNeed:
    """Only time in which the workload answers by node-to-node at *port* counts, as a relay of
    *network* (one of :data:`NETWORKS`) whose tip is at most *lag_ms* old.
    """

    network: str
    port: int
    lag_ms: int = LAG_MS

    @property
    def of(self) -> Network:
        """Its network's magic and slot clock."""
        return NETWORKS[self.network]

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)

    @staticmethod
    def from_wire(value: object) -> RelayNeed:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, "relay", {"network", "port", "lag_ms"})
        network = want_text(w["network"], "network", 20)
        if network not in NETWORKS:
            raise Malformed(f"a relay's network is one of {', '.join(NETWORKS)}")
        return RelayNeed(
            network,
            want_int(w["port"], "port", 1, 65_535),
            want_int(w["lag_ms"], "lag_ms", LAG_LEAST_MS, LAG_MOST_MS),
        )
