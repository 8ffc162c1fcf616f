"""A workload's page at an origin of its own, in a real browser: a site like any other, and nobody
else's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product
from tests.browser.support.rental import pay, sign_in

pytestmark = pytest.mark.browser
SERVER: Final = r"""
import base64, hashlib, http.server, json, struct
PAGE = b"<!doctype html><title>lab</title><h1>42</h1>"
class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.echo()
        kind, body = "text/html", PAGE
        if self.path == "/worker.js":
            kind, body = "text/javascript", b"addEventListener('fetch', () => {})"
        if self.path == "/seen":
            kind, body = "application/json", json.dumps(dict(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "lab=1; Path=/; HttpOnly")
        self.send_header("Set-Cookie", "wide=1; Domain=localhost; Path=/")
        self.end_headers()
        self.wfile.write(body)
    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        head = self.rfile.read(2)
        mask = self.rfile.read(4)
        said = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
        answer = json.dumps([said.decode(), self.headers.get("Cookie", "")]).encode()
        self.wfile.write(b"\x81\x7e" + struct.pack("!H", len(answer)) + answer)
        self.wfile.flush()
        self.rfile.read(1)
http.server.ThreadingHTTPServer(("", 8888), Site).serve_forever()
"""
ASK: Final = """(url) => new Promise((done) => {
  const socket = new WebSocket(url);
  socket.onopen = () => socket.send("1 + 1");
  socket.onmessage = (event) => done(JSON.parse(event.data));
  socket.onerror = () => done(null);
})"""


def start(running: Product, console: Console, tmp_path: Path) -> str:
    """A service from a job file, signed and paid for in the console; its id."""
    page = console.page
    sign_in(console, "/jobs/new")
    page.goto("/jobs/new")
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    asked: dict[str, Any] = {
        "version": 1, "name": "lab", "kind": "service", "image": running.image,
        "command": ["python3", "-u", "-c", SERVER], "ports": [8888],
        "resources": {"cpu": 0.5, "memory": "256MB"}, "price": {"budget": "3 ADA"},
        "policy": {"max_duration": "20m"},
    }  # fmt: skip
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(asked))
    page.get_by_label("A job file, YAML or JSON").set_input_files(file)
    expect(page.get_by_label("Name", exact=True)).to_have_value("lab")
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url(re.compile(r"/jobs/job_"))
    pay(console)
    return page.url.rsplit("/", 1)[1]


def evaluate(page: Page, text: str, given: object = None) -> Any:
    return page.evaluate(text, given)


def test_a_workloads_page_is_a_site_of_its_own_and_nobody_elses(
    running: Product, console: Console, browser: Browser, tmp_path: Path
) -> None:
    job, page = start(running, console, tmp_path), console.page
    button = page.get_by_role("button", name="Open", exact=True)
    expect(button).to_be_visible(timeout=60 * SECONDS)
    assert both_themes(page) == []
    with console.context.expect_page() as opened:
        button.click()
    lab = opened.value
    expect(lab.get_by_role("heading", name="42")).to_be_visible(timeout=60 * SECONDS)
    at = urlsplit(lab.url)
    assert at.hostname == f"8888-{job.removeprefix('job_').lower()}.localhost" and at.path == "/"
    assert "key" not in lab.url and evaluate(lab, "() => [opener, document.referrer]") == [None, ""]

    # Cookies, storage, a service worker and a socket are its own; nothing of the market's is there.
    lab.reload()
    seen = json.loads(evaluate(lab, "() => fetch('/seen').then((a) => a.text())"))
    assert seen["cookie"] == "lab=1; wide=1" and "tally" not in json.dumps(seen).lower()
    assert evaluate(lab, "() => [document.cookie, localStorage.length]") == ["wide=1", 0]
    worker = "() => navigator.serviceWorker.register('/worker.js').then((one) => one.scope)"
    assert evaluate(lab, worker) == f"http://{at.netloc}/"
    assert evaluate(lab, ASK, f"ws://{at.netloc}/") == ["1 + 1", "lab=1; wide=1"]

    # It sets none for the market or for a neighbour, and reads nothing of theirs.
    evaluate(
        lab,
        "() => { document.cookie = 'evil=1; Domain=localhost; Path=/'; document.cookie = 'own=1' }",
    )
    for one in console.context.cookies():
        name, domain = one.get("name", ""), one.get("domain", "")
        ours = domain == urlsplit(running.market).hostname
        assert ours if name.startswith("tally_") and name != "tally_app" else domain == at.hostname
    blocked = "(url) => fetch(url, { credentials: 'include' }).then(() => 'read', () => 'blocked')"
    for url in (f"{running.market}/v1/me", f"http://localhost:{at.port}/jobs/{job}"):
        assert evaluate(lab, blocked, url) == "blocked"
    expect(page.locator(".account")).to_be_visible()

    # A stranger is told whose it is; a link lets him in until it ends, and nobody else's page does.
    other = browser.new_context()
    try:
        stranger = other.new_page()
        stranger.goto(f"http://{at.netloc}/")
        expect(stranger.get_by_role("heading")).to_have_text("This page is not public")
        assert both_themes(stranger) == []
        page.get_by_role("button", name="Share port 8888").click()
        link = page.locator("#share-link")
        expect(link).to_be_visible()
        stranger.goto(link.input_value())
        expect(stranger.get_by_role("heading")).to_have_text("42")
        assert "key" not in stranger.url
        ports = f"{running.market}/v1/jobs/{job}/ports/8888/links"
        token = evaluate(page, "() => localStorage.getItem('tally-token')")
        bearer = {"Authorization": f"Bearer {token}"}
        (made,) = console.context.request.get(ports, headers=bearer).json()["items"]
        console.context.request.delete(f"{ports}/{made['id']}", headers=bearer)
        stranger.reload()
        expect(stranger.get_by_role("heading")).to_have_text("This page is not public")
        neighbour = lab.context.new_page()
        neighbour.goto(f"http://localhost:{at.port}/healthz")
        assert evaluate(neighbour, ASK, f"ws://{at.netloc}/") is None
    finally:
        other.close()

    page.bring_to_front()
    page.get_by_role("button", name="End job").click()
    page.get_by_role("button", name="End job for good?").click()
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    lab.reload()
    expect(lab.get_by_role("heading")).to_have_text("It has ended")
