"""A value that no database can hold refuses its own change or question, and never those that it is
grouped with.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

import anyio
import pytest

from marketplace.api.http.paging import place_in
from marketplace.domain.canonical import want_text
from marketplace.domain.errors import Malformed, TallyError
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Account, Remembered, Setting
from marketplace.store.database import Database
from marketplace.store.migrate import migrate
from tests.fakes import FakeClock, FakeIds
from tests.integration.support.market import market, postgres


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db"
    else:
        with postgres() as url:
            yield url


def test_one_poisoned_change_stands_alone(db: str) -> None:
    poison = [Account("acc_big", 2**70), Setting("half", "\ud800")]
    if "postgres" in db:
        poison.append(Setting("nul", "a\x00b"))
    refused: list[TallyError] = []

    async def run() -> None:
        store = Database(db, "p", FakeClock(), FakeIds())

        async def put(record: Account | Setting) -> None:
            try:
                await store.apply(Change(puts=[record]))
            except TallyError as error:
                refused.append(error)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    tasks.start_soon(put, Setting(f"good {number}", "x"))
                    if number < len(poison):
                        tasks.start_soon(put, poison[number])
            if "postgres" in db:
                with pytest.raises(Malformed):
                    await store.get(Setting, "a\x00b")
            assert await store.count(Setting) == 30 and await store.count(Account) == 0
        store.close()

    migrate(db)
    anyio.run(run)
    assert [type(error) for error in refused] == [Malformed] * len(poison), refused


def test_one_poisoned_question_stands_alone(db: str) -> None:
    poison = ["\ud800", "a\x00b"] if "postgres" in db else ["\ud800"]
    refused: list[str] = []
    found: list[Setting | None] = []

    async def run() -> None:
        store = Database(db, "p", FakeClock(), FakeIds())
        names = [f"n{number}" for number in range(30)]
        receipts = [Remembered("a", name, "", 201, {}, 0) for name in names[:4]]
        await store.apply(Change(puts=[*(Setting(name, name) for name in names), *receipts]))

        async def get(name: str) -> None:
            try:
                found.append(await store.get(Setting, name))
            except Malformed:
                refused.append(name)

        async def once(name: str) -> None:
            one = await store.get(Remembered, "a", name)
            assert (one is not None and one.key == name) == (name in names[:4])

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for name in [*names, "none", *names[:3], *poison]:
                    tasks.start_soon(get, name)
                    tasks.start_soon(once, name if name not in poison else "n0")
        store.close()

    migrate(db)
    anyio.run(run)
    assert sorted(refused) == sorted(poison)
    values = [one.value for one in found if one is not None]
    assert len(found) == 34 and sorted(values) == sorted(
        [*(f"n{number}" for number in range(30)), "n0", "n1", "n2"]
    )


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x" * 5000])
def test_text_from_outside_is_text(text: str) -> None:
    assert want_text("ünïcode ✓ 🙂", "name") == "ünïcode ✓ 🙂"
    with pytest.raises(Malformed):
        want_text(text, "name")


@pytest.mark.parametrize(
    "values", ['["\\ud800"]', '["a\\u0000"]', '["é"]', "[1]", "[]", "{}", "nonsense"]
)
def test_a_cursor_is_one_of_ours(values: str) -> None:
    with pytest.raises(Malformed):
        place_in(base64.urlsafe_b64encode(values.encode()).decode(), 1)
    assert place_in(base64.urlsafe_b64encode(b'["job_1"]').decode(), 1) == ("job_1",)


def test_a_markets_files_are_its_owners_alone_wherever_they_lie(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    masked = os.umask(0o022)

    def open_to_others() -> dict[str, int]:
        return {p.name: p.stat().st_mode & 0o077 for p in tmp_path.iterdir()}

    try:

        async def run() -> None:
            async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, _):
                assert url
                found = await anyio.to_thread.run_sync(open_to_others)
                assert {"m.db", "m.db-wal", "blobs"} <= found.keys()
                assert not any(found.values()), found

        anyio.run(run)
    finally:
        os.umask(masked)
