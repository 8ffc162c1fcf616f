"""Clients that others' tools make from the document compile, and read from and post to a real
market.
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from marketplace.domain.keys import Signer
from tests.fakes import FakeAdapter, gpu, offer, seed, until, working
from tests.integration.support.market import market, sign_in
from tests.requires import need_api_clients, need_node, need_python_generator

pytestmark = pytest.mark.prove
TSC = ("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--target",
       "es2022", "--module", "es2022", "--moduleResolution", "bundler", "--types", "node")  # fmt: skip


def _run(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def _typescript(folder: Path) -> list[str | Path]:
    """The client of TypeScript, compiled: its command."""
    clients = need_api_clients()
    bins = clients / "node_modules" / ".bin"
    (folder / "node_modules").symlink_to(clients / "node_modules")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "generated.ts").write_text((clients / "generated.ts").read_text())
    _run(folder, bins / "openapi-typescript", "openapi.json", "--output", "api.d.ts")
    _run(folder, bins / "tsc", *TSC, "generated.ts", "api.d.ts")
    return [need_node(), "generated.js"]


def _python(folder: Path) -> list[str | Path]:
    """The client of Python, compiled: its command."""
    environment, clients = need_python_generator(), need_api_clients()
    made = _run(
        folder, environment / "openapi-python-client", "generate", "--path", "openapi.json",
        "--meta", "none", "--output-path", "tally_client", "--fail-on-warning",
        "--config", clients / "generator.yaml",
    )  # fmt: skip
    assert "Warning" not in made, made
    assert compileall.compile_dir(folder / "tally_client", quiet=1)
    (folder / "generated.py").write_text((clients / "generated.py").read_text())
    return [environment / "python", "generated.py"]


@pytest.mark.parametrize("made", [_typescript, _python])
def test_a_generated_client_reads_and_posts(
    made: Callable[[Path], list[str | Path]], tmp_path: Path
) -> None:
    anyio.run(_use, made, tmp_path)


async def _use(made: Callable[[Path], list[str | Path]], tmp_path: Path) -> None:
    provider, consumer = seed("provider"), seed("consumer")
    folder = tmp_path / "client"
    folder.mkdir()
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, _):
        adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),)))
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter):
            session = await sign_in(client, consumer)

            async def listed() -> list[dict[str, Any]]:
                return (await client.get("/v1/offers")).json()["items"]

            offers = await until(listed)
            (folder / "openapi.json").write_text((await client.get("/openapi.json")).text)
            command = await anyio.to_thread.run_sync(made, folder)
            key = Signer(os.urandom(32)).verify_key.hex()
            words = [*command, url, session["token"], key, session["account"]]
            told = json.loads(await anyio.to_thread.run_sync(lambda: _run(folder, *words)))
            (job,) = (await client.get("/v1/jobs")).json()["items"]
            assert told == {
                "offers": [one["id"] for one in offers],
                "free": 1000,
                "job": job["id"],
                "budget": 5_000_000,
                "cores": 1000,
                "refused": "NOT_FOUND",
            }
            assert job["name"] == "generated"
