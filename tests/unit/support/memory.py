"""A store in memory, and a death at a chosen commit: ``Store`` of the market, as far as its jobs
need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from marketplace.domain.errors import Conflict
from marketplace.domain.protocol import wire
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Lock, Record

R = TypeVar("R", bound=Record)
COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "ne": lambda a, b: a != b,
}  # fmt: skip


class Died(BaseException):
    """The process is gone; what was committed is not."""


@dataclass
class Memory:
    """*dies*: (how many commits from now, whether that one is still written); *looked* sees each
    commit.
    """

    rows: dict[tuple[type[Record], tuple[object, ...]], Record] = field(default_factory=dict)
    outbox: list[tuple[str, wire.Message]] = field(default_factory=list)
    dies: tuple[int, bool] | None = None
    looked: Callable[[], None] = lambda: None

    async def get(self, kind: type[R], *key: object) -> R | None:
        return self.rows.get((kind, key))  # pyright: ignore[reportReturnType] (by its kind)

    async def find(
        self,
        kind: type[R],
        *,
        order: Sequence[str] = (),
        after: tuple[object, ...] | None = None,
        limit: int = 1000,
        **where: object,
    ) -> list[R]:
        assert after is None, "not needed so far"
        found = [r for (k, _), r in self.rows.items() if k is kind and _meets(r, where)]
        for name in reversed(order or kind.KEY):
            found.sort(key=lambda r: getattr(r, name.lstrip("-")), reverse=name.startswith("-"))
        return found[:limit]  # pyright: ignore[reportReturnType] (by their kind)

    async def newest(
        self, kind: type[R], group: str, by: str, values: Sequence[object]
    ) -> dict[object, R]:
        raise NotImplementedError

    async def count(self, kind: type[Record], **where: Any) -> int:
        return len(await self.find(kind, limit=1_000_000, **where))

    async def total(self, kind: type[Record], column: str, **where: Any) -> int:
        return sum(getattr(r, column) for r in await self.find(kind, limit=1_000_000, **where))

    async def among(self, kind: type[Record], column: str, values: Sequence[object]) -> set[object]:
        wanted: dict[str, Any] = {column: tuple(values)}
        return {getattr(r, column) for r in await self.find(kind, **wanted)}

    async def ping(self) -> None: ...

    async def apply(self, change: Change) -> None:
        if self.dies is not None:
            left, written = self.dies
            self.dies = (left - 1, written) if left else None
            if not left:
                if written:
                    self._write(change)
                raise Died
        self._write(change)

    def _write(self, change: Change) -> None:
        rows = dict(self.rows)
        if change.fence is not None:
            name, epoch = change.fence
            lock = rows.get((Lock, (name,)))
            if not isinstance(lock, Lock) or lock.epoch != epoch:
                raise Conflict("the lock was taken over")
        for one in change.drops:
            rows.pop(_name(one), None)
        for one in change.puts:
            if _name(one) in rows:
                raise Conflict("the record exists")
            rows[_name(one)] = one
        for one in change.sets:
            was: Any = rows.get(_name(one))
            new: Any = one
            if was is None or was.version != new.version:
                raise Conflict(f"a {type(one).__name__.lower()} changed meanwhile")
            rows[_name(one)] = replace(new, version=new.version + 1)
        for one in change.raises:
            rows[_name(one)] = one
        self.rows = rows
        self.outbox += change.sends
        self.looked()


def _name(record: Record) -> tuple[type[Record], tuple[object, ...]]:
    return type(record), tuple(getattr(record, key) for key in record.KEY)


def _meets(record: Record, where: dict[str, object]) -> bool:
    for name, wanted in where.items():
        field_name, _, compare = name.partition("__")
        value = getattr(record, field_name)
        if compare:
            met = COMPARES[compare](value, wanted)
        else:
            met = value in wanted if isinstance(wanted, (tuple, list)) else value == wanted
        if not met:
            return False
    return True
