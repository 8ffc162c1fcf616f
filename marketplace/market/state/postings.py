"""What jobs ask for, as their files would say it: read once, shown at every look."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from marketplace.domain.work import jobfile
from marketplace.market.base.records import Job

MOST: Final = 500
"""Kept: the jobs that are looked at again and again. A posting is at most a job file long."""


@dataclass(frozen=True)
class Posting:
    """*file*: the job file that says the same; nobody changes it. *budget* in lovelace."""

    file: dict[str, Any]
    budget: int


class Postings:
    """Of the jobs that were shown last. What was posted never changes, and reading it was most of
    what a page of jobs cost.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Posting] = OrderedDict()

    def of(self, job: Job) -> Posting:
        """What *job* asks for."""
        kept = self._kept.get(job.id)
        if kept is None:
            spec = job.parsed
            kept = self._kept[job.id] = Posting(jobfile.write(spec), spec.price.budget)
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(job.id)
        return kept
