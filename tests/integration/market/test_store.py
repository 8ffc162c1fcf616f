"""The store's promises, on SQLite and on PostgreSQL: all or nothing, compare-and-set, fences,
pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from marketplace.domain.errors import Conflict, Malformed, Refusal
from marketplace.domain.protocol import wire
from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.ports import Change
from marketplace.market.base.records import (
    Account,
    ClusterWord,
    Job,
    Lock,
    ReceiptRecord,
    Record,
    Sent,
    Setting,
    VoucherRecord,
    Word,
)
from marketplace.store.database import Database
from marketplace.store.migrate import migrate
from marketplace.store.tables import ROWS
from tests.fakes import FakeClock, FakeIds
from tests.integration.support.market import postgres

Body = Callable[[Database], Awaitable[None]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def on_store(request: pytest.FixtureRequest, tmp_path):
    """Run a coroutine function over a fresh, migrated database."""

    def start(url: str) -> Callable[[Body], None]:
        def run(body: Body) -> None:
            async def main() -> None:
                database = Database(url, "p1", FakeClock(), FakeIds())
                try:
                    await body(database)
                finally:
                    database.close()

            migrate(url)
            migrate(url)  # twice is once
            anyio.run(main)

        return run

    if request.param == "sqlite":
        yield start(f"sqlite:///{tmp_path}/s.db")
    else:
        with postgres() as url:
            yield start(url)


def test_a_group_loses_only_its_culprits(on_store) -> None:
    async def body(db: Database) -> None:
        await db.apply(Change(puts=[Account("a", 1)]))
        done: list[bool] = []

        async def one(i: int) -> None:
            sets = [Account("a", 1, "x", version=9)] if i == 7 else []  # another version
            try:
                await db.apply(Change(puts=[Account(f"b{i % 90}", i)], sets=[*sets]))
                done.append(True)
            except Conflict:
                done.append(False)

        async with anyio.create_task_group() as tasks:
            for i in range(100):
                tasks.start_soon(one, i)
        # 90 names, 10 of them twice; number 7 fails whole, so its twin 97 may have the name.
        assert (done.count(True), len(done)) == (90, 100)
        assert await db.count(Account) == 91
        assert db.commits < 100
        assert (await db.get(Account, "a")).suspended == ""  # pyright: ignore[reportOptionalMemberAccess]

    on_store(body)


ODD = ("", "\\N", "\\.", "a\tb\nc\rd", '"\\"', "Δ ✓ \U0001f600", "'; --", "%s %% ?", "{}")


def _odd(name: str, i: int) -> Job:
    text = ODD[i % len(ODD)]
    return Job(
        name, text, "", text, "job", {text: [text, None, 1, True]}, bytes([i % 256]) * 28,
        [text] * (i % 3), JobState.QUEUED, 2**53, i, b"\\x00" * (i % 2),
        exit_code=None if i % 2 else -i, explain={"a": {}} if i % 2 else {},
    )  # fmt: skip


def test_rows_come_back_as_they_were_written_however_many_at_once(on_store) -> None:
    async def body(db: Database) -> None:
        for count in (1, 9, 200, 600):
            put = [_odd(f"j{count}-{i:03d}", i) for i in range(count)]
            await db.apply(Change(puts=[*put]))
            assert await db.find(Job, id__ge=f"j{count}-", id__lt=f"j{count}.") == put

    on_store(body)


def test_a_list_of_any_length_asks_for_its_members_once(on_store) -> None:
    async def body(db: Database) -> None:
        await db.apply(Change(puts=[Account(f"a{i:04d}", i) for i in range(120)]))
        for count in (1, 3, 8, 100, 4_095, 4_097, 9_000):
            names = [f"a{i:04d}" for i in range(count)]
            there = names[:120]
            assert await db.among(Account, "id", names) == set(there)
            assert [one.id for one in await db.find(Account, id=names)] == there
            assert await db.count(Account, id=set(names)) == len(there)
            newest = await db.newest(Account, "id", "created_ms", names)
            assert {name: one.created_ms for name, one in newest.items()} == {
                name: i for i, name in enumerate(there)
            }

    on_store(body)


def test_one_of_many_that_cannot_be_stored_is_told_why(on_store) -> None:
    async def body(db: Database) -> None:
        await db.apply(Change(puts=[Account("a7", 1)]))
        refused: dict[str, type[Exception]] = {}

        async def one(name: str, at: int) -> None:
            try:
                await db.apply(Change(puts=[Account(name, at), Setting(name, "x")]))
            except Refusal as error:
                refused[name] = type(error)

        async with anyio.create_task_group() as tasks:
            for i in range(100):
                tasks.start_soon(one, f"a{i}", 2**70 if i == 50 else i)
        assert refused == {"a7": Conflict, "a50": Malformed}
        assert await db.count(Account) == 99
        assert await db.count(Setting) == 98  # all of a change, or nothing of it

    on_store(body)


def test_compare_and_set_has_one_winner(on_store) -> None:
    async def body(db: Database) -> None:
        await db.apply(Change(puts=[Account("a", 1)]))
        won: list[str] = []

        async def one(name: str) -> None:
            try:
                await db.apply(Change(sets=[Account("a", 1, name, version=0)]))
                won.append(name)
            except Conflict:
                pass

        async with anyio.create_task_group() as tasks:
            for i in range(20):
                tasks.start_soon(one, f"w{i}")
        now = await db.get(Account, "a")
        assert now is not None and [now.suspended] == won and now.version == 1

    on_store(body)


def test_nothing_of_a_refused_change_stays(on_store) -> None:
    async def body(db: Database) -> None:
        await db.apply(Change(puts=[Account("a", 1), Setting("s", "old")]))
        change = Change(
            puts=[Account("new", 1), Account("a", 2)],
            sets=[Setting("s", "new")],
            sends=[("adapter:00", wire.Ack(1))],
        )
        with pytest.raises(Conflict):
            await db.apply(change)
        assert await db.get(Account, "new") is None
        assert await db.count(Sent) == 0
        setting = await db.get(Setting, "s")
        assert setting is not None and (setting.value, setting.version) == ("old", 0)

    on_store(body)


def test_a_fence_stops_who_lost_the_lock(on_store) -> None:
    async def body(db: Database) -> None:
        await db.apply(Change(puts=[Lock("matcher", "p1", 1, 0)]))
        await db.apply(Change(puts=[Account("a", 1)], fence=("matcher", 1)))
        lock = await db.get(Lock, "matcher")
        assert lock is not None
        taken = Lock("matcher", "p2", 2, 0, version=lock.version)
        await db.apply(Change(sets=[taken]))
        with pytest.raises(Conflict):
            await db.apply(Change(puts=[Account("b", 1)], fence=("matcher", 1)))
        assert await db.get(Account, "b") is None

    on_store(body)


def test_the_greatest_voucher_stays(on_store) -> None:
    async def body(db: Database) -> None:
        async def raise_(cumulative: int) -> None:
            row = VoucherRecord(b"v" * 32, cumulative, bytes([cumulative]) * 64, "l", 1)
            await db.apply(Change(raises=[row]))

        async with anyio.create_task_group() as tasks:
            for cumulative in (5, 3, 9, 1, 7):
                tasks.start_soon(raise_, cumulative)
        await raise_(8)
        kept = await db.get(VoucherRecord, b"v" * 32)
        assert kept is not None and (kept.cumulative, kept.signature) == (9, b"\x09" * 64)

    on_store(body)


def test_the_newest_word_of_a_member_stays_each_of_its_kind(on_store) -> None:
    async def body(db: Database) -> None:
        async def raise_(number: int, word: Word = "order", lease: str = "l") -> None:
            row = ClusterWord(lease, word, number, bytes([number]), bytes(64), 1)
            await db.apply(Change(raises=[row]))

        async with anyio.create_task_group() as tasks:
            for number in (5, 3, 9, 1, 7):
                tasks.start_soon(raise_, number)
        await raise_(8)
        for word in ("place", "sight"):
            await raise_(2, word)
        await raise_(1, "order", "m")
        found = await db.find(ClusterWord, lease=["l", "m"])
        told = [(one.lease, one.word, one.number, one.body) for one in found]
        assert told == [
            ("l", "order", 9, b"\x09"), ("l", "place", 2, b"\x02"), ("l", "sight", 2, b"\x02"),
            ("m", "order", 1, b"\x01"),
        ]  # fmt: skip
        assert await db.get(ClusterWord, "l", "order") == found[0]

    on_store(body)


def test_pages_follow_one_another_without_gap(on_store) -> None:
    async def body(db: Database) -> None:
        await db.apply(Change(puts=[Account(f"a{i:02d}", i % 3) for i in range(20)]))
        order, seen, after = ("-created_ms", "id"), list[str](), None
        while True:
            page = await db.find(Account, order=order, after=after, limit=6)
            if not page:
                break
            seen += [a.id for a in page]
            after = (page[-1].created_ms, page[-1].id)
        wanted = sorted(range(20), key=lambda i: (-(i % 3), i))
        assert seen == [f"a{i:02d}" for i in wanted]
        assert await db.count(Account, created_ms__ge=1) == 13
        assert await db.total(Account, "created_ms") == 19

    on_store(body)


def test_a_question_asked_again_with_other_values_is_answered_anew(on_store) -> None:
    async def body(db: Database) -> None:
        rows: list[Record] = [
            Job(
                f"job{i}", "me", "", "n", "batch", {"price": [1, None, 3]}, b"k" * 28, [],
                JobState.QUEUED if i % 2 else JobState.ENDED, i, i, b"", exit_code=i or None,
            )
            for i in range(6)
        ]  # fmt: skip
        await db.apply(Change(puts=rows))

        async def ids(**where: Any) -> list[str]:
            return [j.id for j in await db.find(Job, **where)]

        assert await ids(state=JobState.QUEUED) == ["job1", "job3", "job5"]
        assert await ids(state=JobState.ENDED) == ["job0", "job2", "job4"]
        assert await ids(state=(JobState.ENDED, JobState.RUNNING)) == ["job0", "job2", "job4"]
        assert await ids(id=["job5", "job1"], created_ms__lt=5) == ["job1"]
        assert await ids(id={"job5"}, created_ms__lt=6) == ["job5"]
        assert await ids(id=[]) == []
        assert await ids(exit_code=None) == ["job0"]
        assert await ids(exit_code=2) == ["job2"]
        assert await db.get(Job, "job3") == rows[3]
        assert await db.get(Job, "job9") is None
        assert await db.among(Job, "id", ["job2", "x"]) == {"job2"}

    on_store(body)


def test_the_newest_of_each_is_found_at_once(on_store) -> None:
    async def body(db: Database) -> None:
        rows = [
            ReceiptRecord(
                bytes([i % 3]) * 32, i, f"lease{i % 3}", i // 3 + 1, b"b", b"s", i, i, i, i > 5, i
            )
            for i in range(8)
        ]
        await db.apply(Change(puts=[*rows]))
        found = await db.newest(ReceiptRecord, "lease", "tick", ["lease0", "lease2", "none"])
        assert found == {"lease0": rows[6], "lease2": rows[5]}
        assert await db.newest(ReceiptRecord, "lease", "tick", []) == {}
        one = await db.newest(ReceiptRecord, "session_vk", "seq", [b"\x01" * 32])
        assert one == {b"\x01" * 32: rows[7]}

    on_store(body)


def test_what_was_committed_is_told_once_with_its_outbox(on_store) -> None:
    async def body(db: Database) -> None:
        told: list[tuple[list[str], list[Sent]]] = []
        db.told.append(lambda topics, sent: told.append((topics, sent)))
        await db.apply(
            Change(puts=[Account("a", 1)], topics=["job:1"], sends=[("adapter:00", wire.Ack(1))])
        )
        with pytest.raises(Conflict):
            await db.apply(Change(puts=[Account("a", 1)], topics=["job:2"]))
        topics = [t for ts, _ in told for t in ts]
        assert topics == ["job:1", "adapter:00"]
        assert [s.target for _, sent in told for s in sent] == ["adapter:00"]
        assert await db.count(Sent) == 1

    on_store(body)


def test_the_migrations_make_exactly_the_tables_of_the_code(on_store) -> None:
    async def body(db: Database) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext

        with db.engine.connect() as connection:
            context = MigrationContext.configure(connection)
            metadata = next(iter(ROWS.values())).metadata
            assert compare_metadata(context, metadata) == []

    on_store(body)
