"""The documented job file over HTTP: as YAML, as JSON, within a body, and all that is wrong of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx

from marketplace.domain.keys import Signer
from marketplace.domain.work.job import JobSpec
from tests.fakes import FakeAdapter, offer, seed, until, working
from tests.integration.support.market import fast, market, sign_in

DIGEST = "sha256:" + "ab" * 32
YAML = {"Content-Type": "application/yaml"}
FILE = f"""\
version: 1
name: hello          # a comment, as only YAML has it
image: {DIGEST}
command: [echo, hello]
resources: {{cpu: 1, memory: 256MB..}}
price: {{budget: 5 ADA}}
policy: {{max_duration: 1m}}
"""
TOLD: dict[str, Any] = {
    "version": 1, "name": "hello", "kind": "job", "image": DIGEST, "command": ["echo", "hello"],
    "resources": {"cpu": "1", "memory": "256MB.."}, "placement": {"isolation": "container"},
    "price": {"budget": "5 ADA"}, "policy": {"max_duration": "1m"},
}  # fmt: skip
WRONG = """\
version: 1
image: python:3.11
comand: [echo]
resources: {gpu: {modle: H100}}
files: [{src: ./train.py, dst: /workspace/train.py}]
price: {budget: ten}
"""


@asynccontextmanager
async def rented(tmp_path: Path, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A market with one host that announces a local image, and a client that is signed in."""
    db = f"sqlite:///{tmp_path}/market.db"
    labels = {"image/tally/python:local": DIGEST}
    async with market(db, tmp_path, fast(**more)) as (url, _):
        host = FakeAdapter(url, seed("host"), offer(seed("host"), (), labels=labels))
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(host):
            await sign_in(client, seed("consumer"))
            await until(lambda: host.welcomes)

            async def listed() -> bool:
                return bool((await client.get("/v1/offers")).json()["items"])

            await until(listed)
            yield client


async def quote(client: httpx.AsyncClient, file: str, kind: str = "yaml") -> httpx.Response:
    return await client.post(
        "/v1/quotes", content=file, headers={"Content-Type": f"application/{kind}"}
    )


def keys() -> dict[str, str]:
    return {"session_vk": Signer(os.urandom(32)).verify_key.hex()}


def test_one_file_in_every_form_is_one_job(tmp_path: Path) -> None:
    async def main() -> None:
        async with rented(tmp_path) as client:
            for answer in (
                await quote(client, FILE),
                await quote(client, FILE, "x-yaml"),
                await quote(client, json.dumps(TOLD), "json"),
                await client.post("/v1/quotes", json={"job": TOLD}),
            ):
                assert answer.status_code == 200, answer.text
                assert answer.json()["job"] == TOLD and answer.json()["ceiling"] > 0
            fits = await client.post("/v1/explain", content=FILE, headers=YAML)
            assert fits.json()["matches"]
            posted = [
                await client.post("/v1/jobs", content=FILE, headers=YAML, params=keys()),
                await client.post("/v1/jobs", json={"job": TOLD, **keys()}),
            ]
            views = [answer.json() for answer in posted]
            assert [answer.status_code for answer in posted] == [201, 201], views
            specs = [JobSpec.from_wire(view["spec"]) for view in views]
            assert specs[0].hash == specs[1].hash  # what is signed for is the same, to the byte
            # What is given back may be posted again, and the compact form is told in the same words.
            again = await client.post("/v1/jobs", json={"spec": views[0]["spec"], **keys()})
            assert again.json()["job"] == views[0]["job"] == TOLD
            listed = (await client.get("/v1/jobs")).json()["items"]
            assert all(view["job"] == TOLD for view in listed)

    anyio.run(main)


