"""schemathesis over the whole OpenAPI, signed in: no 5xx, and no status that is not documented.

A session may do what a key may that has every verb, and with such a one every case that the document
defines is tried in ``make prove`` (``test_api_schemathesis``, with these checks and more): what is
tried here besides are random inputs, and all of it again in ``make nightly``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from marketplace.domain.keys import Signer
from tests.fakes import FakeAdapter, gpu, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted
from tests.integration.support.market import market, sign_in


@pytest.mark.parametrize(
    ("examples", "phases"),
    [
        pytest.param(3, "examples,fuzzing", marks=[pytest.mark.prove, pytest.mark.timeout(900)]),
        pytest.param(
            15, "examples,coverage,fuzzing", marks=[pytest.mark.nightly, pytest.mark.timeout(1800)]
        ),
    ],
)
def test_every_operation_keeps_its_promises(tmp_path: Path, examples: int, phases: str) -> None:
    anyio.run(_examine, tmp_path, examples, phases)


async def _examine(tmp_path: Path, examples: int, phases: str) -> None:
    provider = seed("provider")
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, _):
        adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),)))
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter):
            session = await sign_in(client, seed("consumer"))

            async def listed():
                return (await client.get("/v1/offers")).json()["items"]

            await until(listed)
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            await quoted(client, (await client.post("/v1/jobs", json=asked)).json()["id"])
            schema = (await client.get("/openapi.json")).json()
            assert len(schema["paths"]) > 35
            found = await anyio.to_thread.run_sync(
                _run, url, session["token"], tmp_path, examples, phases
            )
            print(found.stdout[-6000:])
            assert found.returncode == 0, found.stdout[-6000:]


def _run(
    url: str, token: str, folder: Path, examples: int, phases: str
) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json",
        "--header", f"Authorization: Bearer {token}",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance",
        "--exclude-path-regex", "(logs|events|logout)$",  # streams end with their job; see the spine
        "--max-examples", str(examples), "--phases", phases,
        "--request-timeout", "60",  # a look at a service's load may wait for 30 s
        "--seed", "7", "--no-color",
    ]  # fmt: skip
    return subprocess.run(
        command, capture_output=True, text=True, timeout=1700, check=False, cwd=folder
    )


@pytest.mark.prove
def test_the_document_names_every_problem_and_an_example(tmp_path: Path) -> None:
    from marketplace.process.app import build
    from marketplace.process.main import Config, assemble

    run = assemble(Config(f"sqlite:///{tmp_path}/m.db", str(tmp_path)))
    schema = build(run.parts).openapi()
    text = json.dumps(schema)
    assert "HTTPValidationError" not in text
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary") or operation.get("description"), (method, path)
            if path.startswith("/v1/") and method in ("post", "put", "delete"):
                codes = set(operation["responses"])
                assert {"401", "422", "429", "503"} <= codes, (method, path, codes)
    job = schema["components"]["schemas"]["JobBody"]["properties"]
    assert job["spec"]["examples"]
