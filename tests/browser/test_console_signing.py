"""A market that lies: whatever it hands over, the wallet is not asked, and the page says what was
wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import cbor2
import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from marketplace.chain.encoding.address import channel_address, key_address
from marketplace.chain.encoding.txbytes import split
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, pay, sign_in
from tests.browser.support.wallet import Wallet
from tests.unit.support.bytes import bombs
from tests.unit.support.judged import GOLDEN

pytestmark = pytest.mark.browser
THIEF = key_address(Signer(b"t" * 32).key_hash, None, False)
Change = Callable[[dict[int, Any]], Any]

JUDGE = """
async ({wanted, cases}) => {
  const {judge} = await import("/assets/chain/judge.js");
  const {fromHex} = await import("/assets/crypto/bytes.js");
  const known = {};
  for (const [step, w] of Object.entries(wanted)) {
    const consts = Object.fromEntries(Object.entries(w.consts).map(([k, v]) => [k, typeof v === "string" ? fromHex(v) : v]));
    const at = w.channel && {...w.channel, address: fromHex(w.channel.address), lovelace: BigInt(w.channel.lovelace), claimed: BigInt(w.channel.claimed)};
    const utxos = new Map(Object.entries(w.utxos).map(([ref, n]) => [ref, {lovelace: BigInt(n)}]));
    known[step] = {...w, consts, utxos, own: w.own.map(fromHex), least: BigInt(w.least), most: BigInt(w.most), channel: at, references: new Map(Object.entries(w.references))};
  }
  return cases.map((one) => {
    const {checks} = judge(fromHex(one.tx), known[one.wanted]);
    return [checks.filter(({ok}) => !ok).map(({code}) => code), checks.every(({ok, wrong}) => ok === !wrong)];
  });
}
"""


def test_the_console_judges_as_everybody_does(running: Product, browser: Browser) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    golden = json.loads(GOLDEN.read_text())
    answers = page.evaluate(JUDGE, golden)
    for case, (codes, said) in zip(golden["cases"], answers, strict=True):
        assert codes == case["wrong"] and said, case["name"]
    assert len(answers) > 150
    page.context.close()


# ---- what a market may lie about ---------------------------------------------------------------


class Liar:
    """Between the page and the market: answers of *path* as *lie* changes them."""

    def __init__(self) -> None:
        self.lie: Callable[[dict[str, Any]], Any] = lambda answer: None

    def __call__(self, route: Route) -> None:
        if route.request.method == "OPTIONS":
            route.continue_()
            return
        answer = route.fetch()
        if not answer.ok:
            route.fulfill(response=answer)
            return
        said = answer.json()
        self.lie(said)
        route.fulfill(response=answer, json=said)


def rebuilt(change: Change) -> Callable[[dict[str, Any]], Any]:
    """The transaction with another body."""

    def lie(answer: dict[str, Any]) -> None:
        parts = split(bytes.fromhex(answer["cbor"]))
        body = cbor2.loads(parts.body)
        body[1] = [dict(o) if isinstance(o, dict) else dict(enumerate(o)) for o in body[1]]
        change(body)
        raw = b"\x84" + cbor2.dumps(body) + parts.witnesses + parts.rest
        answer["cbor"], answer["tx"] = raw.hex(), split(raw).tx_id.hex()

    return lie


def put(field: int, value: Any) -> Change:
    return lambda body: body.__setitem__(field, value)


def out(number: int, field: int, value: Any) -> Change:
    return lambda body: body[1][number].__setitem__(field, value)


def moved(number: int, more: int) -> Change:
    def change(body: dict[int, Any]) -> None:
        body[1][number][1] += more
        body[1][1 - number][1] -= more

    return change


def twisted(body: dict[int, Any]) -> None:
    """Another provider's payout in the channel's rules."""
    stage = cbor2.loads(body[1][0][2][1].value)
    stage.value[0][2] = b"\x01" * 28
    body[1][0][2] = [1, cbor2.CBORTag(24, cbor2.dumps(stage))]


def lies_of(wallet: Wallet) -> dict[str, tuple[Change, str]]:
    """Name → (the change, words of what the page says)."""
    stake = wallet.stake.key_hash
    evil = channel_address(b"\xee" * 28, Credential(stake), False)
    return {
        "their own script": (out(0, 0, evil), "not a channel of yours"),
        "their own key": (out(0, 0, THIEF), "not a channel of yours"),
        "more into the channel": (moved(0, 5_000_000), "would go into the channel"),
        "other rules": (twisted, "of the terms"),
        "no rules": (lambda body: body[1][0].pop(2), "no rules"),
        "a certificate": (put(4, [[2, [0, stake], b"\x55" * 28]]), "a certificate"),
        "a mint": (put(9, {b"\x01" * 28: {b"x": 1}}), "a mint"),
        "a vote": (put(19, {}), "a vote"),
        "a proposal": (put(20, []), "a proposal"),
        "a donation": (put(22, 5_000_000), "a donation"),
        "the change": (out(1, 0, THIEF), "to a stranger"),
        "less change": (
            lambda body: body[1][1].__setitem__(1, body[1][1][1] - 1),
            "would leave your wallet",
        ),
        "a dear fee": (
            lambda body: (
                body.__setitem__(2, 9_000_000),
                body[1][1].__setitem__(1, body[1][1][1] - 9_000_000),
            ),
            "the fee would be",
        ),
        "mainnet": (put(15, 1), "another network"),
        "a stranger's input": (
            lambda body: body.__setitem__(0, [*_rows(body[0]), [b"\x09" * 32, 0]]),
            "neither yours nor this channel",
        ),
        "never void": (put(3, 2**40), "long after today"),
    }


def _rows(value: Any) -> list[Any]:
    return list(value.value if isinstance(value, cbor2.CBORTag) else value)


def pledged(wallet: Wallet) -> Change:
    """All that the wallet has as collateral, and no return of it."""
    mine = [[bytes.fromhex(u["tx_hash"]), int(u["output_index"])] for u in wallet.unspent()]

    def change(body: dict[int, Any]) -> None:
        body[13] = mine
        body.pop(16, None)
        body.pop(17, None)

    return change


STEP_LIES: dict[str, tuple[Change, str]] = {
    "collateral back to the thief": (
        lambda body: (body.__setitem__(16, {0: THIEF, 1: 3_000_000}), body.__setitem__(17, 1)),
        "collateral would go to a stranger",
    ),
    "another signer": (
        lambda body: body.__setitem__(14, [*_rows(body[14]), b"\x0a" * 28]),
        "another signer",
    ),
    "rewards of the stake": (
        lambda body: body.__setitem__(5, {b"\xe0" + b"\x07" * 28: 0}),
        "rewards of another account",
    ),
    "a script of theirs": (put(18, [[b"\x0b" * 32, 0]]), "not the channel's script"),
}


ALSO = {
    "Top up": ("their own key", "more into the channel", "other rules", "a certificate", "the change",
               "less change", "mainnet", "a stranger's input"),
    "Close without the provider": ("their own key", "other rules", "a certificate"),
}  # fmt: skip


def test_no_channel_is_opened_for_a_lying_market(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page, liar = console.page, Liar()
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    page.route("**/v1/channels", liar)
    # Hashes that the market tells are nobody's concern: the page has its own.
    hashes = {"stub_hash": "ee" * 28, "settle_hash": "ee" * 28}
    network = Liar()
    network.lie = lambda answer: answer.update(hashes)
    page.route("**/v1/network", network)
    sign_in(console)
    ask(console, running.image)
    expect(page.get_by_role("button", name="Sign and start")).to_be_enabled(timeout=90 * SECONDS)
    page.get_by_label("Keep the channel open").check()
    aside = page.get_by_label("Put aside for later jobs")
    for turn, (name, (change, words)) in enumerate(lies_of(wallet).items()):
        liar.lie = rebuilt(change)
        page.evaluate("document.getElementById('not-as-agreed')?.remove()")
        aside.fill(str(1 + turn % 2))
        said = page.locator("#not-as-agreed")
        expect(said, name).to_contain_text(words, timeout=90 * SECONDS)
        expect(page.get_by_role("button", name="Sign and start"), name).to_be_disabled()
    liar.lie = lambda answer: answer.update(cbor=answer["cbor"][:-2] + "a0")
    aside.fill("2.5")
    expect(page.locator("#not-as-agreed")).to_contain_text("plain, unsigned transaction")
    assert wallet.asked == ["signData"]  # the sign-in; no transaction, whatever was told
    liar.lie = lambda answer: None
    aside.fill("0")
    expect(page.locator("#not-as-agreed")).to_be_hidden()
    expect(page.get_by_role("button", name="Sign and start")).to_be_enabled(timeout=90 * SECONDS)


QUOTED = """
async (job) => {
  const {get, token} = await import("/assets/net/api.js");
  return [`/v1/leases/${(await get(`/v1/jobs/${job}`)).quote.lease}/decline`, token()];
}
"""
CLICKED = """
async ([path]) => {
  const {post} = await import("/assets/net/api.js");
  await post(path);
  document.getElementById("pay-now").click();
}
"""


def test_no_money_is_sent_for_a_quote_that_is_over(
    running: Product, console: Console, wallet: Wallet
) -> None:
    """Over before the click, whatever the page has heard of it; and over while the wallet's window
    is open.
    """
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    sign_in(console)
    go = page.get_by_role("button", name="Sign and start")
    for late in (False, True):
        ask(console, running.image)
        expect(go).to_be_enabled(timeout=90 * SECONDS)
        path, token = page.evaluate(QUOTED, page.url.rsplit("/", 1)[1])
        if late:
            wallet.before_signing = partial(
                httpx.post, running.market + path, timeout=30, trust_env=False,
                headers={"Authorization": f"Bearer {token}"},
            )  # fmt: skip
            go.click()
        else:
            page.evaluate(CLICKED, [path])
        expect(page.locator(".state-ended")).to_be_visible(timeout=90 * SECONDS)
        expect(go).to_be_hidden(timeout=90 * SECONDS)
        expect(page.locator("#wrong")).to_contain_text(
            "This quote is over: nothing was sent", timeout=90 * SECONDS
        )
        assert wallet.asked == ["signData", *["signTx"] * late]
    page.goto("/channels")
    expect(page.locator("main")).to_contain_text("No channel yet", timeout=90 * SECONDS)
    assert wallet.lovelace() == 100_000_000


def instead(raw: bytes) -> Callable[[dict[str, Any]], Any]:
    """*raw* for the transaction."""
    return lambda answer: answer.update(cbor=raw.hex())


def test_no_bytes_of_a_market_stop_the_page(
    running: Product, console: Console, wallet: Wallet
) -> None:
    """Each known bomb where a transaction's body should be: refused, and the page goes on at
    once.
    """
    page, liar = console.page, Liar()
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    page.route("**/v1/channels", liar)
    sign_in(console)
    ask(console, running.image)
    go, said = page.get_by_role("button", name="Sign and start"), page.locator("#not-as-agreed")
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    page.get_by_label("Keep the channel open").check()
    aside = page.get_by_label("Put aside for later jobs")
    for turn, (name, bomb) in enumerate(bombs(100_000).items()):
        liar.lie = instead(b"\x84" + bomb + b"\xa0\xf5\xf6")
        page.evaluate("document.getElementById('not-as-agreed')?.remove()")
        aside.fill(str(1 + turn % 2))
        expect(said, name).to_contain_text("plain, unsigned transaction", timeout=90 * SECONDS)
        expect(go, name).to_be_disabled()
    page.unroute("**/v1/channels", liar)
    aside.fill("0")
    expect(said).to_be_hidden()
    expect(go).to_be_enabled(timeout=90 * SECONDS)
    assert wallet.asked == ["signData"] and console.said == []


@pytest.mark.prove
def test_no_step_is_signed_for_a_lying_market(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page, liar, view = console.page, Liar(), Liar()
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    sign_in(console)
    ask(console, running.image)
    pay(console)
    asked = ["signData", "signTx"]
    assert wallet.asked == asked
    page.route("**/v1/channels/*/topup", liar)
    page.route("**/v1/channels/*/close", liar)
    page.goto("/channels")
    expect(page.locator("#door")).to_contain_text("which this market named")
    for button in ("Top up", "Close without the provider"):
        all_of_it = (pledged(wallet), "could be forfeited as collateral")
        some = {name: lie for name, lie in lies_of(wallet).items() if name in ALSO[button]}
        for name, (change, words) in {**some, **STEP_LIES, "collateral": all_of_it}.items():
            liar.lie = rebuilt(change)
            page.evaluate("document.getElementById('wrong').textContent = ''")
            page.get_by_role("button", name=button).click()
            expect(page.locator("#wrong"), f"{button}: {name}").to_contain_text(
                words, timeout=90 * SECONDS
            )
            assert wallet.asked == asked, (button, name)
    # A market that shows the chain itself as it is not: another opening transaction, another door.
    liar.lie = lambda answer: None
    view.lie = lambda answer: answer.update(chain_url="")
    page.route("**/v1/network", view)
    page.get_by_role("button", name="Top up").click()
    expect(page.locator("#wrong")).to_contain_text("looked up on no chain", timeout=90 * SECONDS)
    assert wallet.asked == asked
    page.unroute("**/v1/network", view)
    # And with the truth it is signed.
    page.get_by_role("button", name="Top up").click()
    expect(page.locator("#said")).to_contain_text("Added ₳5.00", timeout=120 * SECONDS)
    assert wallet.asked == [*asked, "signTx"]


def test_no_sign_in_of_another_market_is_signed(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page, liar = console.page, Liar()
    page.route("**/v1/auth/challenge", liar)
    here = running.market.partition("://")[2]

    def as_told(old: str, new: str) -> Callable[[dict[str, Any]], Any]:
        def lie(answer: dict[str, Any]) -> None:
            text = bytes.fromhex(answer["message"]).decode().replace(old, new)
            answer["message"], answer["text"] = text.encode().hex(), text

        return lie

    account = wallet.payment.key_hash.hex()
    lies = (
        (as_told(here, "other.example"), "not for"),
        (as_told(account, "ab" * 28), "another account"),
        (as_told("Network: ", "Network: 7"), "for network"),
        (as_told("This costs nothing and moves no money.", "Pay."), "is not a sign-in"),
        (lambda answer: answer.update(message=b"I owe you".hex()), "is not a sign-in"),
    )
    page.goto("/sign-in")
    for lie, words in lies:
        liar.lie = lie
        page.get_by_role("button", name="Test wallet").click()
        expect(page.locator("#wrong")).to_contain_text(words, timeout=90 * SECONDS)
        assert wallet.asked == []
    liar.lie = lambda answer: None
    page.get_by_role("button", name="Test wallet").click()
    expect(page.locator(".account")).to_be_visible(timeout=90 * SECONDS)
    assert wallet.asked == ["signData"]
