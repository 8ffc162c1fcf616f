"""How a rented relay stands: what its provider and its market say, and what its time has cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from marketplace.client.net.answers import EventAnswer, JobAnswer, SampleAnswer, StoryAnswer
from marketplace.domain.errors import Refusal
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.direct_port import DirectPorts
from marketplace.domain.work.job import JobSpec

MONTH_MS: Final = 30 * 86_400_000


class NotARelay(Refusal):
    """A job that nobody asked to be one."""

    code = "NOT_A_RELAY"
    remedy = "`tally node status` is for jobs with `relay:`; `tally job show` shows any"


@dataclass(frozen=True)
class RelayStanding:
    """*says*: the provider's last word, ``AT_TIP`` or ``OFF_TIP``, with its *cause*; *seen*, *why*:
    the market's (``ouroboros.reading.Standing``); each empty before the first. *tip_slot* None
    where none was told; *lags_ms*: how old its tip was, over the last quarter of an hour.
    *place*: ``HOST:PORT`` where its peers reach it, as its provider signed it; empty without one.
    *served_ms* of the *since_ms* for which it is there were billed; *spent* lovelace for them,
    *month* for 30 days of such.
    """

    job: str
    state: str
    network: str
    says: str
    cause: str
    seen: str
    why: str
    tip_slot: int | None
    lags_ms: tuple[int, ...]
    served_ms: int
    since_ms: int
    spent: int
    month: int
    place: str = ""

    @property
    def serves(self) -> bool:
        """It runs, and nobody says that it is not at its tip."""
        return self.state == "RUNNING" and self.says == "AT_TIP" and self.seen in ("", "AT_TIP")


def standing(
    view: JobAnswer, terms: Terms | None, story: Sequence[StoryAnswer], now_ms: int,
    direct: DirectPorts | None = None,
) -> RelayStanding:  # fmt: skip
    """From a job's view, its last lease's terms, its story so far, and where its direct ports are;
    :class:`NotARelay`.
    """
    need = JobSpec.from_wire(view["spec"]).relay
    if need is None:
        raise NotARelay(f"{view['id']} is no relay")
    events = [one for one in story if "kind" in one]
    said, seen = _last(events, "AT_TIP", "OFF_TIP"), _last(events, "LOOKED")
    detail: dict[str, Any] = said["detail"] if said else {}
    looked: dict[str, Any] = seen["detail"] if seen else {}
    slots = [
        (one["at_ms"], int(cast(dict[str, Any], one)["tip_slot"]))
        for one in (cast(SampleAnswer, one) for one in story if "tip_slot" in one)
    ]
    until = view["finished_at_ms"] or now_ms
    since_ms = max(0, until - view["started_at_ms"]) if view["started_at_ms"] else 0
    units = terms.units_milli if terms is not None else 0
    served_ms = min(view["unit_ms"] * 1000 // units, since_ms) if units else 0
    whole = owed(unit_ms(MONTH_MS, units), view["rate_micro"])
    return RelayStanding(
        job=view["id"],
        state=view["state"],
        network=need.network,
        says=said["kind"] if said else "",
        cause=str(detail.get("code", "")),
        seen=str(looked.get("standing", "")),
        why=str(looked.get("why", "")),
        tip_slot=slots[-1][1] if slots else None,
        lags_ms=tuple(max(0, at - need.of.clock.when(slot)) for at, slot in slots),
        served_ms=served_ms,
        since_ms=since_ms,
        spent=view["spent"],
        month=whole * served_ms // since_ms if since_ms else 0,
        place="" if direct is None else direct.places.get(need.port, ""),
    )


def _last(events: Sequence[EventAnswer], *kinds: str) -> EventAnswer | None:
    return next((one for one in reversed(events) if one["kind"] in kinds), None)
