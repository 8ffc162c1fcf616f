"""Where a job is reached: its ports, and the one at which it answers as a Cardano relay."""

from __future__ import annotations

from typing import Final

from marketplace.domain.ouroboros.reading import NETWORKS
from marketplace.domain.work.jobfile import values
from marketplace.domain.work.jobfile.nodes import Node, Notes, Scalar
from marketplace.domain.work.jobfile.values import Section, choice, many, whole
from marketplace.domain.work.parts import Port
from marketplace.domain.work.relay import LAG_MS, RelayNeed

RELAY_PORT: Final = 3001
"""Where relays listen by custom."""
_HINT: Final = f"write e.g. network: preprod (one of {', '.join(NETWORKS)})"


def ports(top: Section, relay: RelayNeed | None) -> tuple[Port, ...]:
    """Those that are listed, and the relay's: whoever rents one reaches it."""
    listed = top.take("ports", many(_port, 16), ())
    if relay is None or any(one.port == relay.port for one in listed):
        return listed
    return (*listed, Port(relay.port))


def _port(notes: Notes, node: Node, path: str) -> Port:
    if isinstance(node, Scalar):
        return Port(whole(1, 65_535)(notes, node, path))
    s = Section.read(notes, node, path, ("port", "auth", "direct"))
    port = s.need("port", whole(1, 65_535), 1, "write e.g. port: 8888")
    auth = s.take("auth", choice("token", "public"), "token")
    return Port(port, auth, s.take("direct", values.flag, False))


def relay(notes: Notes, node: Node, path: str) -> RelayNeed | None:
    """``{network: preprod, port: 3001, lag: 5m}``."""
    s = Section.read(notes, node, path, ("network", "port", "lag"))
    if s.table is None:
        return None  # noted already: it is no map
    return RelayNeed(
        network=s.need("network", choice(*NETWORKS), "mainnet", _HINT),
        port=s.take("port", whole(1, 65_535), RELAY_PORT),
        lag_ms=s.take("lag", values.lag, LAG_MS),
    )
