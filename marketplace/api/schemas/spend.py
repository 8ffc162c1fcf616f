"""Answers about what an account spent."""

from __future__ import annotations

from typing import Literal

from marketplace.api.schemas.shape import Answer, Next, told


class SpendRow(Answer):
    """What one day, job or API key spent."""

    of: str = told("the job's or key's id; empty for a day, and for what a signed-in wallet posted")
    name: str = told("what its owner calls it; empty for a day")
    from_ms: int = told("the beginning of its first day with a cost, ms since 1970, UTC")
    to_ms: int = told("the end of its last such day, ms since 1970, UTC")
    jobs: int = told("how many jobs")
    leases: int = told("how many leases")
    owed: int = told("what they owed on these days, lovelace; network fees are not in it")


class Spend(Answer):
    """A page of what an account spent."""

    by: Literal["day", "job", "key"] = told("what a row is of")
    from_ms: int = told("the beginning of the first day, ms since 1970, UTC")
    to_ms: int = told("the end of the last day, ms since 1970, UTC")
    owed: int = told("the sum of all rows, also of other pages, lovelace")
    items: list[SpendRow] = told("newest days and jobs first, keys by id")
    next: str | None = Next
