"""A port of a real container at a port of this machine, by `tally job forward`: what speaks no HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from marketplace.client.sdk.job import Job
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Port, Price, Range, Resources
from tests.e2e.support.embedded import PATIENCE_S, World, command, story, tally

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
# Greets first, as SSH and databases do; then it says everything back in capitals.
SERVER = """
import socketserver
class Greeting(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"who is there?\\n")
        for line in self.rfile:
            self.wfile.write(line.upper())
socketserver.ThreadingTCPServer(("", 5555), Greeting).serve_forever()
"""


def test_a_port_of_a_container_is_a_port_here(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        job = await world.market.run(
            JobSpec(
                name="greeter",
                kind="service",
                image=world.place.image,
                command=("python3", "-u", "-c", SERVER),
                resources=(Resources(cpu=Range(200), memory=Range(64)),),
                ports=(Port(5555),),
                price=Price(budget=2 * LOVELACE_PER_ADA),
                policy=Policy(max_duration_ms=600_000),
            )
        )
        await job.running()
        env = world.place.environment
        wrong = await tally("job", "forward", job.id, "80", env=env)
        assert wrong.process.returncode == 2 and "name one of 5555" in "\n".join(wrong.err)
        await share_and_end(world, job)
        asked = ("job", "forward", job.id, "--local", "0", "--json")
        async with command(*asked, env=env) as forward:
            await forward.until(lambda said: bool(said.out))
            host, _, port = str(forward.last["local"]).rpartition(":")
            assert host == "127.0.0.1" and forward.last["port"] == 5555
            async with (
                await anyio.connect_tcp(host, int(port)) as one,
                await anyio.connect_tcp(host, int(port)) as two,
            ):
                for name, stream in (("one", one), ("two", two)):
                    await hear(stream, b"who is there?\n")
                    await stream.send(name.encode() + b"\n")
                    await hear(stream, name.upper().encode() + b"\n")
                await job.stop()
                with pytest.raises(anyio.EndOfStream):
                    await one.receive()
            assert await forward.ended() == 0, str(forward)

    story(tmp_path, tell)


async def share_and_end(world: World, job: Job) -> None:
    """A link by the command, as the library and the command list it, until the command ends it."""

    async def said(*more: str) -> Any:
        done = await tally("job", "share", job.id, *more, "--json", env=world.place.environment)
        assert done.process.returncode == 0, str(done)
        return json.loads("\n".join(done.out))

    made = await said("--for", "2h")
    assert made["url"].startswith("http") and "/.tally/enter?key=" in made["url"]
    door = job.port(5555)
    (listed,) = await door.links()
    assert listed["id"] == made["id"] == (await said("--list"))[0]["id"]
    again = await door.share(60_000)
    assert [one["id"] for one in await said("--list")] == [made["id"], again["id"]]
    assert await said("--end", made["id"]) == {"id": made["id"], "ended": True}
    await door.end_link(again["id"])
    assert await said("--list") == await door.links() == []


async def hear(stream: anyio.abc.SocketStream, what: bytes) -> None:
    """Exactly that."""
    heard = b""
    while len(heard) < len(what):
        heard += await stream.receive()
    assert heard == what
