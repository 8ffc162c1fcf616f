"""Every page: reads without JavaScript, has no accessibility finding, reports no error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.support.axe import both_themes, findings
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, pay, sign_in
from tests.browser.support.wallet import Wallet

pytestmark = pytest.mark.browser
GOLDEN = Path(__file__).parents[1] / "golden" / "invoices.json"
PUBLIC = (
    "/", "/prices", "/offers", "/offers?model=cores", "/offers?vram=500", "/providers", "/explain", "/explain?count=8&rate=3",
    "/sign-in", "/jobs/new", "/nothing-here",
)  # fmt: skip


def test_public_pages_are_accessible_and_quiet(running: Product, console: Console) -> None:
    page = console.page
    offer = page.request.get("/v1/offers").json()["items"][0]
    found: list[str] = []
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in (*PUBLIC, f"/offers/{offer['id']}", f"/providers/{offer['provider']}"):
        page.goto(path)
        found += both_themes(page)
    assert found == []
    # No request leaves the origin, of whatever page.
    assert len(asked) > 20
    own = (running.market, "data:")
    assert [url for url in asked if not url.startswith(own)] == []
    # The page that is not there answers 404, which the browser reports: nothing else may be.
    assert [said for said in console.said if "nothing-here" not in said] == []


def test_pages_read_without_javascript(running: Product, browser: Browser) -> None:
    context = browser.new_context(base_url=running.market, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    expect(page.locator("#devices + .scroll")).to_contain_text("H100")
    expect(page.locator("#devices + .scroll")).to_contain_text("lovelace/s")
    expect(page.locator(".badge.simulated").first).to_be_visible()
    page.goto("/offers?vram=500")
    expect(page.locator("main")).to_contain_text("No offer fits")
    page.goto("/offers")
    page.get_by_role("link", name="H100").first.click()
    expect(page.locator("main")).to_contain_text("Close period")
    page.locator("main a.key").first.click()
    expect(page.get_by_role("heading", name="Why it did not get work")).to_be_visible()
    page.goto("/explain?count=64")
    expect(page.locator("main")).to_contain_text("Nothing matches")
    expect(page.locator(".reasons")).to_contain_text("of 1 host")
    page.goto("/explain?rate=1")  # one change away: the price that would match is said
    expect(page.locator(".relax")).to_contain_text("an hour")
    page.goto("/explain?vram=40")
    expect(page.locator("main")).to_contain_text("It matches")
    page.get_by_role("link", name="Run a job like this").click()
    expect(page.get_by_role("heading", name="New job")).to_be_visible()
    page.goto("/jobs")  # an account's: the way to the sign-in page, which says how without a script
    expect(page.locator("noscript, .notice").first).to_be_attached()
    context.close()


def test_a_second_page_asks_for_no_script_or_style_again(
    running: Product, browser: Browser
) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    page.wait_for_function("document.getElementById('theme').hidden === false")
    page.wait_for_load_state("networkidle")  # all of them are there
    style = page.request.get(page.locator("link[rel=stylesheet]").get_attribute("href") or "")
    assert "immutable" in style.headers["cache-control"]
    for path in ("/assets/style.css", "/assets/v-000000000000/style.css"):
        assert page.request.get(path).headers["cache-control"] == "no-cache"
    sizes = """() => performance.getEntriesByType("resource")
      .filter((r) => r.name.includes("/assets/")).map((r) => [r.name, r.transferSize])"""
    page.goto("/offers")
    page.wait_for_function("document.getElementById('theme').hidden === false")
    assert len(page.evaluate(sizes)) > 3
    assert [name for name, sent in page.evaluate(sizes) if sent > 0] == []
    page.context.close()


def test_pages_allow_no_foreign_and_no_inline_script(running: Product, browser: Browser) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    answer = page.goto("/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "unsafe" not in policy
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.got = 1'}))"
    )
    assert page.evaluate("window.got") is None
    page.context.close()


def test_the_verifier_of_the_browser_answers_the_golden_vectors(
    running: Product, browser: Browser
) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    cases = json.loads(GOLDEN.read_text())
    answers = page.evaluate(
        """async (cases) => {
          const {readEvidence} = await import("/assets/money/evidence.js");
          const {reconcile} = await import("/assets/money/verify.js");
          const answers = [];
          for (const {evidence, ledger} of cases) {
            try {
              const invoice = await reconcile(readEvidence(evidence), ledger);
              answers.push({rule: "", owed: Number(invoice.owed), unsigned: Number(invoice.unsigned), reconciled: invoice.reconciled,
                lines: invoice.lines.map(({lease, owed, ticks, unit_ms}) => ({lease, owed: Number(owed), ticks, unit_ms}))});
            } catch (error) { answers.push({rule: error.rule ?? String(error)}); }
          }
          return answers;
        }""",
        cases,
    )
    for case, answer in zip(cases, answers, strict=True):
        expected = case["expect"]
        assert answer["rule"] == case["rule"], case["name"]
        if case["rule"]:
            continue
        assert {k: answer[k] for k in ("owed", "unsigned", "reconciled")} == {
            k: expected[k] for k in ("owed", "unsigned", "reconciled")
        }
        for mine, line in zip(answer["lines"], expected["lines"], strict=True):
            assert mine == {k: line[k] for k in mine}
    page.context.close()


def test_a_wallet_that_declines_pays_nothing_and_may_think_again(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    sign_in(console)
    ask(console, running.image)
    wallet.declines = True
    go = page.get_by_role("button", name="Sign and start")
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    go.click()
    expect(page.locator("#wrong")).to_be_visible()
    expect(go).to_be_enabled()
    assert wallet.asked == ["signData"]
    assert findings(page) == []
    page.get_by_role("button", name="Decline").click()
    expect(page.locator(".state-ended")).to_be_visible(timeout=90 * SECONDS)
    assert wallet.lovelace() == 100_000_000
    assert console.said == []


CODES = """
async () => {
  const {walletSaid} = await import("/assets/wallet/wallet.js");
  return [
    {code: -3, info: "no"}, {code: -4, info: ""}, {code: 2, info: "user declined"}, {code: -2, info: ""},
    new Error("it broke"),
  ].map(walletSaid);
}
"""


def test_what_a_wallet_does_not_do_is_said_in_words(
    running: Product, browser: Browser, wallet: Wallet
) -> None:
    context = browser.new_context(base_url=running.market)
    console = Console.of(context)
    page = console.page
    page.goto("/sign-in")
    expect(page.get_by_role("heading", name="No Cardano wallet in this browser")).to_be_visible()
    assert both_themes(page) == []
    said = page.evaluate(CODES)
    assert "Allow this site" in said[0] and "another account" in said[1]
    assert said[2] == "The wallet declined. Nothing was signed."
    assert "Unlock it" in said[3] and said[4] == "it broke"

    # One that is locked, and one on another network: what to do is said, and the page goes on.
    wallet.install(context)
    page.add_init_script("window.cardano.test.enable = async () => { throw {code: -3, info: ''}; }")
    page.reload()
    page.get_by_role("button", name="Test wallet").click()
    expect(page.locator("#wrong")).to_contain_text("does not let this site see it")
    page.evaluate("window.cardano.test.enable = async () => ({getNetworkId: async () => 1})")
    page.get_by_role("button", name="Test wallet").click()
    expect(page.locator("#wrong")).to_contain_text("another network")
    assert wallet.asked == [] and console.said == []
    context.close()


def test_a_market_that_does_not_answer_is_said_to_be_away(
    running: Product, browser: Browser
) -> None:
    context = browser.new_context(base_url=running.market)
    page = context.new_page()
    page.goto("/offers")
    looks = "async () => { const {refresh} = await import('/assets/ui/live.js'); await refresh(); }"
    page.evaluate(looks)
    expect(page.locator("#offline")).to_be_hidden()
    context.set_offline(True)
    for _ in range(2):
        page.evaluate(looks)
    expect(page.locator("#offline")).to_contain_text("does not answer")
    expect(page.locator(".offer").first).to_be_visible()  # what was known is still there
    context.set_offline(False)
    page.evaluate(looks)
    expect(page.locator("#offline")).to_be_hidden()
    context.close()


SHOWN = """(said) => {
  const [payer, main] = [document.getElementById("payer"), document.querySelector("main > *")];
  const top = () => Math.round(main.getBoundingClientRect().top);
  const before = top();
  payer.textContent = said;
  payer.hidden = false;
  const line = document.createRange();
  line.selectNodeContents(payer);
  return [before, top(), Math.round(line.getBoundingClientRect().bottom)];
}"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("path", ["/", "/offers", "/jobs/new"])
def test_the_payers_line_moves_nothing_under_a_click(
    running: Product, console: Console, path: str, width: int
) -> None:
    """It comes a moment after the page: a button that it moved would be missed by whoever clicks."""
    page = console.page
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(path)
    before, after, bottom = page.evaluate(SHOWN, "This browser answers the receipts of 12 channels")
    assert before == after
    assert bottom <= before, "it lies over what the page says"
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.prove  # the rental test walks through the same pages
def test_pages_of_an_account_are_accessible_while_a_job_runs(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    sign_in(console)
    ask(console, running.image)
    pay(console)
    job = page.url.rsplit("/", 1)[1]
    until(lambda: int(page.locator("#ticks").inner_text()) >= 2, "two ticks")
    found = both_themes(page)
    for path in ("/jobs", "/channels", f"/jobs/{job}/invoice", "/jobs/new"):
        page.goto(path)
        expect(page.locator("#payer")).to_contain_text(
            "1 channel"
        )  # paying goes on from page to page
        found += both_themes(page)
    assert found == []
    # By keyboard alone: the first stop is the skip link, and the job can be ended.
    page.goto(f"/jobs/{job}")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    stop = page.get_by_role("button", name="End job")
    stop.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="End job for good?")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    assert wallet.asked == ["signData", "signTx"]
    assert console.said == []


def test_a_job_without_an_image_is_asked_for_as_a_plain_process(
    running: Product, console: Console
) -> None:
    """This provider runs containers only: the form says so at once, and what would help."""
    page = console.page
    sign_in(console)
    page.goto("/jobs/new")
    expect(page.get_by_label("Image")).to_be_enabled()
    page.get_by_label("Isolation").select_option("process")
    expect(page.get_by_label("Image")).to_be_disabled()
    estimate = page.locator("#estimate")
    expect(estimate).to_contain_text("isolation container", timeout=90 * SECONDS)
    page.get_by_label("Command").fill("")
    expect(page.locator("#wrong, #estimate").filter(has_text="needs a command")).to_be_visible()
