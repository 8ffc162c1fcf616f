"""A rental from the first click to the refund, in a real browser, with a wallet of its own keys."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.support_product import SECONDS, Console, Product, until
from tests.browser.support_wallet import Wallet

pytestmark = pytest.mark.browser
COUNTING = (
    "python -c \"import time\nfor i in range(600): print('step', i, flush=True); time.sleep(0.5)\""
)


def sign_in(console: Console, to: str = "/jobs") -> None:
    """With the test wallet: its first signature."""
    page = console.page
    page.goto(f"/sign-in?to={to}")
    page.get_by_role("button", name="Test wallet").click()
    expect(page.locator(".account")).to_be_visible()


def ask(console: Console, image: str, command: str = COUNTING, name: str = "counting") -> None:
    """Fill in the job's form and post it; the window then shows the quote."""
    page = console.page
    page.goto("/jobs/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Image").fill(image)
    page.get_by_label("Command").fill(command)
    page.get_by_label("Budget").fill("6")
    expect(page.locator("#estimate")).to_contain_text("At most")
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url(re.compile(r"/jobs/job_"))


def test_a_rental_takes_two_signatures_and_the_rest_comes_home(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    page.goto("/jobs/new")
    page.locator("#estimate").get_by_role("link", name="Sign in").click()
    page.get_by_role("button", name="Test wallet").click()
    expect(page.locator(".account")).to_be_visible()
    ask(console, running.image)

    # What is to be signed is shown, checked, before the wallet is asked.
    go = page.get_by_role("button", name="Sign and start")
    expect(go).to_be_enabled(timeout=30 * SECONDS)
    assert page.locator("#pay .checks .no").count() == 0
    assert page.locator("#pay .checks .ok").count() == 8
    expect(page.locator("#quote").locator("..")).to_contain_text("SIMULATED")
    assert wallet.asked == ["signData"]
    go.click()

    expect(page.locator(".state-running")).to_be_visible(timeout=90 * SECONDS)
    expect(page.locator("#log")).to_contain_text("step 3", timeout=60 * SECONDS)
    ticks = page.locator("#ticks")
    until(lambda: int(ticks.inner_text()) >= 4, "four ticks")
    expect(page.locator("#charts")).to_be_visible()
    expect(page.locator("#chart-ticks .notch").nth(3)).to_be_attached()
    expect(page.locator("#chart-cost .line")).to_have_attribute("d", re.compile("^M"))

    page.get_by_role("button", name="End job").click()
    expect(page.locator(".state-ended")).to_be_visible(timeout=90 * SECONDS)
    page.get_by_role("link", name="Invoice").click()
    expect(page.locator("#reconciled")).to_contain_text("to the lovelace", timeout=90 * SECONDS)
    assert page.locator("#verdict .checks .ok").count() == 8

    # The bill, the chain and the wallet agree.
    job = page.locator("#invoice").get_attribute("data-job")
    owed, fee = page.evaluate(
        """async (job) => {
          const headers = {Authorization: `Bearer ${localStorage.getItem("tally-token")}`};
          const view = await (await fetch(`/v1/jobs/${job}`, {headers})).json();
          return [view.spent, view.transactions.find((t) => t.kind === "open").fee];
        }""",
        job,
    )
    assert owed > 0
    until(lambda: wallet.lovelace() == 100_000_000 - owed - fee, "the refund in the wallet")
    assert wallet.asked == ["signData", "signTx"]
    assert console.said == []
