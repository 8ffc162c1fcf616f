"""A transaction is sent through every door that is configured: one that takes it is enough."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
import requests

from adapter.config import load
from marketplace.chain.actions.session import pay
from marketplace.chain.errors import ChainFault, ChainUrlWrong, TxRefused
from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit_doors import Door
from marketplace.chain.transaction.outputs import Out
from tests.integration.support.chain import ADA, World, devnet


@dataclass
class Of:
    """What one server says and hears: its *status*, what it *got*, the address *behind* it."""

    status: int = 200
    behind: str = ""
    got: list[tuple[str, str | None, bytes]] = field(
        default_factory=list[tuple[str, str | None, bytes]]
    )


class _Door(BaseHTTPRequestHandler):
    """Answers each post with its status and keeps what was posted."""

    of = Of()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.of.got.append((self.path, self.headers.get("project_id"), body))
        self.send_response(self.of.status)
        self.end_headers()
        self.wfile.write(b'"said"')

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], of: Of) -> Generator[str, None, None]:
    """A server's address, without its scheme."""
    kind = type(handler.__name__, (handler,), {"of": of})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def door(status: int) -> Generator[tuple[str, list[tuple[str, str | None, bytes]]], None, None]:
    """A submit door that says *status*: where it is, and what it got."""
    of = Of(status)
    with serving(_Door, of) as at:
        yield at, of.got


@contextmanager
def chain_of_a_test() -> Generator[Any, None, None]:
    with devnet() as served:
        yield served


class _Forwarding(BaseHTTPRequestHandler):
    """A chain's door that shows another's chain and takes no transaction."""

    of = Of()

    def do_GET(self) -> None:
        answer = requests.get(self.of.behind + self.path, timeout=20)
        self._say(answer.status_code, answer.content)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/tx/submit"):
            self._say(503, b'{"status_code": 503, "error": "busy", "message": "the line was cut"}')
            return
        kind = {"Content-Type": self.headers["Content-Type"]}
        at = self.of.behind + self.path
        answer = requests.post(at, data=body, headers=kind, timeout=20)
        self._say(answer.status_code, answer.content)

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def test_every_door_gets_it_and_one_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    with chain_of_a_test() as served, door(200) as (good, took), door(500) as (bad, failed):

        async def main() -> None:
            urls = (
                f"http://secret-id@{good}/api/v0",
                f"http://{bad}/api/submit/tx",
                "http://127.0.0.1:9/nobody",
                served.url,  # the devnet's own: it has the transaction, or gets it first
            )
            chain = await connect(served.url, submit_urls=urls)
            world = World(served, chain)
            world.fund("a", 50 * ADA)
            sent = await pay(world.desk("a"), [Out(world.wallet("b").address, 5 * ADA)])
            assert await world.balance(world.wallet("b").address) == 5 * ADA
            assert took == [("/api/v0/tx/submit", "secret-id", sent.bytes)]
            assert failed == [("/api/submit/tx", None, sent.bytes)]
            logged = capsys.readouterr().out
            assert "status 500" in logged and "no connection" in logged
            assert "secret-id" not in logged

        anyio.run(main)


def test_a_door_that_takes_nothing_is_no_harm_beside_one_that_does() -> None:
    with chain_of_a_test() as served, serving(_Forwarding, Of(behind=served.origin)) as at:
        cut = served.url.replace(served.origin, f"http://{at}")

        async def main() -> None:
            for urls in ((), (served.url,)):
                chain = await connect(cut, submit_urls=urls)
                world = World(served, chain)
                world.fund("a", 50 * ADA)
                paying = pay(world.desk("a"), [Out(world.wallet("b").address, 5 * ADA)])
                if not urls:
                    with pytest.raises(ChainFault):
                        await paying
                    continue
                sent = await paying
                included = await chain.transaction(sent.tx_id)
                assert included is not None
                assert await world.balance(world.wallet("b").address) == 5 * ADA

        anyio.run(main)


def test_where_no_door_takes_it_the_first_ones_reason_stands() -> None:
    with chain_of_a_test() as served, door(400) as (no, _):

        async def main() -> None:
            chain = await connect(served.url, submit_urls=(f"http://{no}",))
            with pytest.raises(TxRefused):
                await chain.submit(bytes.fromhex("84a0a0f5f6"))

        anyio.run(main)


@pytest.mark.parametrize(
    ("url", "post_to", "project_id"),
    [
        ("https://id@x.io/api", "https://x.io/api/v0/tx/submit", "id"),
        ("https://x.io/api/v0/", "https://x.io/api/v0/tx/submit", ""),
        ("http://node:8090/api/submit/tx", "http://node:8090/api/submit/tx", ""),
        ("https://x.io/v0/tx/submit", "https://x.io/v0/tx/submit", ""),
    ],
)
def test_addresses_of_doors(url: str, post_to: str, project_id: str) -> None:
    read = Door.parse(url)
    assert (read.post_to, read.project_id) == (post_to, project_id)
    assert "id@" not in read.name


@pytest.mark.parametrize("url", ["", "node:8090", "ftp://x.io", "file:///etc/passwd"])
def test_what_is_no_address_is_refused_when_it_is_named(url: str) -> None:
    with pytest.raises(ChainUrlWrong):
        Door.parse(url)


def test_an_owner_names_them_in_the_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "adapter.toml"
    file.write_text('submit_urls = ["https://a.io/api", "http://node:8090/api/submit/tx"]\n')
    two = ("https://a.io/api", "http://node:8090/api/submit/tx")
    assert load(file, environment={}).submit_urls == two
    assert load(environment={"TALLY_SUBMIT_URLS": " ".join(two)}).submit_urls == two
