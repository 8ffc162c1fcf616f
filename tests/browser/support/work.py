"""What an account has beside single jobs, made for a page to show: an image, a service, a session."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import FilePayload, Frame, Page, expect

from marketplace.client.images.pushing import push as push_with_docker
from marketplace.domain.work.image_names import Reference
from tests.browser.support.product import SECONDS, Console, Product, until


def api(page: Page, method: str, path: str, data: Any = None) -> Any:
    """What the market answers to the reader of *page*."""
    answer = page.context.request.fetch(
        path, method=method, data=data, headers={"Authorization": f"Bearer {_token(page)}"}
    )
    assert answer.ok, answer.text()
    return answer.json()


def push(page: Page, image: str, name: str) -> str:
    """This machine's *image* as *name* in the registry of the reader's market; its whole name."""
    held = api(page, "GET", "/v1/registry/holdings")
    to = Reference.parse(f"{held['registry']}/{held['namespace']}/{name}")
    return push_with_docker(image, to, _token(page), lambda _done, _most: None).name


def serve(running: Product, console: Console, name: str) -> str:
    """A service of one replica, a page of files; its job's id."""
    page = console.page
    asked = {
        "version": 1, "name": name, "kind": "service", "image": running.image,
        "command": ["python3", "-m", "http.server", "8000"], "ports": [8000],
        "resources": {"cpu": 0.25, "memory": "64MB"}, "price": {"budget": "3 ADA"},
        "policy": {"max_duration": "20m"},
    }  # fmt: skip
    page.goto("/jobs/new")
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    file: FilePayload = {
        "name": "web.json",
        "mimeType": "application/json",
        "buffer": json.dumps(asked).encode(),
    }
    page.get_by_label("A job file, YAML or JSON").set_input_files(files=[file])
    expect(page.get_by_label("Name", exact=True)).to_have_value(name)
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url(re.compile(r"/jobs/job_"))
    agree(page)
    job = page.url.rsplit("/", 1)[1]
    at = f"/v1/services/{name}"
    api(page, "PUT", at, {"auth": "token"})
    api(page, "PUT", f"{at}/replicas/{job}", {"port": 8000, "serving": True})
    return job


def begin(console: Console, name: str) -> str:
    """The session *name*, signed and paid for; its job's id."""
    page = console.page
    page.goto("/jobs")
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url(re.compile(r"/jobs/job_"))
    agree(page)
    return page.url.rsplit("/", 1)[1]


def screen_of(page: Page) -> Frame:
    """The sandbox, once its screen stands."""
    page.wait_for_selector("#screen")
    until(lambda: len(page.frames) > 1, "the screen's page")
    frame = page.frames[1]
    frame.wait_for_selector(".xterm-rows")
    return frame


def shows(frame: Frame, what: str) -> None:
    """Waits for a line of the screen."""
    expect(frame.locator(".xterm-rows")).to_contain_text(what, timeout=60 * SECONDS)


def agree(page: Page) -> None:
    """To the quote, over a channel that is new or kept; returns once the workload runs."""
    go = page.locator("#pay-now")
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    go.click()
    expect(page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)


def _token(page: Page) -> str:
    return page.evaluate("() => localStorage.getItem('tally-token')")
