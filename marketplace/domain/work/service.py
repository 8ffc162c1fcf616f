"""A service: how many of one job are to run, when one of them is fit to be asked, and how they are
replaced. What each of them runs is a job like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_REPLICAS: Final = 64


@dataclass(frozen=True)
class Health:
    """When a replica counts as fit: its page at *path* answers below 400, or, where *path* is
    empty, its port answers HTTP at all. Looked at every *every_ms*; each look has *timeout_ms*;
    after *failures* bad looks in a row it is replaced, and where no look was good within *start_ms*
    of its start.
    """

    path: str = ""
    every_ms: int = 2_000
    timeout_ms: int = 2_000
    failures: int = 3
    start_ms: int = 120_000


@dataclass(frozen=True)
class Scale:
    """From *least* to *most* replicas. *per_replica*: requests at once that one is meant for (0:
    there are always *least*); fewer are wanted once fewer were for *down_after_ms*. *predict*: in
    so many of 100 times what is forecast is to be enough (0: no forecast, demand is waited for).
    """

    least: int = 1
    most: int = 1
    per_replica: int = 0
    down_after_ms: int = 60_000
    predict: int = 0


@dataclass(frozen=True)
class ServiceSpec:
    """What the ``service`` section of a job file says. *port* of the workload is asked; *auth* as
    for a port; *surge*: replicas beyond those that are wanted while old ones are replaced;
    *drain_ms*: how long one may end what it has begun; *spread*: each at a provider of its own, as
    far as there are any; *most_per_hour*: lovelace that all together may cost in an hour, 0 for no
    cap of its own.
    """

    name: str
    port: int
    auth: str
    scale: Scale = Scale()
    health: Health = Health()
    surge: int = 1
    drain_ms: int = 30_000
    sticky: bool = False
    hold_ms: int = 60_000
    spread: bool = True
    most_per_hour: int = 0
