"""Every page of the console, dark and light, at 390 and 1280 px, into ``docs/screenshots``.

    .venv/bin/python -m tests.browser.screenshots [FOLDER]

It starts the whole product with simulated devices, rents one, and takes the pages while it runs. The
pictures are written by this command alone: no test run changes them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.support_product import (
    SECONDS,
    Console,
    Product,
    chromium,
    product,
    until,
)
from tests.browser.support_rental import ask, pay, sign_in
from tests.browser.support_wallet import Wallet
from tests.requires import need_chromium

WIDTHS = (390, 1280)
THEMES = ("light", "dark")
QUALITY = 55


def pages(page: Page, job: str) -> Iterator[tuple[str, str]]:
    """(name, path) of every page; *job* is one that runs."""
    offer = page.request.get("/v1/offers").json()["items"][0]
    yield from (
        ("market", "/"), ("offers", "/offers"), ("offer", f"/offers/{offer['id']}"),
        ("providers", "/providers"), ("provider", f"/providers/{offer['provider']}"),
        ("sign-in", "/sign-in"), ("new-job", "/jobs/new"), ("jobs", "/jobs"), ("job", f"/jobs/{job}"),
        ("channels", "/channels"),
    )  # fmt: skip


def settle(page: Page, name: str) -> None:
    """Until the page shows what it is for."""
    places = {
        "sign-in": "#wallets button", "new-job": "#estimate dl", "invoice": "#bill dl",
        "job": "#chart-ticks .notch", "quote": "#pay-now",
    }  # fmt: skip
    if name in places:
        page.locator(places[name]).first.wait_for(state="attached")


def shoot(page: Page, folder: Path, name: str) -> None:
    """One page in all four ways."""
    for theme in THEMES:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900 if width > 400 else 844})
            file = folder / f"{name}-{theme}-{width}.jpg"
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=file, type="jpeg", quality=QUALITY, full_page=name != "job")


def story(running: Product, browser: Browser, folder: Path) -> None:
    """Rent, look at everything while it runs, end, look at the invoice."""
    wallet = Wallet(running.chain)
    wallet.fund(100_000_000)
    until(lambda: wallet.lovelace() > 0, "the faucet's money")
    context = browser.new_context(base_url=running.market)
    wallet.install(context)
    console = Console.of(context)
    page = console.page
    sign_in(console)
    ask(console, running.image)
    settle(page, "quote")
    shoot(page, folder, "quote")
    job = page.url.rsplit("/", 1)[1]
    pay(console)
    until(lambda: int(page.locator("#ticks").inner_text()) >= 25, "twenty-five ticks")
    shoot(page, folder, "job")
    for name, path in pages(page, job):
        if name == "job":
            continue
        page.goto(path)
        settle(page, name)
        shoot(page, folder, name)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="End job").click()
    expect(page.locator(".state-ended")).to_be_visible(timeout=90 * SECONDS)
    page.goto(f"/jobs/{job}/invoice")
    expect(page.locator("#reconciled")).to_be_visible(timeout=90 * SECONDS)
    settle(page, "invoice")
    shoot(page, folder, "invoice")
    context.close()


def main() -> None:
    """Write them."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        product(Path(home)) as running,
        chromium(need_chromium()) as browser,
    ):
        story(running, browser, folder)
    size = sum(file.stat().st_size for file in folder.glob("*.jpg"))
    print(f"{len(list(folder.glob('*.jpg')))} pictures, {size // 1024} KiB in {folder}")


if __name__ == "__main__":
    main()
