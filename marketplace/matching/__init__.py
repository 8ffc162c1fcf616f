"""Which host gets which job, and why: pure arrays and numpy; no clock, no store, no network."""

from marketplace.matching.engine import Matchmaker
from marketplace.matching.explain import Losses
from marketplace.matching.fairness import FairQueue
from marketplace.matching.locality import Image, Start, Stock
from marketplace.matching.model import (
    Gang,
    Gpu,
    Host,
    NoMatch,
    Placement,
    Policy,
    Relaxation,
    Request,
)
from marketplace.matching.preemption import Preemption, plan_preemption
from marketplace.matching.reservations import Reservations, Room
from marketplace.matching.scoring.usable import Weights
from marketplace.matching.waiting import Quota, Started

__all__ = [
    "FairQueue",
    "Gang",
    "Gpu",
    "Host",
    "Image",
    "Losses",
    "Matchmaker",
    "NoMatch",
    "Placement",
    "Policy",
    "Preemption",
    "Quota",
    "Relaxation",
    "Request",
    "Reservations",
    "Room",
    "Start",
    "Started",
    "Stock",
    "Weights",
    "plan_preemption",
]
