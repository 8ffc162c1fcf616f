"""What waiting jobs' words meant when they were read last: for models by what is listed, and for
providers by their offers. Who lists something changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from marketplace.domain.work.job import JobSpec
from marketplace.market.state.listings import Listings
from marketplace.market.state.match import Spent

Waits: TypeAlias = tuple[Sequence[JobSpec], frozenset[str], Spent]
"""A job, or all members of a gang; the providers that it shuns beside its file, and what it has
spent at others.
"""
_Words: TypeAlias = tuple[str, ...]
_MORE_THAN_ONE: Final = frozenset[str]()
"""Two who wait with the same words took them for different models: they mean neither for sure."""


class Understood:
    """The words of all who wait."""

    def __init__(self, listings: Listings) -> None:
        self._listings = listings
        self._changes = listings.changes
        self._meant: dict[_Words, frozenset[str]] = {}

    def hear(self, specs: Sequence[JobSpec]) -> None:
        """They wait from now on."""
        for words in _models(specs):
            now = self._listings.meaning(words)
            if self._meant.setdefault(words, now) != now:
                self._meant[words] = _MORE_THAN_ONE

    def misread(self, waiting: Iterable[tuple[str, Waits]]) -> list[str]:
        """Whose words may mean something else by now; from here on they are understood."""
        if self._changes == self._listings.changes:
            return []
        self._changes = self._listings.changes
        was, self._meant = self._meant, {}
        found: list[str] = []
        for name, (specs, avoid, spent) in waiting:
            moved = False
            for words in _models(specs):
                now = self._meant.get(words)
                if now is None:
                    now = self._meant[words] = self._listings.meaning(words)
                moved = moved or now != was.get(words)
            shuns = avoid or any(one.placement.not_providers for one in specs)
            if moved or shuns or spent.channels:
                found.append(name)
        return found


def _models(specs: Sequence[JobSpec]) -> Iterator[_Words]:
    for one in specs:
        for block in one.resources:
            if block.gpu is not None and block.gpu.models:
                yield block.gpu.models
