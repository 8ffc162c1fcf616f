"""schemathesis over the whole OpenAPI, signed in: no 5xx, and no status that is not documented."""

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

pytestmark = pytest.mark.prove


def test_every_operation_keeps_its_promises(tmp_path: Path) -> None:
    anyio.run(_examine, tmp_path)


async def _examine(tmp_path: Path) -> None:
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
            found = await anyio.to_thread.run_sync(_run, url, session["token"], tmp_path)
            print(found.stdout[-6000:])
            assert found.returncode == 0, found.stdout[-6000:]


def _run(url: str, token: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json",
        "--header", f"Authorization: Bearer {token}",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance",
        "--exclude-path-regex", "(logs|events|logout)$",  # streams end with their job; see the spine
        "--max-examples", os.environ.get("TALLY_SCHEMA_EXAMPLES", "15"),
        "--phases", "examples,coverage,fuzzing",
        "--request-timeout", "30", "--seed", "7", "--no-color",
    ]  # fmt: skip
    return subprocess.run(
        command, capture_output=True, text=True, timeout=800, check=False, cwd=folder
    )


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
