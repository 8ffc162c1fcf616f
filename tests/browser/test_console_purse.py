"""A browser's payer as every other: its signed open is handed over, a quote says the chain's fees, and
its purse shows in one glance what is free, what is locked and how it comes home.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import httpx
import pytest
from playwright.sync_api import Page, Request, expect

from marketplace.chain.actions.handed_open import INPUT_DEPTH
from marketplace.chain.encoding import txbytes
from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product, product, until
from tests.browser.support.rental import ask, finish_channel, lovelace, pay, sign_in
from tests.browser.support.wallet import Wallet
from tests.requires import need_devnet, need_docker

pytestmark = [pytest.mark.browser, pytest.mark.prove]


BLOCK_MS = 8000  # long enough that an open is handed over before one holds it
TILES = """() => {
  const all = (which) => [...document.querySelectorAll(`#purse-body .tiles ${which}`)];
  return [all("dt").map((el) => el.innerText), all(".ada").map((el) => el.title)];
}"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A product of its own, whose blocks take their time, and whose market has a router."""
    need_devnet()
    need_docker()
    with product(tmp_path_factory.mktemp("slow"), block_ms=BLOCK_MS, routes=True) as made:
        yield made


def height(running: Product) -> int:
    """Of the chain."""
    answer = httpx.get(f"{running.chain}/blocks/latest", timeout=30, trust_env=False)
    return int(answer.raise_for_status().json()["height"])


@contextmanager
def no_pause(running: Product) -> Iterator[None]:
    """Meanwhile a block comes each half second: nothing that is asked here waits for a slow one."""
    over = Event()

    def mint() -> None:
        control = running.chain.removesuffix("/api/v0") + "/devnet/blocks"
        while not over.wait(0.5):
            httpx.post(control, json={"count": 1}, timeout=30, trust_env=False).raise_for_status()

    minter = Thread(target=mint)
    minter.start()
    try:
        yield
    finally:
        over.set()
        minter.join()


def routed(running: Product) -> bool:
    """Whether the market's router carries something."""
    answer = httpx.get(f"{running.market}/v1/router", timeout=30, trust_env=False)
    return answer.status_code == 200 and answer.json()["free"] > 0


def taken(running: Product, tx: str) -> bool:
    """Whether the adapter judged the handed transaction and serves on it."""
    logs = (running.home / "logs").glob("adapter*.log")
    return any(
        "open_taken" in line and tx in line
        for log in logs
        for line in log.read_text(errors="replace").splitlines()
    )


def tiles(page: Page) -> dict[str, int]:
    """The glance, by name, in lovelace."""
    names, titles = page.evaluate(TILES)  # at one moment: the glance is drawn anew now and then
    return dict(zip(names, [lovelace(one) for one in titles], strict=True))


def fits(page: Page, width: int) -> bool:
    page.set_viewport_size({"width": width, "height": 900})
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_browser_hands_its_open_over_and_shows_where_its_money_is(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page, posted = console.page, list[Request]()
    page.on("request", lambda one: posted.append(one) if one.url.endswith("/sign") else None)
    with no_pause(running):
        until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
        funded = height(running)
        sign_in(console)
        until(lambda: routed(running), "the router's hop to the provider")
        page.goto("/channels")
        expect(page.locator("#purse-body .hint")).to_contain_text("Nothing is locked")
        assert tiles(page)["Free in the wallet"] == 100_000_000
        until(lambda: height(running) > funded + INPUT_DEPTH, "money that no fork takes back")
    ask(console, running.image)
    quoted = page.locator("#pay .bill")
    expect(quoted).to_contain_text("The provider pays it", timeout=120 * SECONDS)
    for said in ("Starts", "at once", "You pay the network", "The smallest job that makes sense"):
        expect(quoted).to_contain_text(said)
    expect(quoted).to_contain_text("Or over the market's router")
    expect(quoted).to_contain_text("0.5 % of the price")
    assert both_themes(page) == []
    assert fits(page, 390)
    page.set_viewport_size({"width": 1280, "height": 900})
    now = height(running)
    until(lambda: height(running) > now, "a block, so that the next one is far")
    pay(console)

    (sent,) = posted
    told = sent.post_data_json
    assert told is not None
    raw = bytes.fromhex(told["open_tx"])
    assert txbytes.split(raw).tx_id.hex() == told["channel_tx"]
    assert [vk for vk, _ in txbytes.key_witnesses(txbytes.split(raw).witnesses)] == [
        wallet.payment.verify_key
    ]
    until(lambda: taken(running, told["channel_tx"]), "the adapter's yes to the handed open")

    with no_pause(running):
        until(lambda: wallet.lovelace() < 100_000_000, "the open's block")
        page.goto("/channels")
        expect(page.locator("#purse-body .bill")).to_contain_text("a job runs on it")
        shown = tiles(page)
        free, fee = wallet.lovelace(), fee_of(running, told["channel_tx"])
        assert shown["Free in the wallet"] == free
        assert shown["In channels"] == 100_000_000 - free - fee  # the ledger's, to the lovelace
        assert shown["Comes home"] == shown["In channels"] - shown["Of it owed"]
        assert shown["Yours in all"] == free + shown["Comes home"]
        assert both_themes(page) == []
        assert fits(page, 390)
        page.set_viewport_size({"width": 1280, "height": 900})

        finish_channel(page)
        expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
        expect(page.locator("#purse-body .hint")).to_contain_text("Nothing is locked")
        until(
            lambda: tiles(page)["Free in the wallet"] > 98_000_000, "what came home, in the glance"
        )
    unseen = [one for one in console.said if "/addresses/" not in one]
    assert unseen == []  # a chain's face answers 404 for an address that never held anything


def fee_of(running: Product, tx: str) -> int:
    """What the ledger took for *tx*, from its bytes."""
    answer = httpx.get(f"{running.chain}/txs/{tx}/cbor", timeout=30, trust_env=False)
    return int(txbytes.body_of(bytes.fromhex(answer.raise_for_status().json()["cbor"]))[2])
