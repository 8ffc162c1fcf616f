"""The TypeScript client in Node against a real ``tally up``: a paid job to a bill that both
verifiers reconcile, and one that is killed wherever it hurts and goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from marketplace.client.payer import journal
from tests.e2e.support.embedded import PATIENCE_S, Command, command, tally
from tests.e2e.support.up import swept, up
from tests.requires import need_devnet, need_docker, need_node
from tests.sdk.build import HERE, ROOT, built, environment, ran

pytestmark = pytest.mark.timeout(PATIENCE_S + 200)
Env = dict[str, str]
KILLED = -9


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("sdk"))


def world(folder: Path, package: Path, tell: Callable[[Env], Awaitable[None]]) -> None:
    """*tell* with the environment of a market of its own, and of the client."""
    need_docker()
    need_devnet()

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with swept(folder / "home"), up(folder / "home") as (_, env):
                await tell({**env, **environment(package)})

    anyio.run(main)


def the_example(folder: Path, package: Path) -> Path:
    """``examples/typescript`` beside the installed package, compiled as its page says."""
    example = folder / "example"
    leave = shutil.ignore_patterns("node_modules", "*.js")
    shutil.copytree(ROOT / "examples" / "typescript", example, ignore=leave)
    (example / "node_modules" / "@tally").mkdir(parents=True)
    (example / "node_modules" / "@tally" / "sdk").symlink_to(package)
    modules = package / "node_modules"
    ran(modules / ".bin/tsc", "--project", ".", "--typeRoots", modules / "@types", cwd=example)
    return example


def test_the_example_runs_a_paid_job_that_both_verifiers_reconcile(
    tmp_path: Path, package: Path
) -> None:
    example = the_example(tmp_path, package)

    async def story(env: Env) -> None:
        def run() -> str:
            return ran(need_node(), "run-job.js", cwd=example, env=env, patience_s=PATIENCE_S)

        said = (await anyio.to_thread.run_sync(run)).splitlines()
        assert "six by 4 is 24" in said
        assert "COMPLETED 0" in said[-1] and said[-1].endswith("reconciled: true"), said
        saved = example / f"{said[-1].split()[0]}.invoice.json"
        checked = await tally("invoice", str(saved), "--verify", "--json", env=env)
        assert checked.process.returncode == 0, str(checked)
        assert checked.last["verified"] is True and checked.last["reconciled"] is True
        assert checked.last["owed"] > 0 and checked.last["lines"][0]["final"] is True
        [channel] = checked.last["channels"]
        assert channel["claimed"] == channel["owed"] == channel["signed"]

    world(tmp_path, package, story)


@asynccontextmanager
async def client(how: str, env: Env) -> AsyncGenerator[Command]:
    """``tests/sdk/client.mjs`` *how*, running."""
    async with command(str(HERE / "client.mjs"), how, env=env, program=(str(need_node()),)) as it:
        yield it


def told(it: Command, name: str) -> list[dict[str, Any]]:
    """What it said that has *name*, in order."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in it.out if line.startswith("{")]
    assert not [row for row in rows if "fault" in row], rows
    return [row for row in rows if name in row]


def signed_by(it: Command) -> dict[int, int]:
    """What it signed for each receipt that it answered."""
    return {row["tick"]: row["signed"] for row in told(it, "tick")}


async def killed(how: str, env: Env) -> None:
    """It kills itself at the moment that *how* names."""
    async with client(how, env) as it:
        assert await it.ended() == KILLED, str(it)
        assert not told(it, "tick"), "it was to die before anything ran"


async def resumed(env: Env) -> Command:
    """The next start, to its end."""
    async with client("resume", env) as it:
        assert await it.ended() == 0, str(it)
    return it


def test_a_killed_client_goes_on_and_signs_nothing_twice(tmp_path: Path, package: Path) -> None:
    async def story(env: Env) -> None:
        await with_a_quote(env)
        await with_what_no_market_knows(env)
        await in_the_midst_of_it(env)
        # Its books are no journals of the command line's, which pays from none of its channels.
        assert journal.channels_in(Path(env["TALLY_HOME"]) / "channels") == []

    world(tmp_path, package, story)


async def with_a_quote(env: Env) -> None:
    """Nothing was signed: nothing goes on, and no key is left."""
    home = Path(env["TALLY_HOME"])
    await killed("at-quote", env)
    assert told(await resumed(env), "resumed") == [{"resumed": [], "channels": 0}]
    assert list((home / "sdk").glob("*.json")) == []
    assert list((home / "keys").glob("session-*")) == []
    listed = await tally("job", "list", "--json", env=env)
    assert listed.process.returncode == 0, str(listed)
    jobs: list[dict[str, Any]] = json.loads("".join(listed.out))
    assert [job["state"] for job in jobs] == ["ENDED"], str(listed)


async def with_what_no_market_knows(env: Env) -> None:
    """The wallet had signed: what it signed is sent, and the job goes on."""
    await killed("at-witness", env)
    after = await resumed(env)
    [ended] = told(after, "ended")
    assert (ended["reason"], ended["reconciled"]) == ("COMPLETED", True), str(after)


async def in_the_midst_of_it(env: Env) -> None:
    """From outside; while it runs no other process pays from its purse."""
    async with client("start", env) as it:
        await it.until(lambda one: len(told(one, "tick")) >= 3)
        async with client("resume", env) as other:
            assert await other.ended() == 3, str(other)
        assert told(other, "refused") == [{"refused": "CHANNEL_HELD"}]
        it.process.kill()
        await it.ended()
    before, after = signed_by(it), await resumed(env)
    [ended], now = told(after, "ended"), signed_by(after)
    again = before.keys() & now.keys()
    assert {seq: before[seq] for seq in again} == {seq: now[seq] for seq in again}
    both = before | now
    # One that it had answered when it was killed, it may not have said any more.
    unsaid = set(range(1, max(both) + 1)) - both.keys()
    assert unsaid <= {max(before) + 1}, (before, now)
    assert [both[seq] for seq in sorted(both)] == sorted(both.values())
    assert (ended["reason"], ended["reconciled"]) == ("CANCELLED", True), str(after)
    assert ended["owed"] == ended["signed"] == max(now.values()) <= ended["ceiling"]
