"""What a person reads before anything is paid: what is lacking, and what signing in means."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, lovelace, sign_in
from tests.browser.support.wallet import Wallet

pytestmark = pytest.mark.browser


def test_a_wallet_without_money_is_told_what_the_job_needs_and_for_what(
    running: Product, browser: Browser
) -> None:
    """W3: three sums that add up, the way to test money, and the same page goes on once it came."""
    poor = Wallet(running.chain)
    context = browser.new_context(base_url=running.market)
    poor.install(context)
    console = Console.of(context)
    page = console.page
    sign_in(console)
    ask(console, running.image)
    short = page.locator("#short")
    expect(short).to_contain_text("Your wallet has ₳0.00. This job needs ₳", timeout=90 * SECONDS)
    rows = page.locator("#pay .bill dd .ada")
    assert rows.count() == 4
    ceiling, reserve, rest, lacks = (lovelace(rows.nth(n).get_attribute("title")) for n in range(4))
    assert ceiling > 0 and reserve > 1_000_000 and rest > 0 and ceiling + reserve + rest == lacks
    expect(page.locator("#pay")).to_contain_text("tally faucet addr_test1")
    assert both_themes(page) == []
    poor.fund(100_000_000)
    until(lambda: poor.lovelace() > 0, "the faucet's money")
    # Nobody presses anything: the page looks again.
    expect(page.get_by_role("button", name="Sign and start")).to_be_enabled(timeout=90 * SECONDS)
    expect(page.locator("#pay .bill")).to_contain_text("Leaves your wallet now")
    expect(page.locator("#pay .bill")).to_contain_text("Comes back at the end")
    page.get_by_role("button", name="Decline").click()
    expect(page.locator(".state-ended")).to_be_visible(timeout=90 * SECONDS)
    assert poor.asked == ["signData"]
    context.close()


def test_signing_in_is_said_in_plain_words_and_the_market_page_asks_why(
    running: Product, browser: Browser
) -> None:
    context = browser.new_context(base_url=running.market)
    page = context.new_page()
    page.goto("/sign-in")
    first = page.locator(".steps li").first.inner_text()
    assert "CIP-8" not in first and "nonce" not in first  # W14: for auditors, further down
    expect(page.get_by_text("such as Eternl, Lace")).to_be_visible()
    for path in ("/offers", "/jobs/new"):  # W13: not in the footer alone
        page.goto(path)
        assert page.locator("main a[href='/explain']").count() >= 1
    page.goto("/nothing-here")
    expect(page.locator("main")).to_contain_text("There is no such page")  # W15
    context.close()
