"""A walk past every page of the console: rent, look at everything while it runs, end, rent again
from the same channel, see the bill.

Whoever takes it says what is done at each page: pictures are taken of it (`screenshots.py`), or it
is compared with what it was (`test_every_page.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from playwright.sync_api import BrowserContext, Page, expect

from marketplace.domain.keys import Signer
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import COUNTING, end_job, finish_channel, sign_in
from tests.browser.support.wallet import Wallet
from tests.browser.support.work import api, begin, push, screen_of, serve, shows

VIEWS = tuple((theme, width) for theme in ("light", "dark") for width in (390, 1280))
LONG = ("docs",)
"""Pages that no picture holds whole."""


class Look(Protocol):
    """What is done at the page *name*, which stands as it should be seen."""

    def __call__(self, page: Page, name: str) -> None: ...


def views(page: Page) -> Iterator[tuple[str, int]]:
    """*page* in each theme and width, from its top."""
    for theme, width in VIEWS:
        page.emulate_media(
            color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce"
        )
        page.set_viewport_size({"width": width, "height": 900 if width > 400 else 844})
        page.evaluate("scrollTo(0, 0)")
        yield theme, width
    page.set_viewport_size({"width": 1280, "height": 900})


def elsewhere(page: Page) -> Iterator[tuple[str, str, str]]:
    """(name, path, what is waited for) of the pages that need no job of their own."""
    offer = page.request.get("/v1/offers").json()["items"][0]
    yield from (
        ("market", "/", "#devices + .scroll"), ("prices", "/prices", "figure"),
        ("offers", "/offers", ".offer"), ("offers-none", "/offers?vram=500&rate=900", ".reasons"),
        ("offer", f"/offers/{offer['id']}", ".facts"), ("providers", "/providers", "tbody tr"),
        ("provider", f"/providers/{offer['provider']}", ".columns"),
        ("explain", "/explain?model=H100&vram=40", "#answer"),
        ("explain-no-match", "/explain?model=H100&rate=900", ".relax li"),
        ("sign-in", "/sign-in", "#wallets button"), ("jobs", "/jobs", "tbody tr"),
        ("channels", "/channels", "[data-left] span"), ("account", "/account", "#vault dl"),
        ("docs", "/docs", "nav.card"), ("error", "/nothing-here", "h1"),
    )  # fmt: skip


def post(page: Page, image: str, notes: Path | None = None, look: Look | None = None) -> str:
    """Fill in the form and ask for the quote; the job's id."""
    page.goto("/jobs/new")
    page.get_by_label("Name", exact=True).fill("finetune")
    page.get_by_label("Image").fill(image)
    page.get_by_label("Command").fill(COUNTING.replace("600", "9000"))  # longer than any walk
    page.get_by_label("Longest").fill("1h")
    page.get_by_label("Budget").fill("6")
    if notes is not None:
        page.get_by_label("Files", exact=True).set_input_files(notes)
        page.get_by_role("button", name="Add a secret").click()
        page.locator("[name=secret-name]").fill("HF_TOKEN")
        page.locator("[name=secret-value]").fill("not shown anywhere")
    expect(page.locator("#estimate")).to_contain_text("At most")
    if look is not None:
        look(page, "new-job")
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url("**/jobs/job_*")
    expect(page.locator("#pay-now")).to_be_enabled()
    return page.url.rsplit("/", 1)[1]


def run(page: Page, ticks: int) -> None:
    """Agree to the quote; returns after so many ticks."""
    page.locator("#pay-now").click()
    expect(page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)
    until(lambda: int(page.locator("#ticks").inner_text()) >= ticks, f"{ticks} ticks")


def end(page: Page, job: str) -> None:
    """The job, and what it owes is settled."""
    page.goto(f"/jobs/{job}")
    end_job(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)


def keys_and_hooks(page: Page, look: Look) -> None:
    """A key and a webhook, with their secrets as they are shown once."""
    page.goto("/account/keys")
    page.get_by_label("Name").fill("nightly")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("tbody tr")).to_be_visible()
    page.locator("#secret").evaluate("(el) => (el.textContent = 'tally_k_' + '7a'.repeat(32))")
    look(page, "keys")
    page.goto("/account/webhooks")
    page.get_by_label("URL").fill("https://example.org/tally")
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("article")).to_be_visible()
    page.locator("#secret").evaluate("(el) => (el.textContent = 'whsec_' + '5c'.repeat(32))")
    look(page, "webhooks")


def work(running: Product, console: Console, job: str, look: Look) -> None:
    """What an account has beside single jobs: a terminal in *job*, an image, a service, a session."""
    page = console.page
    page.goto(f"/jobs/{job}/terminal")
    frame = screen_of(page)
    frame.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("ls -l /workspace; python3 --version\n")
    shows(frame, "Python 3")
    look(page, "terminal")
    push(page, running.image, "train:v1")
    page.goto("/images")
    page.locator("tbody tr").wait_for(state="visible")
    look(page, "images")
    replica = serve(running, console, "web")
    page.goto("/services")
    page.locator("article tbody tr").wait_for(state="visible")
    look(page, "services")
    end(page, replica)
    together(running, page, look)
    session = begin(console, "A terminal")
    until(lambda: int(page.locator("#ticks").inner_text()) >= 5, "5 ticks")
    look(page, "session")
    end(page, session)


def together(running: Product, page: Page, look: Look) -> None:
    """A cluster that was quoted, and that nobody pays for."""
    asked = {
        "version": 1, "name": "allreduce", "image": running.image, "command": ["true"],
        "cluster": {"members": 2, "network": "none"}, "price": {"budget": "2 ADA"},
        "resources": {"cpu": 0.25, "memory": "64MB"}, "policy": {"max_duration": "20m"},
    }  # fmt: skip
    keys = [Signer(os.urandom(32)).verify_key.hex() for _ in range(2)]
    at = "/v1/gangs"
    made = api(page, "POST", at, {"job": asked, "session_vks": keys})
    page.goto(f"/gangs/{made['id']}")
    expect(page.locator(".state-quoted")).to_have_count(2)
    look(page, "gang")
    api(page, "POST", f"{at}/{made['id']}/stop")


def walk(running: Product, context: BrowserContext, home: Path, look: Look) -> Console:
    """All of it in a new window of *context*; *home*: a folder for the file that goes along."""
    wallet = Wallet(running.chain)
    wallet.fund(100_000_000)
    until(lambda: wallet.lovelace() > 0, "the faucet's money")
    wallet.install(context)
    console = Console.of(context)
    page = console.page
    sign_in(console)
    notes = home / "train.py"
    notes.write_text("print('hello')\n" * 400)
    first = post(page, running.image, notes, look)
    page.get_by_label("Keep the channel open").check()
    page.get_by_label("Put aside").fill("2")
    expect(page.locator("#pay")).to_contain_text("pays nobody until you agree")
    expect(page.locator("#pay-now")).to_be_enabled()
    page.locator("h1").click()
    look(page, "quote")
    run(page, 25)
    look(page, "job")
    for name, path, ready in elsewhere(page):
        page.goto(path)
        page.locator(ready).first.wait_for(state="visible")
        look(page, name)
    keys_and_hooks(page, look)
    work(running, console, first, look)
    end(page, first)
    second = post(page, running.image)
    look(page, "quote-warm")
    run(page, 5)
    end(page, second)
    page.goto("/channels")
    finish_channel(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    page.goto(f"/jobs/{first}/invoice")
    expect(page.locator("#reconciled")).to_be_visible(timeout=180 * SECONDS)
    look(page, "invoice")
    return console
