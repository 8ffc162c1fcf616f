"""Where a job goes, what counts beside its budget, and why there is no such place, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from marketplace.domain.metering.kinds import Resource
from marketplace.domain.supply.grant import Grant
from marketplace.domain.supply.offer import Offer
from marketplace.matching import (
    NoMatch,
    Placement,
)


@dataclass(frozen=True)
class Match:
    """An offer and the grant on it; *rate_micro* per GPU- or core-second."""

    offer: Offer
    grant: Grant
    block: int
    placement: Placement
    rate_micro: int

    @property
    def resource(self) -> Resource:
        """What is billed."""
        return self.grant.resource


@dataclass(frozen=True)
class Begun:
    """What the fair queue found: a lease and a match for a waiting job, or for each member of a
    *gang* by that *name*, in their order.
    """

    name: str
    gang: bool
    places: tuple[tuple[str, Match], ...]


@dataclass(frozen=True)
class Spent:
    """What counts beside a job's own budget. *before*: what its earlier leases owe, lovelace;
    *channels*: by provider, what the channel that would be reused there has brought already.
    """

    before: int = 0
    channels: tuple[tuple[str, int], ...] = ()


NOTHING: Final = Spent()


def explained(no: NoMatch) -> dict[str, Any]:
    """A NoMatch as JSON: the sentence, the counts and the nearest relaxations with their price."""
    return {
        "text": str(no),
        "hosts": no.hosts,
        "reasons": dict(no.reasons),
        "words": {name: no.details.get(name, name) for name in no.reasons},
        "relaxations": [
            {"change": w.change, "hosts": w.hosts, "rate_micro_per_s": w.rate}
            for w in no.relaxations
        ],
    }
