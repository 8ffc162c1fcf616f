"""The store over SQLite (WAL, synchronous=FULL) or PostgreSQL: the same code, by URL.

Writes are grouped: whoever finds no commit under way takes what waits and commits it in one
transaction, so a group costs a few round trips however many changes are in it. If the group fails
for one change's sake it is halved until the culprit stands alone; the others commit. Where a read
costs a thread, those by key are grouped in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

import anyio
import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from marketplace.domain.errors import Conflict, Malformed, TallyError
from marketplace.domain.protocol import codec
from marketplace.market.base.group_commit import GroupCommit
from marketplace.market.base.ports import Change, Clock, Ids
from marketplace.market.base.records import Lock, Record, Sent
from marketplace.store import sql
from marketplace.store.engines import create_engine, normal_url
from marketplace.store.errors import map_database
from marketplace.store.reading import Reader
from marketplace.store.reads import Reads
from marketplace.store.rows import Inserts

R = TypeVar("R", bound=Record)
T = TypeVar("T")
GROUP: Final = 512
NOTIFY_LIMIT: Final = 7000  # PostgreSQL takes 8000 bytes a notification
CHANNEL: Final = "tally"
_OF_ONE: Final = (DataError, ValueError, OverflowError, TypeError)
"""What one value brings about, whatever it is grouped with."""
Told = Callable[[list[str], list[Sent]], None]


@dataclass(eq=False)
class _Waiting:
    change: Change
    sent: list[Sent]
    error: TallyError | None = None


@dataclass(eq=False)
class _Asked:
    kind: type[Record]
    key: tuple[object, ...]
    found: Record | None = None
    error: TallyError | None = None


class Database:
    """``Store`` of the service. *told* is called after each commit, in the event loop's thread."""

    def __init__(self, url: str, process: str, clock: Clock, ids: Ids) -> None:
        self.url, self.process = normal_url(url), process
        self.clock, self.ids = clock, ids
        self.engine = create_engine(self.url)
        self.dialect = self.engine.dialect.name
        self._reader = Reader(self.url)
        self._writes = GroupCommit(GROUP, self._write_group)
        self._gets = GroupCommit(GROUP, self._get_group)
        self._inserts = Inserts(self.engine.dialect)
        self.told: list[Told] = []
        self.commits = 0
        self.changes = 0

    async def apply(self, change: Change) -> None:
        """Durable when it returns; Conflict or StoreFault."""
        now = self.clock.now_ms()
        sent = [
            Sent(self.ids.new("out"), target, codec.to_bytes(message), now)
            for target, message in change.sends
        ]
        mine = _Waiting(change, sent)
        await self._writes.join(mine)
        if mine.error is not None:
            raise mine.error

    async def _write_group(self, group: list[_Waiting]) -> None:
        await anyio.to_thread.run_sync(self._commit, group)
        self._tell(group)

    async def get(self, kind: type[R], *key: object) -> R | None:
        """The record, or None. In threads, questions that come together cost one of them, and one
        query for each kind of record.
        """
        mine = _Asked(kind, key)
        if self._reader.in_threads:
            await self._gets.join(mine)
        else:
            await self._get_group([mine])
        if mine.error is not None:
            raise mine.error
        return cast("R | None", mine.found)

    async def find(
        self,
        kind: type[R],
        *,
        order: Sequence[str] = (),
        after: tuple[object, ...] | None = None,
        limit: int = 1000,
        **where: object,
    ) -> list[R]:
        """See ``ports.Store.find``."""
        return await self._reader.ask(lambda reads: reads.find(kind, where, order, after, limit))

    async def newest(
        self, kind: type[R], group: str, by: str, values: Sequence[object]
    ) -> dict[object, R]:
        """See ``ports.Store.newest``."""
        if not values:
            return {}
        return await self._reader.ask(lambda reads: reads.newest(kind, group, by, values))

    async def count(self, kind: type[Record], **where: object) -> int:
        """How many."""
        return await self._reader.ask(lambda reads: reads.number(sql.counting(kind, where)))

    async def total(self, kind: type[Record], column: str, **where: object) -> int:
        """The sum of an integer column."""
        return await self._reader.ask(lambda reads: reads.number(sql.summing(kind, column, where)))

    async def among(self, kind: type[Record], column: str, values: Sequence[object]) -> set[object]:
        """See ``ports.Store.among``."""
        return await self._reader.ask(lambda reads: reads.among(kind, column, values))

    async def ping(self) -> None:
        """StoreFault unless it answers."""
        await self._reader.ask(lambda reads: reads.number(sa.select(sa.literal(1))))

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()
        self._reader.close()

    async def _get_group(self, group: list[_Asked]) -> None:
        await self._reader.ask(lambda reads: _get_all(reads, group))

    def _tell(self, group: list[_Waiting]) -> None:
        topics = list(dict.fromkeys(t for w in group if w.error is None for t in _topics(w)))
        sent = [s for w in group if w.error is None for s in w.sent]
        for listener in self.told:
            listener(topics, sent)

    # ---- in the writer's thread --------------------------------------------------------------

    def _commit(self, group: list[_Waiting]) -> None:
        """Commit *group* whole, or halve it until only culprits are left over."""
        try:
            with self.engine.begin() as connection:
                self._write(connection, group)
            self.commits += 1
            self.changes += len(group)
        except (IntegrityError, Conflict, *_OF_ONE) as error:
            if len(group) > 1:
                middle = len(group) // 2
                self._commit(group[:middle])
                self._commit(group[middle:])
                return
            group[0].error = _of_one(error)
        except SQLAlchemyError as error:
            for waiting in group:
                waiting.error = map_database(error)

    def _write(self, connection: Connection, group: list[_Waiting]) -> None:
        changes = [w.change for w in group]
        self._hold_fences(connection, changes)
        for kind, records in _by_kind(r for c in changes for r in c.drops).items():
            connection.execute(sql.removal(kind), [sql.key_of(r) for r in records])
        for kind, records in _by_kind(r for c in changes for r in c.puts).items():
            self._inserts.run(connection, kind, records)
        for kind, records in _by_kind(r for c in changes for r in c.sets).items():
            result = connection.execute(
                sql.compare_and_set(kind), [sql.changed(r) for r in records]
            )
            if result.rowcount != len(records):
                raise Conflict(f"a {kind.__name__.lower()} changed meanwhile")
        for kind, records in _by_kind(r for c in changes for r in c.raises).items():
            best = _greatest(kind, records)
            connection.execute(sql.raising(kind, self.dialect), [sql.values(r) for r in best])
        sent = [s for w in group for s in w.sent]
        if sent:
            self._inserts.run(connection, Sent, sent)
        if self.dialect == "postgresql":
            self._notify(connection, group)

    def _hold_fences(self, connection: Connection, changes: list[Change]) -> None:
        """A lock that was taken over since makes everything planned under it a Conflict."""
        locks = sql.table(Lock)
        for name, epoch in {c.fence for c in changes if c.fence is not None}:
            held = connection.execute(
                sa.update(locks)
                .where(locks.c["name"] == name, locks.c["epoch"] == epoch)
                .values(beat=locks.c["beat"] + 1)
            )
            if held.rowcount != 1:
                raise Conflict(f"the lock {name} was taken over", lock=name)

    def _notify(self, connection: Connection, group: list[_Waiting]) -> None:
        topics = list(dict.fromkeys(t for w in group for t in _topics(w)))
        while topics:
            size, count = 0, 0
            while count < len(topics) and size + len(topics[count]) + 4 < NOTIFY_LIMIT:
                size, count = size + len(topics[count]) + 4, count + 1
            payload = json.dumps([self.process, *topics[:count]])
            connection.execute(sa.select(sa.func.pg_notify(CHANNEL, payload)))
            topics = topics[count:]


