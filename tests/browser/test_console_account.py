"""API keys and webhooks by the console: shown once, revoked, rotated, deleted; by keyboard too."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, sign_in
from tests.browser.support.wallet import Wallet

pytestmark = pytest.mark.browser


def may(running: Product, secret: str, path: str = "/v1/me") -> httpx.Response:
    """What the API says to the key."""
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx.get(running.market + path, headers=headers, timeout=30, trust_env=False)


def test_a_key_is_made_shown_once_and_revoked(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    sign_in(console, to="/account/keys")
    expect(page.get_by_text("No key yet")).to_be_visible()
    # A form that is not filled in says what is missing, and goes there.
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#wrong")).to_contain_text("a key has a name")
    expect(page.get_by_label("Name")).to_be_focused()

    # By keyboard alone.
    page.keyboard.type("nightly")
    page.get_by_label("make keys").focus()
    page.keyboard.press("Space")
    page.get_by_label("Budget").fill("2.5")
    page.get_by_label("Ends after").select_option("7")
    page.keyboard.press("Enter")  # in the budget's field, where the hands are
    expect(page.locator("#once")).to_be_focused()
    secret = page.locator("#secret").inner_text()
    row = page.locator("tr", has_text="nightly")
    expect(row).to_contain_text("jobs, keys, read")
    expect(row).to_contain_text("₳2.50")
    found = both_themes(page)

    known = may(running, secret).json()
    assert known["account"] == wallet.payment.key_hash.hex()
    assert known["verbs"] == ["jobs", "keys", "read"]
    assert known["key"]["budget"] == 2_500_000
    week = known["key"]["expires_at_ms"] - known["key"]["created_at_ms"]
    assert abs(week - 7 * 86_400_000) < 3_600_000
    assert may(running, secret, "/v1/webhooks").status_code == 403

    page.reload()
    expect(page.locator("#once")).to_be_hidden()  # it was shown once
    assert secret not in page.content()
    revoke = page.get_by_role("button", name="Revoke")
    revoke.click()
    expect(page.get_by_role("button", name="Revoke it?")).to_be_visible()
    assert may(running, secret).status_code == 200  # it was only asked for
    page.get_by_role("button", name="Revoke it?").click()
    expect(page.locator(".badge", has_text="revoked")).to_be_visible()
    assert may(running, secret).status_code == 401
    assert found + both_themes(page) == []
    assert console.said == []


def test_a_webhook_is_made_rotated_waited_for_and_deleted(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    sign_in(console, to="/account/webhooks")
    page.get_by_label("URL").fill(
        "http://10.0.0.1/hook"
    )  # this machine is called on a devnet, its neighbours never
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("#wrong")).to_contain_text("https")

    page.get_by_label("URL").fill("https://hook.invalid/tally")  # a name that nobody has
    page.get_by_label("quoted", exact=True).check()
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("#once")).to_be_focused()
    expect(page.locator("#wrong")).to_be_hidden()
    first = page.locator("#secret").inner_text()
    assert first.startswith("whsec_")
    card = page.locator("article", has_text="hook.invalid")
    expect(card).to_contain_text("quoted")
    page.get_by_role("button", name="Rotate secret").click()
    page.get_by_role("button", name="Rotate it?").click()
    expect(page.locator("#secret")).not_to_have_text(first)
    assert page.locator("#secret").inner_text().startswith("whsec_")
    found = both_themes(page)

    # What cannot be delivered is shown with its tries.
    ask(console, running.image, name="hooked")
    page.get_by_role("button", name="Decline").click()
    expect(page.locator(".state-ended")).to_be_visible()
    page.goto("/account/webhooks")
    waiting = page.get_by_role("region", name="Deliveries that wait")
    expect(waiting).to_contain_text("quoted", timeout=120 * SECONDS)
    expect(card).to_contain_text("failed", timeout=120 * SECONDS)
    found += both_themes(page)

    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it?").click()
    expect(page.get_by_text("No webhook yet")).to_be_visible()
    assert found == []
    refused = [said for said in console.said if "/v1/webhooks" in said]
    assert console.said == refused and len(refused) == 1  # the http URL's, as the browser tells it


def test_the_account_page_says_who_and_signs_out(
    running: Product, console: Console, wallet: Wallet, browser: Browser
) -> None:
    page = console.page
    sign_in(console, to="/account")
    expect(page.locator("main")).to_contain_text(wallet.payment.key_hash.hex())
    expect(page.locator("#vault")).to_contain_text("Channels kept for later jobs")
    assert both_themes(page) == []
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    page.goto("/account/keys")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    until(lambda: page.evaluate("localStorage.getItem('tally-token')") is None, "no token is kept")
    assert console.said == []
