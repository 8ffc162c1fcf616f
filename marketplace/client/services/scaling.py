"""How many replicas are wanted: what is under way, over how many each is meant for; and, if the
file says so, what will be under way once a new one could serve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import structlog

from marketplace.client.services.core import STARTS, Replica
from marketplace.client.services.demand import Demand, stretch_ms
from marketplace.client.services.folder import ServiceFolder
from marketplace.client.services.forecast import Forecast, ForecastMissing
from marketplace.client.services.stage import Stage
from marketplace.domain.errors import Malformed
from marketplace.domain.work.service import Scale

log = structlog.get_logger("tally.service")
STARTS_KNOWN: Final = 9  # of the last replicas: their median is what the next one is taken to need
NO_START: Final = "a forecast begins once a first replica has shown how long one needs to start"


@dataclass
class Highest:
    """Of what was said in the last while."""

    _said: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])

    def of(self, value: int, now: int, for_ms: int) -> int:
        """*value* at *now*, or what was more in the *for_ms* before."""
        said = self._said
        while said and said[-1][1] <= value:
            said.pop()
        said.append((now, value))
        while said[0][0] < now - for_ms:
            said.popleft()
        return said[0][1]


@dataclass
class Scaler:
    """Waits for demand: more at once, fewer only after none more were needed for as long as the
    scale says.
    """

    _needed: Highest = field(default_factory=Highest)

    def wanted(self, scale: Scale, under_way: int, now: int) -> int:
        """*under_way*: requests that are answered or wait."""
        if not scale.per_replica:
            return scale.least
        needed = -(-under_way // scale.per_replica)
        return _within(scale, self._needed.of(needed, now, scale.down_after_ms))


class Ahead:
    """Goes ahead of demand, as long as its forecast does better than *waiting* for it. *start_ms*:
    what a replica needs until it serves.
    """

    def __init__(self, scale: Scale, demand: Demand, start_ms: int, waiting: Scaler) -> None:
        self.demand, self.start_ms, self._scale = demand, start_ms, scale
        self._waiting, self._needed = waiting, Highest()
        horizon, per_cent, behind = self._how(scale, start_ms)
        self.forecast = Forecast(demand.peaks, demand.stretch_ms, horizon, per_cent, behind)

    def suits(self, scale: Scale, start_ms: int) -> bool:
        """Whether another one would be made for these."""
        return self._how(scale, start_ms) == self._how(self._scale, self.start_ms)

    def _how(self, scale: Scale, start_ms: int) -> tuple[int, int, int]:
        stretch = self.demand.stretch_ms
        return (-(-start_ms // stretch), scale.predict, -(-scale.down_after_ms // stretch))

    def wanted(self, scale: Scale, under_way: int, now: int) -> int:
        """As for :class:`Scaler`."""
        # What is beyond the most that may run changes nothing now, and would be learned from.
        seen = min(under_way, scale.most * scale.per_replica)
        for peak in self.demand.note(seen, now):
            self.forecast.learn(peak)
        waiting = self._waiting.wanted(scale, under_way, now)
        enough = self.forecast.enough if self.forecast.trusted else None
        # Demand that nobody foresaw is answered all the same, if not to its highest spike.
        bear = under_way if enough is None else max(enough, self.demand.now, min(under_way, 1))
        needed = self._needed.of(-(-bear // scale.per_replica), now, scale.down_after_ms)
        return waiting if enough is None else _within(scale, needed)

    def follow(self, before: Ahead) -> None:
        """What *before* wanted in the last while is not wanted less for learning anew."""
        self._needed = before._needed

    def says(self) -> str:
        """For whoever looks at the service."""
        enough, checked = self.forecast.enough, self.forecast.checked
        if enough is None:
            return f"too little was seen for a forecast yet ({checked} were checked)"
        said = (
            f"{enough} requests at once will be enough for the next {self.start_ms // 1000} s, in "
            f"{self.forecast.per_cent} of 100 times"
        )
        if not self.forecast.trusted:
            return f"{said}; lately waiting for demand would have done better, so it is not used"
        return said


class Scaling:
    """Of the service of *folder*: what demand was and how long replicas need to start outlast the
    keeper that saw it.
    """

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self.starts_ms = folder.standing().starts_ms
        self.forecast = ""
        self._posted: dict[str, int] = {}
        self._waiting = Scaler()
        self._ahead: Ahead | None = None

    def posted(self, job: str, since_ms: int) -> None:
        """A replica was wanted at *since_ms*, and is *job* now."""
        self._posted[job] = since_ms

    def saw(self, replicas: Sequence[Replica], now: int) -> None:
        """Where they stand at *now*."""
        stages = {one.job: one.stage for one in replicas}
        for job in [job for job in self._posted if stages.get(job) not in STARTS]:
            took = now - self._posted.pop(job)
            if stages.get(job) is Stage.SERVING:
                self.starts_ms = (*self.starts_ms, took)[-STARTS_KNOWN:]

    def wanted(self, scale: Scale, under_way: int, now: int) -> int:
        """As for :class:`Scaler`."""
        if not scale.predict or not self.starts_ms:
            self._ahead, self.forecast = None, NO_START if scale.predict else ""
            return self._waiting.wanted(scale, under_way, now)
        try:
            ahead = self._ready(scale)
        except ForecastMissing as missing:
            self.forecast = missing.line()
            return self._waiting.wanted(scale, under_way, now)
        until_ms = ahead.demand.until_ms
        wanted = ahead.wanted(scale, under_way, now)
        if ahead.demand.until_ms != until_ms:
            self._folder.remember(ahead.demand)
        self.forecast = ahead.says()
        return wanted

    def _ready(self, scale: Scale) -> Ahead:
        """One that knows what is known by now."""
        start_ms = int(median(self.starts_ms))
        known = self._ahead
        if known is None or not known.suits(scale, start_ms):
            demand = known.demand if known is not None else self._remembered()
            made = Ahead(scale, demand or Demand(stretch_ms(start_ms)), start_ms, self._waiting)
            if known is not None:
                made.follow(known)
            self._ahead = known = made
        return known

    def _remembered(self) -> Demand | None:
        try:
            return self._folder.demand()
        except Malformed as damaged:
            # It is learned anew, and written over: a service is not left alone for that.
            log.warning("service.demand", why=damaged.line())
            return None


def _within(scale: Scale, count: int) -> int:
    return min(max(scale.least, count), scale.most)
