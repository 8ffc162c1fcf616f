"""A provider dies under a job that a wallet paid: the page says so, and one click goes on at
another.

Two real adapters; the first is killed by its process id and comes back only after the job has gone
on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from adapter.host.keys import load_keys
from marketplace.console.rendering import about, exact
from tests.browser.support.product import SECONDS, Console, Product, product, until
from tests.browser.support.rental import ask, end_job, pay, sign_in
from tests.browser.support.wallet import Wallet
from tests.requires import need_devnet, need_docker

pytestmark = [pytest.mark.browser, pytest.mark.prove]
PROVIDERS = ("adapter", "adapter2")
SHORT = (
    "python -c \"import time\nfor i in range({0}): print('step', i, flush=True); time.sleep(0.5)\""
)
BUDGET = 1_000_000
CAPS = """
async (job) => {
  const vault = await import("/assets/money/vault.js");
  const {readTerms} = await import("/assets/money/records.js");
  const leases = (await vault.all()).flatMap((book) => Object.values(book.leases ?? {}));
  return leases.filter((one) => readTerms(one.terms).job === job).map((one) => Number(one.cap));
}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A market of its own with two providers, which a provider may leave for three seconds."""
    need_devnet()
    need_docker()
    folder = tmp_path_factory.mktemp("resume")
    with product(folder, simulate="h100x1", resume_window="3s", adapters=PROVIDERS) as made:
        yield made


@pytest.fixture
def wallet(place: Product) -> Wallet:
    made = Wallet(place.chain)
    made.fund(100_000_000)
    return made


@pytest.fixture
def console(place: Product, browser: Browser, wallet: Wallet) -> Iterator[Console]:
    context = browser.new_context(base_url=place.market, viewport={"width": 1280, "height": 900})
    wallet.install(context)
    yield Console.of(context)
    context.close()


def asked(console: Console, path: str) -> Any:
    """What the API says to this reader."""
    return console.page.evaluate(
        """async (path) => {
          const headers = {Authorization: `Bearer ${localStorage.getItem("tally-token")}`};
          return (await fetch(path, {headers})).json();
        }""",
        path,
    )


def host_of(place: Product, provider: str) -> str:
    """The name of the part that is *provider*."""
    homes = {name: load_keys(Path(place.home) / name / "keys").provider for name in PROVIDERS}
    return next(name for name, key in homes.items() if key == provider)


def test_one_click_goes_on_at_another_provider_with_what_is_left(
    place: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    sign_in(console)
    until(lambda: len(asked(console, "/v1/offers")["items"]) == 2, "two offers")
    ask(console, place.image, SHORT.format(600), "resumes", "1")
    pay(console, keep=False)
    job = page.url.rsplit("/", 1)[1]
    until(lambda: int(page.locator("#ticks").inner_text()) >= 4, "four ticks")
    first = asked(console, f"/v1/jobs/{job}")
    killed = host_of(place, first["provider"])
    place.kill(killed)

    # It is said what happened, what it has cost and what is left.
    lost = page.locator("section", has=page.locator("#lost"))
    expect(lost).to_contain_text("PROVIDER_LOST", timeout=180 * SECONDS)
    expect(lost).to_contain_text("did not come back in time")
    waiting = asked(console, f"/v1/jobs/{job}")
    spent = waiting["spent"]
    assert waiting["needs"] == "session_vk" and 0 < spent < BUDGET
    expect(lost).to_contain_text(about(spent))
    expect(lost).to_contain_text(about(BUDGET - spent))
    assert wallet.asked == ["signData", "signTx"]

    # One click: the quote, checked, and the wallet's one signature over a new channel.
    lost.get_by_role("button", name="Resume on another provider").click()
    expect(page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)
    assert wallet.asked == ["signData", "signTx", "signTx"]
    until(lambda: int(page.locator("#ticks").inner_text()) >= 3, "three ticks at the second")
    second = asked(console, f"/v1/jobs/{job}")
    assert host_of(place, second["provider"]) != killed
    assert second["channel"] != first["channel"] and len(second["leases"]) == 2
    assert second["spent"] > spent, "the parts add up"
    assert spent + second["ceiling"] <= BUDGET, "both together stay within the budget"
    caps = page.evaluate(CAPS, job)
    assert len(caps) == 2 and sum(caps) <= BUDGET, "no receipt of the two gets more"
    place.start(killed)  # it comes back, and claims what it was owed
    end_job(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)

    # One bill with both parts, verified in the browser against both channels on the chain.
    page.get_by_role("link", name="Invoice").click()
    expect(page.locator("#reconciled")).to_contain_text("to the lovelace", timeout=120 * SECONDS)
    assert page.locator("#verdict .checks .ok").count() == 12
    ended = asked(console, f"/v1/jobs/{job}")
    evidence = asked(console, f"/v1/jobs/{job}/invoice")
    assert {row["lease"] for row in evidence["leases"]} == set(ended["leases"])
    assert len(evidence["channels"]) == 2
    bill = page.locator("#bill")
    for lease in ended["leases"]:
        expect(bill).to_contain_text(lease[:6])
    expect(bill).to_contain_text(exact(ended["spent"]).removeprefix("₳"))
    fees = sum(t["fee"] for t in ended["transactions"] if t["kind"] == "open")
    left = 100_000_000 - ended["spent"] - fees
    until(lambda: wallet.lovelace() == left, "both refunds in the wallet")
    assert wallet.asked == ["signData", "signTx", "signTx"], "the wallet signed each open, once"
    assert console.said == [], json.dumps(console.said)
