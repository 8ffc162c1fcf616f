"""A real market on a real socket, over SQLite or a throw-away PostgreSQL."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import anyio.to_thread
import httpx
import uvicorn

from marketplace.chain.signin import payment_key_hash
from marketplace.client.net.signin import sign_message
from marketplace.console.pages import install as install_console
from marketplace.domain.keys import Signer
from marketplace.market.base.settings import Settings
from marketplace.process.addresses import apps_of, names_of
from marketplace.process.app import build, by_host
from marketplace.process.main import Config, running
from marketplace.process.server import config as server_config
from marketplace.process.server import listener
from marketplace.store.migrate import migrate
from tests.fakes import until
from tests.integration.support.answers import Answered, Answers
from tests.requires import need_postgres

HOOK_KEY = bytes(range(32))
FAST = Settings(
    quote_ttl_ms=60_000,
    propose_ttl_ms=2_000,
    resume_window_ms=1_500,
    end_grace_ms=200,
    requests_per_minute=100_000,
    logins_per_minute=100_000,
    quotes_new=64,  # what a new account may have open is test_market_standing's
    quotes_address=1_000,
)


def _as_postgres(*command: str) -> None:
    """PostgreSQL refuses to run as root."""
    user: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
    subprocess.run(command, check=True, capture_output=True, timeout=120, cwd="/", **user)


def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="tally-pg-"))
    if os.geteuid() == 0:
        entry = pwd.getpwnam("postgres")
        os.chown(made, entry.pw_uid, entry.pw_gid)
    made.chmod(0o755)
    return made


@cache
def _fresh_data(binaries: Path) -> Path:
    """What initdb makes, once a process: it takes longer than all the rest of a server's start."""
    folder = _folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    initdb = str(binaries / "initdb")
    _as_postgres(initdb, "-N", "-D", str(folder / "data"), "-A", "trust", "-U", "tally")
    return folder / "data"


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a fresh server with fsync on, reached by a Unix socket; gone with the block."""
    binaries = need_postgres()
    fresh = _fresh_data(binaries)
    folder = _folder()
    data = folder / "data"
    try:
        _as_postgres("cp", "-a", str(fresh), str(data))
        options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
        _as_postgres(str(binaries / "pg_ctl"), "-w", "-D", str(data), "-o", options, "-l",
            str(folder / "log"), "start")  # fmt: skip
        try:
            yield f"postgresql://tally@/postgres?host={folder}"
        finally:
            _as_postgres(str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _new_tables() -> bytes:
    """An empty market's SQLite file, as the migrations make it once a process: their hundreds of
    statements take longer than all the rest of a market's start.
    """
    with tempfile.TemporaryDirectory(prefix="tally-db-") as folder:
        path = Path(folder) / "new.db"
        migrate(f"sqlite:///{path}")
        assert [one.name for one in path.parent.iterdir()] == [path.name], "it is closed"
        return path.read_bytes()


def _prepare(db: str) -> None:
    path = Path(db.removeprefix("sqlite:///"))
    if db.startswith("sqlite:///") and not path.exists():
        path.write_bytes(_new_tables())


@asynccontextmanager
async def market(
    db: str,
    folder: Path,
    settings: Settings = FAST,
    served: Mapping[str, Any] = MappingProxyType({}),
    console: bool = False,
    seen: dict[Answered, bytes] | None = None,
    **more: Any,
):
    """(url, running) of a market process inside this one, whose every answer is what its document
    says; *served*: settings of its HTTP server; *seen*: takes what was answered.
    """
    config = Config(db, str(folder / "blobs"), settings=settings, **{"hook_key": HOOK_KEY, **more})
    await anyio.to_thread.run_sync(_prepare, db)
    async with running(config) as run:
        app = build(run.parts)
        if console:
            install_console(app, run.parts)
        answers = Answers(app, console, seen)
        door = listener("127.0.0.1", 0)
        server = Quiet(
            server_config(
                by_host(answers, run.parts),
                log_level="error",
                timeout_graceful_shutdown=1,
                **served,
            )
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [door])
            await until(lambda: server.started)
            port = int(door.getsockname()[1])
            url, run.market.names = f"http://127.0.0.1:{port}", names_of(config, port)
            run.market.apps = apps_of(config, run.market.names, port)
            try:
                yield url, run
            finally:
                server.should_exit = True
                server.force_exit = True
    assert not answers.wrong, answers.wrong[:5]


class Quiet(uvicorn.Server):
    """Leaves the test's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def address_of(signer: Signer) -> tuple[bytes, str]:
    """A devnet enterprise address of *signer*: raw and hex."""
    raw = b"\x60" + signer.key_hash
    assert payment_key_hash(raw.hex(), mainnet=False) == signer.key_hash.hex()
    return raw, raw.hex()


async def sign_in(client: httpx.AsyncClient, signer: Signer) -> dict[str, Any]:
    """A session by CIP-8; the client is signed in afterwards."""
    raw, address = address_of(signer)
    answer = await client.post("/v1/auth/challenge", json={"address": address})
    assert answer.status_code == 200, answer.text
    message = bytes.fromhex(answer.json()["message"])
    signed = sign_message(signer, raw, message)
    body = {"address": address, "signature": signed.signature, "key": signed.key}
    answer = await client.post("/v1/auth/verify", json=body)
    assert answer.status_code == 200, answer.text
    session = answer.json()
    assert session["account"] == signer.key_hash.hex()
    client.headers["Authorization"] = f"Bearer {session['token']}"
    return session


def fast(**more: Any) -> Settings:
    """Settings of a test."""
    return replace(FAST, **more)
