"""A job outlives its tab: rent, close the tab, come back to a completed job and a bill (W5)."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, sign_in
from tests.browser.support.wallet import Wallet

pytestmark = pytest.mark.browser
SHORT = "python -c \"import time\nfor i in range(25): print('step', i, flush=True); time.sleep(1)\""


def test_a_closed_tab_ends_no_job_that_was_signed_ahead_for(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    sign_in(console)
    ask(console, running.image, command=SHORT, budget="0.06")
    go = page.get_by_role("button", name="Sign and start")
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    ahead = page.get_by_label("Let it run on when I close this page")
    expect(ahead).not_to_be_checked()
    ahead.check()
    # The exact risk is said before anything is signed.
    expect(page.locator("#pay")).to_contain_text("an allowance of all ₳0.06")
    assert both_themes(page) == []
    go.click()
    expect(page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)
    expect(page.locator("#away-all")).to_contain_text("may be closed", timeout=120 * SECONDS)
    job = page.url.rsplit("/", 1)[1]
    page.close()

    # No page of this market is open while it runs to its end.
    headers = {
        "Cookie": "; ".join(f"{c.get('name')}={c.get('value')}" for c in console.context.cookies())
    }

    def shown() -> str:
        answer = console.context.request.get(f"/jobs/{job}", headers=headers)
        return answer.text()

    until(lambda: "state-ended" in shown() or "state-ending" in shown(), "the end", 120)
    back = console.context.new_page()
    back.goto(f"/jobs/{job}")
    expect(back.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    expect(back.locator("#why")).to_have_text("It ran to its end.")
    expect(back.locator("#log")).to_contain_text("step 24")
    back.goto(f"/jobs/{job}/invoice")
    bill = back.locator("#bill")
    expect(bill).to_contain_text("Compute", timeout=180 * SECONDS)
    expect(bill).to_contain_text("signed ahead and not delivered")
    assert back.locator("#verdict .problem").count() == 0
    assert wallet.asked == ["signData", "signTx"]
