"""``kill -9`` of the router's process in mid-lease, and its books put back from an old copy (row 15):
the second copy knows better, nothing is signed twice, what is lost stays within the ticks that
anybody risks, and the next lease over the same hops is carried.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marketplace.router.journal import peek
from marketplace.router.state import SKIPPED
from tests.e2e.routing.test_routed_job import with_hops
from tests.e2e.routing.test_router_killed import STATED, TICK
from tests.e2e.support.embedded import (
    PATIENCE_S,
    World,
    command,
    job_file,
    newest_job,
    settled_bill,
    story,
    tally,
    until_ended,
)

pytestmark = [pytest.mark.prove, pytest.mark.timeout(PATIENCE_S + 240)]


async def put_back(world: World) -> None:
    """A lease over the router, whose first books become an older copy of themselves; another lease;
    both bills.
    """
    env = world.place.environment
    books = world.place.home / "market" / "route" / "journal.jsonl"
    await with_hops(env)
    file = job_file(world.folder, world.place.image, 10)
    asked = ("job", "run", str(file), "--yes", "--json", "--route", "routed")
    async with command(*asked, env=env) as client:
        await client.until(lambda it: "line 1" in it.err)
        old = books.read_bytes()
        await client.until(lambda it: "line 4" in it.err)
        await world.kill("market")
        kept = books.read_bytes()
        assert kept.startswith(old) and len(old) < len(kept)
        books.write_bytes(old)
        await world.restart("market")
        await client.ended()
        assert client.last["reason"] in STATED, str(client)
    first = (await newest_job(world))["id"]
    await until_ended(world, first)
    again = await tally(
        "job", "run", str(job_file(world.folder, world.place.image, 3)), *asked[3:], env=env
    )
    assert again.last["reason"] == "COMPLETED", str(again)
    second = (await newest_job(world))["id"]
    ended = await tally("channel", "close", "--all", "--yes", "--json", env=env)
    assert ended.process.returncode == 0, str(ended)
    owed = reached = 0
    for name in (first, second):
        bill = (await settled_bill(world, name)).to_json()
        (route,), (hop,) = bill["routes"], bill["hops"]
        assert route["reached"] <= bill["owed"]
        assert route["withheld"] <= TICK, bill
        assert bill["owed"] - route["reached"] <= 2 * TICK, bill
        assert hop["claimed"] == hop["due"], bill
        owed, reached = owed + bill["owed"], reached + route["reached"]
    assert owed > 0
    state = peek(books)
    assert not state.book.forked
    (paying,) = state.book.hops_out.values()
    assert paying.total == reached
    assert paying.last is not None and paying.last.signed.statement.n > SKIPPED
    rows = [json.loads(line) for line in books.read_bytes().splitlines()]
    assert [row["g"] for row in rows] == list(range(1, len(rows) + 1))


def test_an_old_copy_of_the_books_costs_no_more_than_a_crash(tmp_path: Path) -> None:
    story(tmp_path, put_back, routes=True)
