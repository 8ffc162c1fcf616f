"""A service of three replicas at three providers, under visitors that never stop: a new revision, a
provider that is killed, its end; and one that sleeps.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.client.services.folder import ServiceFolder
from marketplace.client.services.stage import Stage
from tests.e2e.support.embedded import (
    PATIENCE_S,
    Command,
    World,
    command,
    settled_bill,
    story,
    tally,
    until_true,
)
from tests.e2e.support.load import Visitors

pytestmark = [pytest.mark.docker, pytest.mark.timeout(PATIENCE_S + 120)]

SERVER = """
import http.server, os, time
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = f"{os.environ['SAYS']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        time.sleep(0.02)
        self.wfile.write(said)
    do_GET = do_POST = answer
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", 8000), Page).serve_forever()
"""


def service_file(folder: Path, image: str, says: str, **service: Any) -> str:
    path = folder / "web.json"
    path.write_text(
        json.dumps({
            "version": 1,
            "name": "web",
            "image": image,
            "command": ["python3", "-c", SERVER],
            "resources": {"cpu": 0.25, "memory": "64MB"},
            "env": {"SAYS": says},
            "ports": [{"port": 8000, "auth": "public"}],
            "price": {"budget": "5 ADA"},
            "policy": {"max_duration": "2h"},
            "service": {"health": {"path": "/", "every": "1s", "start": "60s"}, "drain": "10s",
                        **service},
        })
    )  # fmt: skip
    return str(path)


async def serving(world: World, count: int) -> list[Any]:
    folder = ServiceFolder(world.place.home / "consumer", "web")

    async def seen() -> list[Any] | None:
        found = [one for one in folder.standing().replicas if one.stage is Stage.SERVING]
        return found if len(found) == count else None

    return await until_true(seen, f"{count} replicas that serve")


async def asleep(world: World) -> None:
    folder = ServiceFolder(world.place.home / "consumer", "web")

    async def seen() -> bool:
        return not folder.standing().replicas

    await until_true(seen, "no replica")


async def address(world: World) -> str:
    return (await listed(world))[0]["url"]


async def listed(world: World) -> list[dict[str, Any]]:
    shown = await tally("service", "list", "--json", env=world.place.environment)
    return json.loads(shown.out[-1])


@pytest.mark.prove
def test_three_replicas_lose_nothing(tmp_path: Path) -> None:
    async def told(world: World) -> None:
        place, env = world.place, world.place.environment
        for name in ("adapter-b", "adapter-c"):
            await place.start_adapter(name)
        file = service_file(world.folder, place.image, "one", replicas=3)
        async with command("service", "up", file, "--yes", env=env) as keeper:
            replicas = await serving(world, 3)
            assert len({one.provider for one in replicas}) == 3
            visitors = Visitors(await address(world))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visitors.run)
                await _enough(visitors, 100)
                await _rolled(world, visitors)
                await _killed(world, visitors)
                visitors.over = True
            print(f"visitors: {dict(visitors.answers)}, {dict(visitors.said)}")
            assert visitors.failed("GET") == 0, visitors.broken
            assert visitors.failed("POST") <= visitors.count, visitors.broken
            assert all("REPLICA_LOST" in one for one in visitors.broken), visitors.broken
            await _ended(world, keeper)

    story(tmp_path, told)


async def _enough(visitors: Visitors, more: int) -> None:
    until = sum(visitors.answers.values()) + more

    async def seen() -> bool:
        return sum(visitors.answers.values()) >= until

    await until_true(seen, f"{more} answers")


async def _rolled(world: World, visitors: Visitors) -> None:
    """Another revision, by another command; the one that keeps it replaces all three."""
    file = service_file(world.folder, world.place.image, "two", replicas=3)
    done = await tally("service", "up", file, "--yes", env=world.place.environment)
    assert done.process.returncode == 0, str(done)
    await _enough(visitors, 20)
    visitors.said.clear()
    await _enough(visitors, 50)
    assert set(visitors.said) == {"two"}
    assert not visitors.broken, "an update loses no request at all"


async def _killed(world: World, visitors: Visitors) -> None:
    """One provider is killed; its replica is replaced at another."""
    before = await serving(world, 3)
    await world.kill("adapter-c")
    folder = ServiceFolder(world.place.home / "consumer", "web")
    jobs = {one.job for one in before}

    async def replaced() -> bool:
        now = [one for one in folder.standing().replicas if one.stage is Stage.SERVING]
        return len(now) == 3 and len({one.job for one in now} - jobs) == 1

    await until_true(replaced, "another replica in the place of the lost one")
    await _enough(visitors, 50)


async def _ended(world: World, keeper: Command) -> None:
    env = world.place.environment
    await world.place.start_adapter("adapter-c")
    done = await tally("service", "down", "web", env=env)
    assert done.process.returncode == 0, str(done)
    assert await keeper.ended() == 0, str(keeper)
    jobs = await world.market.jobs()
    assert {one["state"] for one in jobs} == {"ENDED"}
    print(Counter(one["reason"] for one in jobs))
    closed = await tally("channel", "close", "--all", "--yes", "--json", env=env)
    assert closed.process.returncode == 0, str(closed)
    for one in jobs:
        assert (await settled_bill(world, one["id"])).owed > 0
    assert await listed(world) == []


@pytest.mark.prove
def test_one_that_sleeps_is_woken_by_a_request(tmp_path: Path) -> None:
    async def told(world: World) -> None:
        env = world.place.environment
        scale = {"min": 0, "max": 2, "concurrency": 2, "down_after": "5s"}
        file = service_file(world.folder, world.place.image, "here", scale=scale)
        async with command("service", "up", file, "--yes", env=env) as keeper:

            async def known() -> str | None:
                found = await listed(world)
                return found[0]["url"] if found else None

            url = httpx.URL(await until_true(known, "the service"))
            assert await world.market.jobs() == [], "nothing runs, and nothing is paid"
            host = {"Host": url.netloc.decode()}
            at = f"http://127.0.0.1:{url.port}/"
            async with httpx.AsyncClient(timeout=120, headers=host) as client:
                for turn in range(2):
                    begun = anyio.current_time()
                    answer = await client.post(at, content=b"held")
                    took = anyio.current_time() - begun
                    assert (answer.status_code, answer.text) == (200, "here"), answer.text
                    print(f"woken in {took:.1f} s")
                    await asleep(world)
                    assert len(await world.market.jobs()) == turn + 1
            done = await tally("service", "down", "web", env=env)
            assert done.process.returncode == 0, str(done)
            assert await keeper.ended() == 0, str(keeper)

    story(tmp_path, told)


@pytest.mark.prove
def test_a_keeper_that_was_killed_is_followed_by_another(tmp_path: Path) -> None:
    """The next `up` finds the replicas running and goes on with them, also where the one before
    died before it had written down what it had signed; SIGTERM leaves them, too.
    """

    async def told(world: World) -> None:
        env, folder = world.place.environment, ServiceFolder(world.place.home / "consumer", "web")
        file = service_file(world.folder, world.place.image, "here", replicas=2)
        async with command("service", "up", file, "--yes", env=env) as keeper:
            jobs = {one.job for one in await serving(world, 2)}
            keeper.process.kill()
            await keeper.ended()
        standing = folder.standing()
        folder.stand(replace(standing, replicas=standing.replicas[:1]))  # of the other nothing
        async with command("service", "up", file, "--yes", env=env) as keeper:
            await keeper.until(lambda it: any("is taken up again" in line for line in it.out))
            await keeper.until(lambda it: any(line.startswith("web http") for line in it.out))
            assert {one.job for one in await serving(world, 2)} == jobs
            keeper.process.terminate()
            assert await keeper.ended() == 0, str(keeper)
        left = {one["state"] for one in await world.market.jobs()}
        assert left <= {"RUNNING", "PAUSED"}, left  # nobody pays meanwhile
        async with command("service", "up", file, "--yes", env=env) as keeper:
            await keeper.until(lambda it: any(line.startswith("web http") for line in it.out))
            assert {one.job for one in await serving(world, 2)} == jobs
            keeper.process.send_signal(signal.SIGINT)  # as Ctrl-C does
            assert await keeper.ended() == 0, str(keeper)
        assert {one["id"] for one in await world.market.jobs()} == jobs
        assert {one["state"] for one in await world.market.jobs()} == {"ENDED"}
        assert not folder.path.exists()

    story(tmp_path, told)


@pytest.mark.nightly
def test_one_that_is_scaled_ahead_of_demand_says_what_it_expects(tmp_path: Path) -> None:
    """From what it saw itself, and from what the keeper before it saw."""

    async def told(world: World) -> None:
        env = world.place.environment
        scale = {"min": 1, "max": 2, "concurrency": 1, "down_after": "5s", "predict": 90}
        file = service_file(world.folder, world.place.image, "here", scale=scale)

        async def says() -> str | None:
            shown = await tally("service", "show", "web", env=env)
            said = [line for line in shown.out if line.startswith("forecast: ")]
            return said[0] if said and "will be enough for the next" in said[0] else None

        async with command("service", "up", file, "--yes", env=env) as keeper:
            await serving(world, 1)
            visitors = Visitors(await address(world), count=2)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visitors.run)
                print(await until_true(says, "a forecast"))
                visitors.over = True
            assert not visitors.failed("GET"), visitors.broken
            keeper.process.terminate()
            assert await keeper.ended() == 0, str(keeper)
        known = ServiceFolder(world.place.home / "consumer", "web").demand()
        assert known is not None and len(known.peaks) >= 10
        async with command("service", "up", file, "--yes", env=env) as keeper:
            await keeper.until(lambda it: any(line.startswith("web http") for line in it.out))
            print(await until_true(says, "what the one before saw"))
            done = await tally("service", "down", "web", env=env)
            assert done.process.returncode == 0, str(done)
            assert await keeper.ended() == 0, str(keeper)

    story(tmp_path, told)
