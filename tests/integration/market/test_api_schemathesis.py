"""schemathesis over the whole OpenAPI with an API key that may do everything, and with none.

The inputs are the same every time (seed, deterministic mode, no example database), so that a run
which was green stays green until the API changes. ``test_schema`` examines a signed-in
session; here are the wider checks: bodies against their schemas, allowed methods, wrong
credentials.
"""

from __future__ import annotations

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

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,ignored_auth"
)
ONE_DOOR = """
[[operations]]
include-path-regex = "^/v1/(quotes|jobfiles)$"
phases.coverage.enabled = false
"""
"""Their body is declared and read as that of ``/v1/explain`` is (``job_forms``), where thousands at
the edges of its schema are tried; at these as well in ``make nightly``.
"""


def test_the_api_keeps_its_contract(tmp_path: Path) -> None:
    anyio.run(_examine, tmp_path, 3, "fuzzing", "")


@pytest.mark.parametrize(
    ("examples", "less"),
    [
        pytest.param(6, ONE_DOOR, marks=pytest.mark.prove, id="6"),
        pytest.param(30, "", marks=pytest.mark.nightly, id="30"),
    ],
)
@pytest.mark.timeout(1800)
def test_the_api_keeps_its_contract_for_many_inputs(
    tmp_path: Path, examples: int, less: str
) -> None:
    anyio.run(_examine, tmp_path, examples, "examples,coverage,fuzzing", less)


async def _examine(tmp_path: Path, examples: int, phases: str, less: str) -> None:
    provider = seed("provider")
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, _):
        adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),)))
        async with httpx.AsyncClient(base_url=url, timeout=60) as client, working(adapter):
            await sign_in(client, seed("consumer"))

            async def listed():
                return (await client.get("/v1/offers")).json()["items"]

            await until(listed)
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            job = (await quoted(client, (await client.post("/v1/jobs", json=asked)).json()["id"]))[
                "id"
            ]
            # It ends, so that its streams of logs and events end as well.
            await client.post(f"/v1/jobs/{job}/stop")
            verbs = ["read", "jobs", "channels", "blobs", "webhooks", "keys"]
            made = {"name": "fuzz", "verbs": verbs, "budget": 2**50, "expires_at_ms": 4 * 10**12}
            key = (await client.post("/v1/keys", json=made)).json()
            there = f'[parameters]\n"path.job_id" = "{job}"\n'
            for named in (True, False):  # a job that is there, and jobs that are not
                (tmp_path / "schemathesis.toml").write_text(there if named else less)
                found = await anyio.to_thread.run_sync(
                    _run, url, key["secret"], tmp_path, examples, phases, named
                )
                assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
            assert (await client.get("/readyz")).status_code == 200


def _run(
    url: str, token: str, folder: Path, examples: int, phases: str, named: bool
) -> subprocess.CompletedProcess[str]:
    only = ["--include-path-regex", r"\{job_id\}"] if named else []
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json",
        "--header", f"Authorization: Bearer {token}", "--checks", CHECKS, *only,
        "--max-examples", str(examples), "--phases", phases, "--seed", "11",
        "--generation-deterministic",
        "--request-timeout", "60", "--no-color", "--suppress-health-check", "all",
    ]  # fmt: skip
    return subprocess.run(
        command, capture_output=True, text=True, timeout=800, check=False, cwd=folder
    )
