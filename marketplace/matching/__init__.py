"""Which host gets which job, and why: pure arrays and numpy; no clock, no store, no network."""

from marketplace.matching.engine import Matchmaker
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

__all__ = [
    "Gang",
    "Gpu",
    "Host",
    "Matchmaker",
    "NoMatch",
    "Placement",
    "Policy",
    "Relaxation",
    "Request",
]
