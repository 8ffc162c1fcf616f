"""What every record is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

Json = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """Base of all: ``KEY`` names one, ``FIXED`` never changes after its insert."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)
    FIXED: ClassVar[frozenset[str]] = frozenset()

    def but(self, **changes: object) -> Self:
        """``dataclasses.replace`` at a sixth of its cost, for what every job goes through."""
        if not changes.keys() <= self.__dict__.keys():
            raise TypeError(f"{type(self).__name__} has no {changes.keys() - self.__dict__.keys()}")
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
        return other
