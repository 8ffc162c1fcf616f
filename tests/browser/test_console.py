"""A rental from the first click to the refund, in a real browser, with a wallet of its own keys."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, choose_wallet, lovelace
from tests.browser.support.wallet import Wallet

pytestmark = pytest.mark.browser
BEYOND_THE_SHEET = """() => [...document.querySelectorAll("main *:not(.unseen)")].filter((one) => {
  const box = one.getBoundingClientRect();
  if (getComputedStyle(one).clipPath === "inset(50%)") return false;  // for a reader's ears: a stacked table's head
  return box.width > 0 && (box.right > innerWidth + 1 || one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible");
}).map((one) => `${one.tagName}.${one.className}`)"""


def test_a_rental_takes_two_signatures_and_the_rest_comes_home(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    page.goto("/jobs/new")
    page.locator("#estimate").get_by_role("link", name="Sign in").click()
    choose_wallet(console)
    ask(console, running.image)

    # What is to be signed is shown, checked, before the wallet is asked.
    go = page.get_by_role("button", name="Sign and start")
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    assert page.locator("#pay .checks .no").count() == 0
    assert page.locator("#pay .checks .ok").count() == 18
    expect(page.locator("#quote").locator("..")).to_contain_text("SIMULATED")
    assert wallet.asked == ["signData"]
    keep = page.get_by_label("Keep the channel open")
    expect(keep).to_be_checked()
    keep.uncheck()  # it ends with its job: the refund is looked for below
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    go.click()

    expect(page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)
    expect(page.locator("#log")).to_contain_text("step 3", timeout=120 * SECONDS)
    ticks = page.locator("#ticks")
    until(lambda: int(ticks.inner_text()) >= 4, "four ticks")
    expect(page.locator("#charts")).to_be_visible()
    expect(page.locator("#chart-ticks .notch").nth(3)).to_be_attached()
    expect(page.locator("#chart-cost .line")).to_have_attribute("d", re.compile("^M"))

    # W10: the log is searched, and shows its end; W13: an end is asked for twice.
    page.get_by_role("searchbox", name="Find in the log").fill("step 2")
    expect(page.locator("#log-found")).to_contain_text("of ")
    assert page.evaluate("getSelection().toString()") == "step 2"
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save log").click()
    assert "step 3" in saved.value.path().read_text()
    page.get_by_role("button", name="End job").click()
    expect(page.locator(".state-running")).to_be_visible()
    page.get_by_role("button", name="End job for good?").click()
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    expect(page.locator("#why")).to_have_text("You ended it.")
    assert page.locator(".story").inner_text().lower().count("stopping") <= 1
    assert "CANCELLED" not in page.locator("main").inner_text()
    page.get_by_role("link", name="Invoice").click()
    expect(page.locator("#reconciled")).to_contain_text("to the lovelace", timeout=180 * SECONDS)
    assert page.locator("#verdict .checks .ok").count() == 12

    # D7: the network's fees are on the bill; W11: ids are copied, and a devnet has no explorer.
    bill = page.locator("#bill .bill")
    expect(bill).to_contain_text("Network fees")
    compute, fees, total = (
        lovelace(bill.locator("div", has_text=name).last.locator("dd").inner_text())
        for name in ("Compute", "Network fees", "Total")
    )
    assert compute + fees == total and fees > 100_000
    assert page.locator("main button.copy").count() >= 2
    assert page.locator("main a[href*=cardanoscan]").count() == 0
    with page.expect_download() as csv:
        page.get_by_role("link", name="CSV").click()
    assert f",{compute}," in csv.value.path().read_text()

    # On paper (A4) the bill is whole, and what only a screen can use is not there.
    size = page.viewport_size
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # 19 cm
    assert page.evaluate(BEYOND_THE_SHEET) == []
    expect(bill).to_be_visible()
    for tool in ("button", ".top", "footer"):
        assert page.locator(tool).filter(visible=True).count() == 0, tool
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.emulate_media(media="screen")
    if size is not None:
        page.set_viewport_size(size)

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
    assert owed > 0 and (owed, fee) == (compute, fees)
    until(lambda: wallet.lovelace() == 100_000_000 - owed - fee, "the refund in the wallet")
    assert wallet.asked == ["signData", "signTx"]
    assert console.said == []
