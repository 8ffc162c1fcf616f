"""Every page of the console, dark and light, at 390 and 1280 px, into ``docs/screenshots``.

    .venv/bin/python -m tests.browser.support.screenshots [FOLDER]

It starts the whole product with simulated devices, rents one, and takes the pages while it runs.
The pictures are written by this command alone: no test run changes them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.support.png import Camera
from tests.browser.support.product import SECONDS, Console, Product, chromium, product, until
from tests.browser.support.rental import COUNTING, end_job, sign_in
from tests.browser.support.wallet import Wallet
from tests.requires import need_chromium

WIDTHS = (390, 1280)
THEMES = ("light", "dark")


class Album:
    """The pictures of one window."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.page, self.folder = console.page, folder
        self.camera = Camera(console.context)

    def shoot(self, name: str, *, full: bool = True) -> None:
        """The page as it stands, in all four ways."""
        for theme in THEMES:
            self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            for width in WIDTHS:
                height = 900 if width > 400 else 844
                self.page.set_viewport_size({"width": width, "height": height})
                self.page.evaluate("scrollTo(0, 0)")
                self.camera.take(self.page, self.folder / f"{name}-{theme}-{width}.png", full=full)
        self.page.set_viewport_size({"width": 1280, "height": 900})

    def visit(self, name: str, path: str, ready: str = "main h1") -> None:
        """Go there, wait for *ready*, and shoot."""
        self.page.goto(path)
        self.page.locator(ready).first.wait_for(state="visible")
        self.shoot(name)


def elsewhere(page: Page) -> Iterator[tuple[str, str, str]]:
    """(name, path, what is waited for) of the pages that need no job of their own."""
    offer = page.request.get("/v1/offers").json()["items"][0]
    yield from (
        ("market", "/", "#devices + .scroll"), ("offers", "/offers", ".offer"),
        ("offers-none", "/offers?vram=500&rate=900", ".reasons"),
        ("offer", f"/offers/{offer['id']}", ".facts"), ("providers", "/providers", "tbody tr"),
        ("provider", f"/providers/{offer['provider']}", ".columns"),
        ("explain", "/explain?model=H100&vram=40", "#answer"),
        ("explain-no-match", "/explain?model=H100&rate=900", ".relax li"),
        ("sign-in", "/sign-in", "#wallets button"), ("jobs", "/jobs", "tbody tr"),
        ("channels", "/channels", "[data-left] span"), ("account", "/account", "#vault dl"),
        ("error", "/nothing-here", "h1"),
    )  # fmt: skip


def post(page: Page, image: str, notes: Path | None = None, album: Album | None = None) -> str:
    """Fill in the form and ask for the quote; the job's id."""
    page.goto("/jobs/new")
    page.get_by_label("Name", exact=True).fill("finetune")
    page.get_by_label("Image").fill(image)
    page.get_by_label("Command").fill(COUNTING)
    page.get_by_label("Budget").fill("6")
    if notes is not None:
        page.get_by_label("Files", exact=True).set_input_files(notes)
        page.get_by_role("button", name="Add a secret").click()
        page.locator("[name=secret-name]").fill("HF_TOKEN")
        page.locator("[name=secret-value]").fill("not shown anywhere")
    expect(page.locator("#estimate")).to_contain_text("At most")
    if album is not None:
        album.shoot("new-job")
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url("**/jobs/job_*")
    expect(page.locator("#pay-now")).to_be_enabled()
    return page.url.rsplit("/", 1)[1]


def run(page: Page, ticks: int) -> None:
    """Agree to the quote; returns after so many ticks."""
    page.locator("#pay-now").click()
    expect(page.locator(".state-running")).to_be_visible(timeout=90 * SECONDS)
    until(lambda: int(page.locator("#ticks").inner_text()) >= ticks, f"{ticks} ticks")


def end(page: Page, job: str) -> None:
    """The job, and what it owes is settled."""
    page.goto(f"/jobs/{job}")
    end_job(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=90 * SECONDS)


def keys_and_hooks(page: Page, album: Album) -> None:
    """A key and a webhook, with their secrets as they are shown once."""
    page.goto("/account/keys")
    page.get_by_label("Name").fill("nightly")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("tbody tr")).to_be_visible()
    page.locator("#secret").evaluate("(el) => (el.textContent = 'tally_k_' + '7a'.repeat(32))")
    album.shoot("keys")
    page.goto("/account/webhooks")
    page.get_by_label("URL").fill("https://example.org/tally")
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("article")).to_be_visible()
    page.locator("#secret").evaluate("(el) => (el.textContent = 'whsec_' + '5c'.repeat(32))")
    album.shoot("webhooks")


def story(running: Product, browser: Browser, folder: Path, home: Path) -> None:
    """Rent, look at everything while it runs, end, rent again from the same channel, see the
    bill.
    """
    wallet = Wallet(running.chain)
    wallet.fund(100_000_000)
    until(lambda: wallet.lovelace() > 0, "the faucet's money")
    context = browser.new_context(base_url=running.market)
    wallet.install(context)
    console = Console.of(context)
    page, album = console.page, Album(console, folder)
    sign_in(console)
    notes = home / "train.py"
    notes.write_text("print('hello')\n" * 400)
    first = post(page, running.image, notes, album)
    page.get_by_label("Keep the channel open").check()
    page.get_by_label("Put aside").fill("2")
    expect(page.locator("#pay .checks")).to_contain_text("what you put aside")
    expect(page.locator("#pay-now")).to_be_enabled()
    page.locator("h1").click()
    album.shoot("quote")
    run(page, 25)
    album.shoot("job")
    for name, path, ready in elsewhere(page):
        album.visit(name, path, ready)
    keys_and_hooks(page, album)
    end(page, first)
    second = post(page, running.image)
    album.shoot("quote-warm")
    run(page, 5)
    end(page, second)
    page.goto("/channels")
    page.get_by_role("button", name="Finish now").click()
    expect(page.locator(".state-ended")).to_be_visible(timeout=90 * SECONDS)
    page.goto(f"/jobs/{first}/invoice")
    expect(page.locator("#reconciled")).to_be_visible(timeout=90 * SECONDS)
    album.shoot("invoice")
    context.close()


def main() -> None:
    """Write them."""
    root = Path(__file__).resolve().parents[3]
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        product(Path(home)) as running,
        chromium(need_chromium()) as browser,
    ):
        story(running, browser, folder, Path(home))
    size = sum(file.stat().st_size for file in folder.glob("*.png"))
    print(f"{len(list(folder.glob('*.png')))} pictures, {size // 1024} KiB in {folder}")


if __name__ == "__main__":
    main()
