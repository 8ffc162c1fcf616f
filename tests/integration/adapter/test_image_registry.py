"""Digests asked of a registry over a real socket: with and without a token, a digest header, or
sense.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

from marketplace.client.jobs.images import ImageNotPinned, digest_of

MANIFEST = b'{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}'
DIGEST = "sha256:" + hashlib.sha256(MANIFEST).hexdigest()


@dataclass
class Behaviour:
    """How the registry answers."""

    token: str = ""  # asks for this one, "" for none
    header: bool = True
    status: int = 200
    realm: str = ""
    silent: bool = False
    redirect: str = ""
    asked: list[str] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)


@contextmanager
def registry(behaviour: Behaviour) -> Generator[str]:
    """A registry's manifests and its token service; the host to name."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, format: str, *args: object) -> None:
            behaviour.asked.append(f"{self.command} {self.path}")

        def _send(self, status: int, body: bytes, headers: dict[str, str], send: bool) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if send:
                self.wfile.write(body)

        def _answer(self, *, body: bool) -> None:
            if behaviour.silent:
                behaviour.done.wait(30)
                self.close_connection = True
                return
            host = f"http://{self.headers['Host']}"
            path = urlsplit(self.path)
            if path.path == "/token":
                scope = parse_qs(path.query)["scope"][0]
                assert scope == "repository:acme/tool:pull"
                self._send(200, json.dumps({"token": behaviour.token}).encode(), {}, body)
                return
            if behaviour.redirect:
                self._send(307, b"", {"Location": behaviour.redirect}, body)
                return
            if behaviour.token and self.headers.get("Authorization") != f"Bearer {behaviour.token}":
                realm = behaviour.realm or f"{host}/token"
                header = f'Bearer realm="{realm}",service="here"'
                self._send(401, b"{}", {"WWW-Authenticate": header}, body)
                return
            assert path.path == "/v2/acme/tool/manifests/1.0"
            assert "oci.image.index" in self.headers["Accept"]
            headers = {"Docker-Content-Digest": DIGEST} if behaviour.header else {}
            self._send(behaviour.status, MANIFEST, headers, body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        behaviour.done.set()
        server.shutdown()
        thread.join()
        server.server_close()


def ask(behaviour: Behaviour, *, deadline_s: float = 20.0) -> tuple[str, str]:
    with registry(behaviour) as host:
        image = f"{host}/acme/tool:1.0"

        async def story() -> str:
            return await digest_of(image, deadline_s=deadline_s)

        return anyio.run(story), host


def test_an_open_registry_gives_the_digest_without_the_manifest() -> None:
    behaviour = Behaviour()
    found, host = ask(behaviour)
    assert found == f"{host}/acme/tool@{DIGEST}"
    assert behaviour.asked == ["HEAD /v2/acme/tool/manifests/1.0"]


def test_a_registry_that_wants_a_token_gives_an_anonymous_one() -> None:
    behaviour = Behaviour(token="anonymous-7")
    found, _ = ask(behaviour)
    assert found.endswith(DIGEST)
    assert [line.split("?")[0] for line in behaviour.asked] == [
        "HEAD /v2/acme/tool/manifests/1.0",
        "GET /token",
        "HEAD /v2/acme/tool/manifests/1.0",
    ]


def test_without_a_header_the_digest_is_the_hash_of_the_manifest() -> None:
    found, _ = ask(Behaviour(header=False))
    assert found.endswith(DIGEST)


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (Behaviour(status=404), "no such public image"),
        (Behaviour(status=503), "answered 503"),
        (Behaviour(token="t", realm="http://registry.example/token"), "without TLS"),
        (Behaviour(redirect="http://registry.example/v2/"), "without TLS"),
    ],
)
def test_a_registry_that_cannot_tell_is_a_refusal(behaviour: Behaviour, why: str) -> None:
    with pytest.raises(ImageNotPinned, match=why) as refused:
        ask(behaviour)
    assert refused.value.code == "IMAGE_NOT_PINNED" and "sha256" in refused.value.remedy


def test_a_silent_registry_is_not_waited_for() -> None:
    with pytest.raises(ImageNotPinned, match=r"no answer|cannot be asked"):
        ask(Behaviour(silent=True), deadline_s=0.3)


def test_nobody_there_is_a_refusal() -> None:
    with registry(Behaviour()) as host:
        gone = host

    async def story() -> str:
        return await digest_of(f"{gone}/acme/tool:1.0", deadline_s=5)

    with pytest.raises(ImageNotPinned, match="cannot be asked"):
        anyio.run(story)
