"""A page of which a part did not arrive: it is loaded once more, and then says what is wrong."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.browser.support.product import Console, Product
from tests.browser.support.rental import sign_in
from tests.browser.support.wallet import Wallet
from tests.requires import need_interfaces

pytestmark = pytest.mark.browser


FETCHES = """async () => {
  let failed = 0;
  for (let n = 0; n < 50; n += 1) {
    const asked = [1, 2, 3, 4].map((k) => fetch(`/offers?n=${n}-${k}`));
    failed += (await Promise.allSettled(asked)).filter((one) => one.status !== "fulfilled").length;
  }
  return failed;
}"""


@contextmanager
def interfaces() -> Iterator[None]:
    """Network interfaces with addresses come and go, as those of other tests do."""
    over = threading.Event()

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def churn() -> int:
        made = 0
        while not over.wait(0.1):
            ip("link", "add", "tally-c0", "type", "veth", "peer", "name", "tally-c1")
            try:
                ip("addr", "add", "192.0.2.1/24", "dev", "tally-c0")
                ip("link", "set", "tally-c0", "up")
                over.wait(0.1)
            finally:
                ip("link", "del", "tally-c0")
            made += 1
        return made

    with ThreadPoolExecutor(1) as pool:
        churned = pool.submit(churn)
        try:
            yield
        finally:
            over.set()
        assert churned.result() > 1


@contextmanager
def documents(page: Page) -> Iterator[list[str]]:
    """Every document that *page* asks for."""
    made: list[str] = []

    def note(asked: Request) -> None:
        if asked.resource_type == "document":
            made.append(asked.url)

    page.on("request", note)
    yield made
    page.remove_listener("request", note)


@pytest.mark.parametrize("part", ["money/units.js", "app.js", "style.css", "pages/new.js"])
def test_a_part_that_did_not_arrive_once_is_there_after_one_more_load(
    running: Product, console: Console, part: str
) -> None:
    page = console.page
    arrives = iter([False])

    def once(route: Route) -> None:
        # Not ``times=1``: as it takes a route away, Playwright may lose the page's next request.
        if next(arrives, True):
            route.continue_()
        else:
            route.abort("connectionreset")

    page.route(f"**/{part}", once)
    with documents(page) as asked:
        page.goto("/jobs/new")
        page.get_by_label("A preset").select_option(label="A command on one core")
        expect(page.get_by_label("Device")).to_have_value("-")
    expect(page.locator("#incomplete")).to_be_hidden()
    assert len(asked) == 2


def test_a_part_that_never_arrives_is_said_and_loaded_for_no_third_time(
    running: Product, console: Console
) -> None:
    page = console.page
    page.route("**/money/units.js", lambda route: route.abort("connectionreset"))
    with documents(page) as asked:
        page.goto("/jobs/new")
        expect(page.locator("#incomplete")).to_be_visible()
        expect(page.get_by_label("A preset")).to_be_hidden()
        page.wait_for_timeout(500)
        assert len(asked) == 2
    page.unroute("**/money/units.js")
    page.get_by_role("link", name="Load it again").click()
    expect(page.get_by_label("A preset")).to_be_visible()
    expect(page.locator("#incomplete")).to_be_hidden()


def test_interfaces_that_come_and_go_with_other_tests_fail_no_request_here(
    running: Product, console: Console
) -> None:
    """What ``steady.py`` is for: without it about one request in fifty failed here."""
    need_interfaces()
    page = console.page
    page.goto("/")
    with interfaces():
        failed = page.evaluate(FETCHES)
    assert failed == 0


def test_a_payer_whose_script_did_not_arrive_is_asked_for_again(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    sign_in(console)
    refused: list[str] = []

    def twice(route: Route) -> None:
        refused.append(route.request.url)
        route.abort("connectionreset")

    console.context.route("**/paying/payer-worker.js", twice, times=2)
    page.goto("/channels")
    expect(page.locator("#payer")).to_contain_text("asked for again")
    expect(page.locator("#payer")).to_be_hidden()  # it said that it pays, for no channel yet
    assert len(refused) == 2
