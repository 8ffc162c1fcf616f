"""Money in and out of a channel by the console: topped up, ended early, signed ahead, closed
alone.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, end_job, finish_channel, pay, sign_in
from tests.browser.support.wallet import Wallet

pytestmark = [pytest.mark.browser, pytest.mark.prove]


def rent(running: Product, console: Console, wallet: Wallet) -> str:
    """A job that runs; its id."""
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    sign_in(console)
    ask(console, running.image)
    pay(console)
    return console.page.url.rsplit("/", 1)[1]


def test_a_channel_is_topped_up_by_the_wallet_and_finished_by_the_session_key(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    job = rent(running, console, wallet)
    ticks = page.locator("#ticks")
    until(lambda: int(ticks.inner_text()) >= 3, "three ticks")
    page.goto("/channels")
    page.get_by_label("Add (₳)").fill("7")
    page.get_by_role("button", name="Top up").click()
    expect(page.locator("#said")).to_contain_text("Added ₳7.00", timeout=120 * SECONDS)
    assert wallet.asked == ["signData", "signTx", "signTx"]
    until(lambda: wallet.lovelace() < 92_000_000, "seven ADA more in the channel")
    finish_channel(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    page.goto(f"/jobs/{job}/invoice")
    expect(page.locator("#reconciled")).to_be_visible(timeout=180 * SECONDS)
    until(lambda: wallet.lovelace() > 98_000_000, "the refund, the top-up with it")
    assert wallet.asked == ["signData", "signTx", "signTx"]
    assert console.said == []


def test_a_page_that_will_be_closed_signs_ahead_what_it_shows(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    job = rent(running, console, wallet)
    until(lambda: int(page.locator("#ticks").inner_text()) >= 2, "two ticks")
    expect(page.locator("#ahead-amount")).to_have_text("₳0.078")  # a minute at the quoted price
    page.get_by_role("button", name="Sign ahead").click()

    def signed() -> int:
        channels = page.evaluate(
            """async () => {
              const headers = {Authorization: `Bearer ${localStorage.getItem("tally-token")}`};
              return (await (await fetch("/v1/channels", {headers})).json()).items;
            }"""
        )
        return int((channels[0]["voucher"] or {"cumulative": 0})["cumulative"])

    until(lambda: signed() >= 78_000, "a voucher over what was shown")
    assert signed() <= 78_000 + 60 * 1300
    # No page answers now: the job goes on past the two ticks that it would have had.
    other = console.context.new_page()
    page.close(run_before_unload=False)
    other.goto("/offers")
    view = f"/v1/jobs/{job}"

    def delivered() -> int:
        return int(
            other.evaluate(
                """async (path) => {
                  const headers = {Authorization: `Bearer ${localStorage.getItem("tally-token")}`};
                  return (await (await fetch(path, {headers})).json()).ticks;
                }""",
                view,
            )
        )

    until(lambda: delivered() >= 8, "ticks that were paid ahead")
    other.goto(f"/jobs/{job}")
    end_job(other)
    expect(other.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)


def test_a_channel_is_closed_without_its_provider(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    rent(running, console, wallet)
    until(lambda: int(page.locator("#ticks").inner_text()) >= 2, "two ticks")
    page.goto("/channels")
    page.get_by_role("button", name="Close without the provider").click()
    expect(page.locator("#said")).to_contain_text("Closing began", timeout=120 * SECONDS)
    assert wallet.asked == ["signData", "signTx", "signTx"]
    # The provider sees it, stops, claims what it was promised and sends the rest home.
    until(lambda: wallet.lovelace() > 98_000_000, "the rest at home", 120)
    assert console.said == []
