"""A provider and its market lay a copy of the channel and lead the console to it: no lovelace goes
there.

A voucher names no output. A copy of a channel's datum, claimed from in one transaction with the
channel and written so that its output comes first, is the channel to whoever looks for the first
output of the key; a top-up of it would be taken with the vouchers that were signed for the channel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Route, expect

from marketplace.chain.actions.external_wallet import ForeignWallet, unsigned_top_up
from marketplace.chain.actions.session import Desk, pay, settle_planned
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.build.wallet import Wallet as Keys
from marketplace.chain.channels.finder import ChannelFinder, ChannelView
from marketplace.chain.encoding.address import from_text
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.domain.keys import Signer
from marketplace.domain.money.voucher import Voucher
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, sign_in
from tests.browser.support.rental import pay as rent
from tests.browser.support.wallet import Wallet
from tests.ground import pay_before

pytestmark = [pytest.mark.browser, pytest.mark.prove]
ADA = 1_000_000
KEY = Signer(b"c" * 32)
THIEF = Keys(KEY, False, KEY.key_hash)
T = TypeVar("T")

BOOKS = """
async () => (await (await import("/assets/money/vault.js")).all()).map(({stopped, endSent}) => ({stopped, endSent}))
"""
READ = """
async (path) => {
  const headers = {Authorization: `Bearer ${localStorage.getItem("tally-token")}`};
  return (await fetch(path, {headers})).json();
}
"""


@dataclass
class Thief:
    """Whoever is paid, and the market: they know the chain, the vouchers and the payout's
    address.
    """

    portal: BlockingPortal
    chain: ChainReader
    payout: bytes

    def _do(self, work: Callable[..., Awaitable[T]], *given: object) -> T:
        return self.portal.call(work, *given)

    def view(self, session_vk: bytes, origin: OutRef) -> ChannelView:
        """The channel as everybody else follows it."""

        async def read() -> ChannelView:
            found = await ChannelFinder(self.chain, scripts_for("")).find(session_vk, origin)
            assert isinstance(found, ChannelView)
            return found

        return self._do(read)

    def lay(self, view: ChannelView, payer: Wallet) -> Utxo:
        """A copy of the channel, paid for by *payer*; once a block holds it."""

        async def work() -> Utxo:
            made = await pay(self._desk(payer), [_copy_of(view)])
            return next(u for u in made.made if u.datum is not None)

        return self._in_a_block(work)

    def copy_before(self, view: ChannelView) -> Utxo:
        """A copy that lies before the channel in ledger order; the thief pays."""

        async def work() -> Utxo:
            desk = self._desk(Wallet("", KEY, KEY))
            return await pay_before(desk, _copy_of(view), view.utxo.ref)

        return self._in_a_block(work)

    def _desk(self, payer: Wallet) -> Desk:
        return Desk(self.chain, Keys(payer.payment, False, payer.stake.key_hash))

    def _in_a_block(self, work: Callable[[], Awaitable[Utxo]]) -> Utxo:
        made = self._do(work)
        self.wait(made.ref)
        return made

    def claim_both(self, view: ChannelView, copy: Utxo, voucher: Voucher) -> Utxo:
        """One voucher from copy and channel, in one transaction; the copy's output, which comes
        first.
        """

        async def take() -> Utxo:
            desk = Desk(self.chain, THIEF)
            snapshot, funds, fresh = await desk.look()
            step = plans.claim_step(voucher)
            moves = (Move(copy, step), Move(view.utxo, step))
            batch = Batch(moves, {view.consts.payout: self.payout})
            done = await settle_planned(desk, plans.settle(snapshot, funds, batch), fresh, "both")
            return next(u for u in done.sent.made if u.datum is not None)

        return self._in_a_block(take)

    def top_up_of(self, view: ChannelView, utxo: Utxo, wallet: Wallet, amount: int) -> str:
        """What the market hands over: a top-up of *utxo* as if it were the channel."""

        async def build() -> str:
            mine = ForeignWallet(wallet.address, tuple(await self.chain.utxos(wallet.address)))
            made = await unsigned_top_up(self.chain, mine, replace(view, utxo=utxo), amount)
            return made.bytes.hex()

        return self._do(build)

    def wait(self, ref: OutRef) -> None:
        """Until a block holds it."""
        until(lambda: self._do(self.chain.moves, ref.tx_id) is not None, "a block")


def _copy_of(view: ChannelView) -> Out:
    return Out(view.utxo.address, 14 * ADA, datum=stage_bytes(view.stage))


@dataclass
class Rented:
    """A job that runs, and its channel."""

    thief: Thief
    session_vk: bytes
    origin: OutRef
    voucher: Voucher

    def view(self) -> ChannelView:
        """The channel as everybody else follows it."""
        return self.thief.view(self.session_vk, self.origin)


@contextmanager
def renting(running: Product, console: Console, wallet: Wallet) -> Generator[Rented, None, None]:
    """From the sign-in to the first voucher; the window then shows the channels."""
    page = console.page
    until(lambda: wallet.lovelace() == 100 * ADA, "the faucet's money")
    sign_in(console)
    ask(console, running.image)
    rent(console)

    def channel() -> dict[str, Any]:
        return page.evaluate(READ, "/v1/channels")["items"][0]

    until(lambda: bool(channel()["voucher"]), "a voucher")
    made = channel()
    said, session_vk = made["voucher"], bytes.fromhex(made["session_vk"])
    voucher = Voucher(session_vk, int(said["cumulative"]), bytes.fromhex(said["signature"]))
    payout = from_text(page.evaluate(READ, "/v1/offers")["items"][0]["payout_address"])
    page.goto("/channels")
    with start_blocking_portal() as portal:
        thief = Thief(portal, portal.call(connect, running.chain), payout)
        yield Rented(thief, session_vk, OutRef(bytes.fromhex(made["open_tx"]), 0), voucher)


def test_no_top_up_goes_to_a_copy_that_was_claimed_from_with_the_channel(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    Wallet(running.chain, KEY, KEY).fund(200 * ADA)
    with renting(running, console, wallet) as rented:
        thief, before = rented.thief, rented.view()
        copy = thief.claim_both(before, thief.copy_before(before), rented.voucher)
        real = rented.view()
        assert real.utxo.ref.tx_id == copy.ref.tx_id and real.utxo.ref.index > copy.ref.index

        def lie(route: Route) -> None:
            answer = route.fetch()
            told: dict[str, Any] = answer.json()
            told["cbor"] = thief.top_up_of(real, copy, wallet, 5 * ADA)
            route.fulfill(response=answer, json=told)

        asked = list(wallet.asked)
        page.route("**/v1/channels/*/topup", lie)
        page.get_by_label("Add (₳)").fill("5")
        page.get_by_role("button", name="Top up").click()
        wrong = page.locator("#wrong")
        expect(wrong).to_contain_text("does not spend this channel", timeout=120 * SECONDS)
        assert wallet.asked == asked
        page.unroute("**/v1/channels/*/topup", lie)
        page.get_by_role("button", name="Top up").click()
        expect(page.locator("#said")).to_contain_text("Added ₳5.00", timeout=120 * SECONDS)
        assert wallet.asked == [*asked, "signTx"]
        grown = real.amount + 5 * ADA
        until(lambda: rented.view().amount == grown, "five ADA in the channel")
        assert rented.view().claimed == real.claimed


def test_a_second_output_that_the_wallet_paid_for_ends_the_channel_and_nothing_more_is_signed(
    running: Product, console: Console, wallet: Wallet
) -> None:
    page = console.page
    with renting(running, console, wallet) as rented:
        second = rented.thief.lay(rented.view(), wallet)
        asked = list(wallet.asked)
        page.get_by_label("Add (₳)").fill("5")
        page.get_by_role("button", name="Top up").click()
        wrong = page.locator("#wrong")
        expect(wrong).to_contain_text("two outputs of one session key", timeout=120 * SECONDS)
        expect(wrong).to_contain_text(str(second.ref))
        assert wallet.asked == asked
        books = page.evaluate(BOOKS)
        assert [(one["stopped"], one["endSent"]) for one in books] == [("CHANNEL_TWICE", True)]
        # The provider settles what was signed by then; the second output stays as it is.
        expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
        assert wallet.asked == asked
