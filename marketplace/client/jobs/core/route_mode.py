"""How a consumer wants its jobs paid."""

from __future__ import annotations

from enum import StrEnum


class RouteMode(StrEnum):
    """How jobs are paid: over a hop where there is one, over none, or over one in any case."""

    AUTO = "auto"
    DIRECT = "direct"
    ROUTED = "routed"
