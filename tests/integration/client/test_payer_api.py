"""A paid job by curl alone: the payer's API of ``tally payer run --api``, as a process."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.text import TextReceiveStream

from marketplace.domain.protocol.wire import LeaseSigned
from tests.integration.client.test_cli import JOB, Shell
from tests.integration.support.client import World, story, until

WITHIN_S = 120


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Curl:
    """curl, with the API's address and, unless told otherwise, its token."""

    api: str
    token: str
    folder: Path

    async def __call__(self, *words: str, token: str | None = None) -> Answer:
        *options, path = words
        into = self.folder / "answer"
        given = self.token if token is None else token
        command = [
            "curl", "-s", "-o", str(into), "-w", "%{http_code}", "--max-time", str(WITHIN_S),
            "-H", f"Authorization: Bearer {given}", *options, self.api + path,
        ]  # fmt: skip
        into.write_bytes(b"")
        done = await anyio.run_process(command, check=False, stdin=-3)
        return Answer(int(done.stdout or b"0"), into.read_bytes())


@asynccontextmanager
async def serving(world: World, *words: str) -> AsyncGenerator[tuple[Curl, list[dict[str, Any]]]]:
    """``tally payer run --api 0``, once it is ready; what it says."""
    shell = Shell(world)
    command = [sys.executable, "-m", "marketplace.cli.main", "payer", "run", "--json",
               "--api", "0", *words]  # fmt: skip
    said: list[dict[str, Any]] = []
    async with await anyio.open_process(command, env=shell.env, stdin=-3) as payer:

        async def listen() -> None:
            assert payer.stdout is not None
            held = ""
            async for text in TextReceiveStream(payer.stdout):
                *lines, held = (held + text).split("\n")
                said.extend(json.loads(line) for line in lines)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await until(lambda: any(row["event"] == "ready" for row in said), WITHIN_S)
                ready = next(row for row in said if row["event"] == "ready")
                token = (await anyio.Path(ready["token_file"]).read_text()).strip()
                yield Curl(ready["api"], token, world.folder), said
                payer.send_signal(signal.SIGTERM)
                with anyio.fail_after(WITHIN_S):
                    assert await payer.wait() == 0
        finally:
            if payer.returncode is None:
                payer.kill()


def job(world: World, text: str = JOB) -> str:
    path = world.folder / "job.yaml"
    path.write_text(text)
    return f"@{path}"


def test_a_job_is_posted_paid_and_billed_by_curl_alone(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider = world.provider
        world.purse()
        async with serving(world) as (curl, said):
            yaml = ("-H", "Content-Type: application/yaml", "--data-binary")
            data = world.folder / "data"
            data.write_bytes(b"a file of the job's\n")
            name = hashlib.sha256(data.read_bytes()).hexdigest()
            text = JOB + f'files: [{{src: "sha256:{name}", dst: in.txt}}]\n'
            once = ("-H", "Idempotency-Key: first")

            early = await curl(*once, *yaml, job(world, text), "/v1/jobs")
            assert (early.status, early.json["code"]) == (404, "NOT_FOUND")  # no such blob yet
            assert (await curl("-T", str(data), f"/v1/blobs/{name}")).status in (200, 201)
            posted = await curl(*once, *yaml, job(world, text), "/v1/jobs")
            assert posted.status == 201, posted.body
            view = posted.json
            assert view["state"] in ("STARTING", "RUNNING") and view["spec"]["files"]
            again = await curl(*once, *yaml, job(world, text), "/v1/jobs")
            assert again.status == 201 and again.json["id"] == view["id"]
            other = await curl(*once, *yaml, job(world, JOB), "/v1/jobs")
            assert (other.status, other.json["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
            assert len((await curl("/v1/jobs")).json["items"]) == 1

            lease = await provider.lease()
            await provider.start(lease)
            await provider.log(lease, b"hello\n")
            await provider.ticks(lease, 3)
            await provider.adapter.finish(lease)
            signed = [m for m in provider.adapter.asked if isinstance(m, LeaseSigned)]
            run = provider.adapter.leases[lease]
            await provider.settle(run.terms.session_vk, signed[-1].channel_tx, lease)
            logs = await curl(f"/v1/jobs/{view['id']}/logs?follow=true")
            assert logs.status == 200 and b"hello" in logs.body and b"event: end" in logs.body
            ended = (await curl(f"/v1/jobs/{view['id']}")).json
            assert ended["reason"] == "COMPLETED" and ended["spent"] == 3
            evidence = await curl(f"/v1/jobs/{view['id']}/invoice")
            assert evidence.status == 200 and evidence.json["leases"]
            await until(lambda: any(row["event"] == "settled" for row in said), WITHIN_S)

    story(tmp_path, tell)


def test_who_is_not_to_come_in_moves_no_money(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        world.purse()
        async with serving(world, "--day-cap", "7 ADA") as (curl, _):
            post = ("-H", "Content-Type: application/yaml", "--data-binary", job(world))
            refused = [
                await curl(*post, "/v1/jobs", token="wrong"),
                await curl(*post, "-H", "Origin: http://evil.example", "/v1/jobs"),
                await curl(*post, "-H", "Host: evil.example", "/v1/jobs"),
                await curl("-X", "POST", "-d", "{}", "/v1/keys"),
                await curl(*post, "/v1/jobs?session_vk=" + "ab" * 32),
                await curl("-d", "@/etc/hostname", "/v1/jobs"),
                await curl("-d", JOB + "files: [{src: /etc/passwd, dst: a}]\n", "/v1/jobs"),
            ]
            assert [(one.status, one.json["code"]) for one in refused] == [
                (401, "UNAUTHENTICATED"), (403, "FROM_A_PAGE"), (403, "FROM_A_PAGE"),
                (403, "NOT_PASSED_ON"), (422, "MALFORMED"), (422, "JOB_WRONG_TYPE"),
                (422, "MALFORMED"),
            ]  # fmt: skip
            assert all(one.json["remedy"] for one in refused)
            assert (await curl("/v1/jobs")).json["items"] == []

            assert (await curl(*post, "/v1/jobs")).status == 201  # 5 ADA of the day's 7
            spent = await curl(*post, "/v1/jobs")
            assert (spent.status, spent.json["code"]) == (422, "DAY_SPENT")
            assert spent.json["fields"] == {"left": 2_000_000}
            assert len((await curl("/v1/jobs")).json["items"]) == 1
            second = await Shell(world).tally("payer", "run", "--api", "0")
            assert second.returncode == 3 and "PAYER_API_TAKEN" in second.stderr

    story(tmp_path, tell)