def test_a_file_is_read_and_written_though_nothing_matches(tmp_path: Path) -> None:
    """What a page that edits a job needs: each form from any other, and every mistake."""

    async def main() -> None:
        async with rented(tmp_path) as client:
            unmatched = FILE.replace("cpu: 1", "gpu: {model: B200, count: 8}, cpu: 500")
            read = await client.post("/v1/jobfiles", content=unmatched, headers=YAML)
            assert read.status_code == 200, read.text
            told = read.json()
            assert told["job"]["resources"]["gpu"] == {
                "model": ["B200"],
                "count": "8",
                "share": 1000,
            }
            for back in (
                await client.post("/v1/jobfiles", content=told["text"], headers=YAML),
                await client.post("/v1/jobfiles", json={"spec": told["spec"]}),
                await client.post("/v1/jobfiles", json={"job": told["job"]}),
            ):
                assert back.json() == told
            wrong = await client.post("/v1/jobfiles", content=WRONG, headers=YAML)
            assert wrong.status_code == 422 and len(wrong.json()["fields"]["problems"]) == 5
            client.headers.pop("Authorization")
            nobody = await client.post("/v1/jobfiles", content=FILE, headers=YAML)
            assert nobody.status_code == 401

    anyio.run(main)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with rented(tmp_path) as client:
            answer = await quote(client, WRONG)
            assert answer.status_code == 422, answer.text
            problems = answer.json()["fields"]["problems"]
            for said in (
                "line 2, column 8: image: a market asks no registry",
                "line 3, column 1: comand: unknown key; did you mean 'command'?",
                "resources.gpu.modle: unknown key; did you mean 'model'?",
                "line 5, column 15: files[0].src: the market reads no files of yours",
                "price.budget: 'ten' is not an amount such as 40 ADA",
            ):
                assert any(said in one for one in problems), (said, problems)
            assert len(problems) == 5
            # Within a body the lines are the body's.
            within = '{"job":\n {"version": 1, "imag": "x"},\n "session_vk": "%s"}' % ("ab" * 32)
            refused = await client.post(
                "/v1/jobs", content=within, headers={"Content-Type": "application/json"}
            )
            assert refused.json()["fields"]["line"] == 2
            # Beside a file nothing is guessed either.
            for params in ({}, {**keys(), "sesion_vk": "x"}, {"session_vk": "short"}):
                answer = await client.post("/v1/jobs", content=FILE, headers=YAML, params=params)
                assert answer.status_code == 422, params
                assert answer.json()["fields"]["field"].startswith("query.")
            both = {"job": TOLD, "spec": {}, **keys()}
            assert (await client.post("/v1/jobs", json=both)).status_code == 422

    anyio.run(main)


def test_images_and_files_are_what_the_market_has(tmp_path: Path) -> None:
    async def main() -> None:
        async with rented(tmp_path) as client:
            local = FILE.replace(DIGEST, "tally/python:local")
            job = (await quote(client, local)).json()["job"]
            assert job["image"] == DIGEST
            assert job["placement"]["labels"] == {"image/tally/python:local": DIGEST}
            unknown = await quote(client, FILE.replace(DIGEST, "other:local"))
            assert "no provider here announces" in unknown.json()["detail"]

            data = b"print('hello')"
            name = hashlib.sha256(data).hexdigest()
            with_file = FILE + f"files: [{{src: 'sha256:{name}', dst: /workspace/a.py}}]\n"
            missing = await quote(client, with_file)
            assert missing.status_code == 404 and name in missing.json()["detail"]
            await client.put(f"/v1/blobs/{name}", content=data)
            posted = await client.post("/v1/jobs", content=with_file, headers=YAML, params=keys())
            view = posted.json()
            assert view["spec"]["files"] == [
                {"dst": "/workspace/a.py", "sha256": name, "size": len(data), "mode": 0o644}
            ]
            assert view["job"]["files"][0]["src"] == f"sha256:{name}"
            # Another account's file is nobody's: not even its size is told.
            await sign_in(client, seed("other"))
            assert (await quote(client, with_file)).status_code == 404

    anyio.run(main)


def test_a_key_repeats_the_file_with_the_same_keys_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with rented(tmp_path) as client:
            once, asked = {**YAML, "Idempotency-Key": "k"}, keys()
            first = await client.post("/v1/jobs", content=FILE, headers=once, params=asked)
            same = await client.post("/v1/jobs", content=FILE, headers=once, params=asked)
            assert first.json()["id"] == same.json()["id"]
            other = await client.post("/v1/jobs", content=FILE, headers=once, params=keys())
            assert other.status_code == 409 and other.json()["code"] == "IDEMPOTENCY_KEY_REUSED"

    anyio.run(main)


def test_strangers_files_are_small_rare_and_read_late(tmp_path: Path) -> None:
    async def main() -> None:
        async with rented(tmp_path, requests_per_minute=100) as client:
            nobody = httpx.AsyncClient(base_url=client.base_url, timeout=30)
            async with nobody:
                assert (await quote(nobody, "]")).status_code == 401  # asked who, then read
            for text in (
                "a: &x [1]\nb: *x",
                "]",
                "!!python/object:os.system x",
                "\x00",
                "[" * 5000,
            ):
                answer = await quote(client, text)
                assert answer.status_code == 422, text[:40]
                assert answer.json()["code"].startswith("JOB_"), answer.text
            assert (await quote(client, "#" * 140_000)).json()["code"] == "JOB_SYNTAX"
            # A large one counts as many requests: 120 KB of comment as fourteen.
            large = [await quote(client, FILE + "#" * 120_000) for _ in range(10)]
            codes = [answer.status_code for answer in large]
            assert codes[0] == 200 and codes[-1] == 429, codes

    anyio.run(main)
