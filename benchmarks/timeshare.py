"""Taking turns: which jobs run in the next round where work may be paused.

Least attained service (Gu et al., "Tiresias", NSDI 2019) finishes short jobs fast without knowing
how long anything is, but a stream of newcomers starves whoever is large or old. Here every job also
earns what an equal split of the devices would have given it; a job that has received too little of
that goes first, the worst off before all. The guard is what bounds the finish-time-fairness ratio
(Mahajan et al., "Themis", NSDI 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def equal_split(wants: Floats, devices: float) -> Floats:
    """Devices per job when all get the same, none more than it wants (max-min by filling up).
    Shape: as *wants*.
    """
    given = np.zeros(len(wants))
    order = np.argsort(wants, kind="stable")
    left = devices
    for at, index in enumerate(order):
        given[index] = min(wants[index], left / (len(wants) - at))
        left -= given[index]
    return given


@dataclass(slots=True)
class TimeShare:
    """``patience``: how many times less than an equal split a job may have received before it goes
    first.

    ``grace``: device-seconds added to both sides, so that a newcomer is not called starved after
    one round.
    """

    devices: int
    patience: float = 1.75
    grace: float = 7_200.0

    def order(self, attained: Floats, earned: Floats) -> Ints:
        """Jobs in the order in which they get the next round.

        *attained*: device-seconds received; *earned*: those that an equal split would have given so
        far.
        """
        behind = (earned + self.grace) / (attained + self.grace)
        late = behind > self.patience
        return np.lexsort((np.where(late, -behind, attained), ~late))

    def pick(self, order: Ints, wants: Floats) -> Ints:
        """The jobs that run: in order, each whole, smaller ones filling what a larger one
        leaves.
        """
        left = float(self.devices)
        chosen: list[int] = []
        for index in order:
            if wants[index] <= left:
                chosen.append(int(index))
                left -= wants[index]
                if left <= 0:
                    break
        return np.array(chosen, np.int64)