def _get_all(reads: Reads, group: list[_Asked]) -> None:
    """Answer the whole group; where a key is one that no database can hold, each question by
    itself, so that it is its asker's trouble only.
    """
    try:
        _answer(reads, group)
    except _OF_ONE as whole:
        if len(group) == 1:
            group[0].error = _of_one(whole)
            return
        for asked in group:
            _get_all(reads, [asked])


def _answer(reads: Reads, group: list[_Asked]) -> None:
    kinds: dict[type[Record], list[_Asked]] = {}
    for asked in group:
        kinds.setdefault(asked.kind, []).append(asked)
    for kind, some in kinds.items():
        found = reads.by_key(kind, [asked.key for asked in some])
        for asked in some:
            asked.found = found.get(asked.key)


def _of_one(error: Exception) -> TallyError:
    """Why this one change cannot be written, or this one key not be read."""
    if isinstance(error, Conflict):
        return error
    if isinstance(error, IntegrityError):
        return Conflict("the record exists")
    # A text or a number that the driver cannot store: what was sent is at fault, not the world.
    return Malformed(f"a value cannot be stored: {type(error).__name__}")


def _topics(waiting: _Waiting) -> list[str]:
    return [*waiting.change.topics, *(s.target for s in waiting.sent)]


def _by_kind(records: Iterable[Record]) -> dict[type[Record], list[Record]]:
    kinds: dict[type[Record], list[Record]] = {}
    for record in records:
        kinds.setdefault(type(record), []).append(record)
    return kinds


def _greatest(kind: type[Record], records: list[Record]) -> list[Record]:
    by, best = sql.GREATEST[kind], dict[tuple[object, ...], Record]()
    for record in records:
        key = tuple(getattr(record, k) for k in kind.KEY)
        if key not in best or getattr(best[key], by) < getattr(record, by):
            best[key] = record
    return list(best.values())
