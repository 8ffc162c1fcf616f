"""How many requests will be under way before another replica could serve: learned from what was,
and held against what came.

A forecast is of the most requests at once in the stretches that a replica needs to start (the
*horizon*). It is what is under way, smoothed over that time, and a ridge regression (scikit-learn)
on how demand was lately, at this time of day, and a day ago. How far it was off is kept, and so
many of these errors are added that it is enough as often as is wanted (a conformal bound: Vovk,
Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005). Where it would have done
worse than waiting for demand, by the loss for just that purpose (the pinball loss), it says so.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from operator import mul
from typing import Final

from marketplace.client.services.demand import DAY_MS, MOST
from marketplace.domain.errors import Refusal

LEAST: Final = 20  # forecasts that can be checked, before any is learned from
CHECKED: Final = 10  # errors that are known, before any is believed
ERRORS: Final = 2_000  # that are kept
LATELY: Final = 200  # comparisons with waiting for demand
SHRUNK: Final = 300.0
"""Ridge's alpha, on standardised inputs: with an hour of demand hardly more than the smoothed
level is believed, with days of it the time of day is.
"""
HARMONICS: Final = (1, 2, 3, 4)  # of a day: down to waves of six hours
LEARNED_AGAIN: Final = 20  # each time that there is a twentieth more of it


class ForecastMissing(Refusal):
    """The library that forecasts is not installed."""

    code = "FORECAST_MISSING"
    remedy = 'pip install "tally-compute[forecast]", or leave out service.scale.predict'


def want_library() -> None:
    """:class:`ForecastMissing`."""
    if find_spec("sklearn") is None:
        raise ForecastMissing("service.scale.predict needs scikit-learn, which is not installed")


def load_library() -> None:
    """It takes a second or two, in which a process that pays had better do other things as well;
    :class:`ForecastMissing`.
    """
    want_library()
    importlib.import_module("sklearn.linear_model")


class Forecast:
    """Of demand whose *peaks* are known, in stretches of *stretch_ms*: over *horizon* stretches,
    enough in *per_cent* of 100 of them. *behind*: for so many stretches a scaler that waits for
    demand keeps what it has started.
    """

    def __init__(
        self, peaks: Sequence[int], stretch_ms: int, horizon: int, per_cent: int, behind: int
    ) -> None:
        self.horizon, self.per_cent, self._behind = horizon, per_cent, behind
        self._day = DAY_MS // stretch_ms
        self._seen: list[int] = []
        self._levels: list[float] = []
        self._sums: list[int] = [0]
        self._inputs: list[list[float]] = []
        self._targets: list[float] = []  # how far what came was above the level
        self._weights: list[float] = []  # empty: nothing was learned yet
        self._constant = 0.0
        self._learned = 0
        self._forgotten = 0
        self._said: deque[tuple[float, float]] = deque()  # and not checked yet, the oldest first
        self._errors: deque[float] = deque(maxlen=ERRORS)
        self._losses: deque[tuple[float, float]] = deque(maxlen=LATELY)
        self._now = (0.0, 0.0)
        for peak in peaks:
            self._note(peak)
        self._learn()
        self._look_back()

    # ---- what it says -------------------------------------------------------------------------

    @property
    def checked(self) -> int:
        """How many forecasts were held against what came."""
        return len(self._errors)

    @property
    def enough(self) -> int | None:
        """So many requests at once will not be exceeded, as often as is wanted. None: too little is
        known.
        """
        if self.checked < CHECKED:
            return None
        return max(0, math.ceil(self._now[1]))

    @property
    def trusted(self) -> bool:
        """Whether it did no worse lately than waiting for demand would have done."""
        if len(self._losses) < CHECKED:
            return False
        return sum(mine for mine, _ in self._losses) <= sum(theirs for _, theirs in self._losses)

    # ---- what it hears ------------------------------------------------------------------------

    def learn(self, peak: int) -> None:
        """The next stretch had so many at once."""
        self._note(peak)
        if len(self._said) >= self.horizon:
            self._check(*self._said.popleft())
        if (len(self._targets) - self._learned) * LEARNED_AGAIN >= max(self._learned, LEAST):
            self._learn()
        self._say()
        self._forget()

    def _say(self) -> None:
        expected = self._expected()
        self._now = expected, expected + self._margin()
        self._said.append(self._now)

    def _check(self, expected: float, bound: float) -> None:
        came = max(self._seen[-self.horizon :])
        if self.checked >= CHECKED:
            before = self._seen[-self.horizon - self._behind : -self.horizon]
            waiting = max(before, default=0)
            self._losses.append((self._loss(came, bound), self._loss(came, waiting)))
        self._errors.append(came - expected)

    def _loss(self, came: float, bound: float) -> float:
        """The pinball loss: what was lacking costs more than what was idle, the more so the more
        often it is to be enough.
        """
        lacking = came - bound
        return self.per_cent * lacking if lacking > 0 else (self.per_cent - 100) * lacking

    # ---- within -------------------------------------------------------------------------------

    def _note(self, peak: int) -> None:
        seen, levels = self._seen, self._levels
        seen.append(peak)
        self._sums.append(self._sums[-1] + peak)
        new = 1 - math.exp(-1 / self.horizon)
        levels.append(levels[-1] + new * (peak - levels[-1]) if levels else float(peak))
        self._inputs.append(self._input(len(seen) - 1))
        begin = len(seen) - 1 - self.horizon
        if begin >= 0:
            self._targets.append(max(seen[begin + 1 :]) - levels[begin])

    def _input(self, at: int) -> list[float]:
        """What is known at the end of stretch *at*, by its distance from the level there."""
        level, long = self._levels[at], 4 * self.horizon
        lately = [
            self._seen[at],
            self._mean(at, self.horizon),
            self._mean(at, long),
            self._mean(at, 4 * long),
            max(self._seen[max(0, at + 1 - self.horizon) : at + 1]),
            max(self._seen[max(0, at + 1 - long) : at + 1]),
        ]
        turn = 2 * math.pi * ((self._forgotten + at + 1) % self._day) / self._day
        waves = [wave(n * turn) for n in HARMONICS for wave in (math.sin, math.cos)]
        a_day_ago = at - self._day
        if a_day_ago < 0:
            return [one - level for one in lately] + [0.0] * (len(waves) + 2)
        came = self._mean(a_day_ago + self.horizon, self.horizon)
        return [
            *(one - level for one in lately), *waves, came - level,
            came - self._levels[a_day_ago],
        ]  # fmt: skip

    def _mean(self, last: int, count: int) -> float:
        first = max(0, last + 1 - count)
        return (self._sums[last + 1] - self._sums[first]) / (last + 1 - first)

    def _learn(self) -> None:
        if len(self._targets) < LEAST:
            return
        want_library()
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import StandardScaler

        known = self._inputs[: len(self._targets)]
        scaler = StandardScaler()
        ridge = Ridge(alpha=SHRUNK).fit(scaler.fit_transform(known), self._targets)
        # The two as one affine map: it is asked in every stretch, and a row through the library's
        # own checks takes a hundred times as long.
        shares = zip(ridge.coef_, scaler.scale_, strict=True)
        self._weights = [float(weight / scale) for weight, scale in shares]
        means = zip(self._weights, scaler.mean_, strict=True)
        self._constant = float(ridge.intercept_) - sum(weight * float(m) for weight, m in means)
        self._learned = len(self._targets)

    def _look_back(self) -> None:
        """How far off it would have been: all that is known of errors where a keeper begins with
        what another one saw.
        """
        count = len(self._targets)
        would = [self._above(one) for one in self._inputs]
        for at in range(max(0, count - ERRORS), count):
            self._errors.append(self._targets[at] - would[at])
        margin = self._margin()
        for at in range(count, len(self._inputs)):
            expected = self._levels[at] + would[at]
            self._now = expected, expected + margin
            self._said.append(self._now)

    def _expected(self) -> float:
        return self._levels[-1] + self._above(self._inputs[-1])

    def _above(self, known: list[float]) -> float:
        """How far what comes will be above the level, as far as it was learned."""
        return self._constant + sum(map(mul, self._weights, known))

    def _margin(self) -> float:
        if not self._errors:
            return 0.0
        rank = math.ceil((len(self._errors) + 1) * self.per_cent / 100) - 1
        return sorted(self._errors)[min(rank, len(self._errors) - 1)]

    def _forget(self) -> None:
        """What is older than is remembered; now and then, as lists are long."""
        beyond = len(self._seen) - MOST
        if beyond < MOST // 10:
            return
        for kept in (self._seen, self._levels, self._sums, self._inputs, self._targets):
            del kept[:beyond]
        self._forgotten += beyond
        self._learned = min(self._learned, len(self._targets))
