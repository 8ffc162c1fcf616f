"""The steps of a rental, as a person does them in the console."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.support.product import SECONDS, Console

COUNTING = (
    "python -c \"import time\nfor i in range(600): print('step', i, flush=True); time.sleep(0.5)\""
)


def sign_in(console: Console, to: str = "/jobs") -> None:
    """With the test wallet: its first signature."""
    console.page.goto(f"/sign-in?to={to}")
    choose_wallet(console)


def choose_wallet(console: Console) -> None:
    """On the sign-in page; returns once the pages know the reader."""
    console.page.get_by_role("button", name="Test wallet").click()
    expect(console.page.locator(".account")).to_be_visible(timeout=90 * SECONDS)


def ask(
    console: Console, image: str, command: str = COUNTING, name: str = "counting", budget: str = "6"
) -> None:
    """Fill in the job's form and post it; the window then shows the quote."""
    page = console.page
    page.goto("/jobs/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Image").fill(image)
    page.get_by_label("Command").fill(command)
    page.get_by_label("Budget").fill(budget)
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url(re.compile(r"/jobs/job_"))


def end_job(page: Page) -> None:
    """It is asked for twice, as it cannot be undone."""
    page.get_by_role("button", name="End job").click()
    page.get_by_role("button", name="End job for good?").click()


def finish_channel(page: Page) -> None:
    """It is asked for twice, as it cannot be undone."""
    page.get_by_role("button", name="Finish now").click()
    page.get_by_role("button", name="Finish it for good?").click()


def pay(console: Console, keep: bool = True) -> None:
    """The second signature; returns once the workload runs. *keep*: the channel stays open, as the
    page proposes.
    """
    go = console.page.get_by_role("button", name="Sign and start")
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    console.page.get_by_label("Keep the channel open").set_checked(keep)
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    go.click()
    expect(console.page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)


def lovelace(text: str | None) -> int:
    """Of an exact amount as the pages show it."""
    whole, _, part = (text or "").removeprefix("₳").replace("\u202f", "").partition(".")
    return int(whole) * 1_000_000 + int(part.ljust(6, "0"))
