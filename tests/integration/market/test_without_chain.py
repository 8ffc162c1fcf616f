"""A market whose chain is away at its start: it comes up, says so, serves, and catches up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.chain.encoding import address as addresses
from marketplace.market.upkeep import chain_network
from marketplace.process.main import Config, assemble
from marketplace.store.migrate import migrate
from tests.ports import free_port
from tests.requires import need_devnet

pytestmark = pytest.mark.prove
SOON_S = 240.0


def command(home: Path, chain_url: str) -> subprocess.Popen[str]:
    """``tally market serve`` as an operator starts it."""
    secret = home / "passphrase"
    secret.write_text("a passphrase of the tests\n")
    secret.chmod(0o600)
    env = {**os.environ, "TALLY_PASSPHRASE_FILE": str(secret), "TALLY_LOG": "warning"}
    with (home / "log").open("a") as log:
        return subprocess.Popen(
            [
                sys.executable, "-m", "marketplace.cli.main", "market", "serve", "--home",
                str(home), "--port", "0", "--chain-url", chain_url, "--settle-every", "1s",
            ],
            stdout=subprocess.PIPE, stderr=log, text=True, env=env,
        )  # fmt: skip


@contextmanager
def serving(home: Path, chain_url: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """(url, process) once it says that it is ready."""
    process = command(home, chain_url)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("{"), (home / "log").read_text()
        yield str(json.loads(line)["url"]), process
    finally:
        process.terminate()
        process.communicate(timeout=SOON_S)


def refused(home: Path, chain_url: str) -> str:
    """What it says when it refuses to start; it must, with code 3."""
    process = command(home, chain_url)
    try:
        assert process.wait(SOON_S) == 3, (home / "log").read_text()
    finally:
        process.kill()
        process.communicate()
    return (home / "log").read_text()


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def bound_to(home: Path, magic: int) -> None:
    """The database of *home*, as one that was begun on network *magic*."""
    url = f"sqlite:///{home}/market.db"
    migrate(url)

    async def main() -> None:
        run = assemble(Config(url, str(home)))
        try:
            await chain_network.bind(run.market, magic)
        finally:
            run.database.close()

    anyio.run(main)


@contextmanager
def answering(status: int, body: dict[str, Any]) -> Iterator[str]:
    """A door that answers everything with *status* and *body*."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/v0"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_market_comes_up_before_its_chain_and_catches_up(tmp_path: Path) -> None:
    need_devnet()
    from contracts.devnet.server import serve

    port = free_port()
    chain = f"http://127.0.0.1:{port}/api/v0"
    with serving(tmp_path, chain) as (url, _), httpx.Client(base_url=url, timeout=30) as client:
        # Never seen: not even the network is known, so nothing is agreed to.
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert ready.status_code == 503 and ready.json()["code"] == "CHAIN_AWAY"
        turned_away = client.get("/v1/network")
        assert turned_away.status_code == 503 and turned_away.json()["code"] == "CHAIN_AWAY"
        with serve(port=port):
            eventually(lambda: client.get("/readyz").status_code == 200)
            facts = client.get("/v1/network").json()
            assert facts["magic"] == 42 and facts["chain"] and not facts["chain_away"]
        eventually(lambda: client.get("/readyz").json()["chain"] == "away")  # it went away again
        assert client.get("/v1/offers").status_code == 200
    log = (tmp_path / "log").read_text()
    assert "chain_away" in log and "chain_back" in log

    # Seen before: everything that needs no chain works at once, on the network that is remembered.
    with serving(tmp_path, chain) as (url, _), httpx.Client(base_url=url, timeout=30) as client:
        ready = client.get("/readyz")
        assert ready.status_code == 200 and ready.json()["chain"] == "away"
        assert "CHAIN_FAULT" in ready.json()["chain_fault"]
        facts = client.get("/v1/network").json()
        assert facts["magic"] == 42 and facts["chain_away"]
        address = addresses.to_text(addresses.key_address(bytes(28), None, False))
        asked = client.post("/v1/auth/challenge", json={"address": address})
        assert asked.status_code == 200, asked.text
        with serve(port=port):
            eventually(lambda: client.get("/readyz").json()["chain"] == "ready")


def test_a_chain_of_another_network_is_refused_at_once_and_when_it_comes_late(
    tmp_path: Path,
) -> None:
    need_devnet()
    from contracts.devnet.server import serve

    bound_to(tmp_path, 1)
    with serve() as served:
        assert "NETWORK_DIFFERS" in refused(tmp_path, served.url)
    port = free_port()
    with serving(tmp_path, f"http://127.0.0.1:{port}/api/v0") as (_, process), serve(port=port):
        assert process.wait(SOON_S) == 3
    assert (tmp_path / "log").read_text().count("NETWORK_DIFFERS") == 2


def test_a_wrong_project_id_or_address_is_refused_at_once(tmp_path: Path) -> None:
    body = {"status_code": 403, "error": "Forbidden", "message": "Invalid project token."}
    with answering(403, body) as url:
        told = refused(tmp_path, url)
    assert "CHAIN_URL_WRONG" in told and "Invalid project token" in told and "--project-id" in told
    with answering(404, {"status_code": 404, "error": "Not Found", "message": "?"}) as url:
        assert "there is no chain at" in refused(tmp_path, url)
    assert "is not an address" in refused(tmp_path, "cardano-preprod.blockfrost.io")
