"""Orders to a cluster's members: durable before anybody has them, and never two under one number."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.client.net.clock import Stamp
from marketplace.client.payer import journal as rows
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.decide import PayerStopped
from marketplace.client.payer.handing_on import HandedOn
from marketplace.client.payer.journal import ChannelFacts, Journal, peek
from marketplace.client.payer.ordered import NothingToOrder
from marketplace.client.payer.payers import Payers
from marketplace.client.payer.shelf import Shelf
from marketplace.disk import DiskFault
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from tests.unit.client.test_ordered import peer
from tests.unit.support.disk import BadDisk, bad_disks
from tests.unit.support.killer import kill_at_random, last_of
from tests.unit.support.payer import CONSUMER, SESSION, Paper, signed_terms, terms

VK = SESSION.verify_key
AGREED, OTHER = terms(), terms("lease_2", job="job_2")
NAME = AGREED.lease
FACTS = ChannelFacts(
    VK, "http://market", 42, "ab" * 32, "", 12_000_000, "cd" * 32, 0, ChannelStage.OPEN, keep_ms=9
)
RUN, MEET, HOLD = Verb.RUN, Verb.MEET, Verb.HOLD


def book(folder: Path) -> None:
    """A channel with a cluster's member and with a lease of no cluster."""
    journal, _ = Journal.hold(folder, VK)
    at = Stamp.now()
    journal.write(
        rows.channel_row(FACTS),
        rows.lease_row(signed_terms(AGREED), AGREED.ceiling, at, member=True),
        rows.lease_row(signed_terms(OTHER), OTHER.ceiling, at),
        rows.clock_row(NAME, "started", at),
    )
    journal.close()


class Sent:
    """What would leave for the market, and what listeners are told."""

    def __init__(self) -> None:
        self.messages: list[wire.Message] = []
        self.told: list[Paid] = []

    async def send(self, message: wire.Message) -> None:
        self.messages.append(message)

    async def tell(self, paid: Paid) -> None:
        self.told.append(paid)

    @property
    def vouchers(self) -> list[int]:
        found = [one for one in self.messages if isinstance(one, wire.VoucherSent)]
        return [one.voucher.cumulative for one in found]


def held_by(folder: Path, files: Any = None) -> tuple[ChannelPayer, Sent]:
    journal, loaded = Journal.hold(folder, VK, **({"files": files} if files else {}))
    sent: Any = Sent()
    return ChannelPayer(journal, loaded, SESSION, sent, sent, sent.tell), sent


def newest(folder: Path) -> ClusterOrder:
    orders = peek(folder, VK).book.leases[NAME].orders
    assert orders is not None and orders.newest is not None
    return orders.newest.verify(NAME, VK)


def test_versions_grow_and_the_same_again_is_the_same(tmp_path: Path) -> None:
    async def tell() -> None:
        book(tmp_path)
        held, _ = held_by(tmp_path)
        first = await held.order(NAME, MEET, (peer(1),))
        assert await held.order(NAME, MEET, (peer(1),)) == first
        assert first.verify(NAME, VK) == ClusterOrder(NAME, 1, MEET, (peer(1),))
        assert newest(tmp_path).version == 1
        assert (await held.order(NAME, RUN, (peer(1),))).order.version == 2
        await held.let_go()
        again, _ = held_by(tmp_path)  # another life goes on above
        assert (await again.order(NAME, RUN, (peer(1),))).order.version == 2
        assert (await again.order(NAME, RUN, (peer(1), peer(2)))).order.version == 3
        assert (await again.order(NAME, MEET, (peer(1),))).order.version == 4
        await again.let_go()
        with pytest.raises(HandedOn):
            await again.order(NAME, HOLD)
        assert newest(tmp_path) == ClusterOrder(NAME, 4, MEET, (peer(1),))

    anyio.run(tell)


def test_two_that_ask_at_once_get_two_numbers(tmp_path: Path) -> None:
    async def tell() -> None:
        book(tmp_path)
        held, _ = held_by(tmp_path)
        got: list[SignedOrder] = []

        async def one(number: int) -> None:
            got.append(await held.order(NAME, RUN, (peer(number),)))

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)
        assert sorted(order.order.version for order in got) == list(range(1, 9))
        await held.let_go()

    anyio.run(tell)


def test_only_living_members_that_are_paid_for_here_are_ordered(tmp_path: Path) -> None:
    async def tell() -> None:
        book(tmp_path)
        nobody: Any = None
        payers = Payers(tmp_path, "http://market", 42, nobody)
        with pytest.raises(NothingToOrder):
            await payers.order(NAME, RUN)  # its channel is not held here
        held = await payers.take(VK, SESSION)
        assert payers.ordered(NAME) is None and held.has_member
        order = await payers.order(NAME, RUN)
        assert payers.ordered(NAME) == order and order.order.version == 1
        for lease in (OTHER.lease, "lease_9"):
            with pytest.raises(NothingToOrder) as caught:
                await payers.order(lease, RUN)
            assert caught.value.code == "NOTHING_TO_ORDER" and caught.value.remedy
        await held.lease_over(NAME)
        assert not held.has_member
        with pytest.raises(NothingToOrder):
            await payers.order(NAME, HOLD)
        await payers.release(VK)

    anyio.run(tell)


def test_a_members_channel_stays_with_whoever_gives_it_orders(tmp_path: Path) -> None:
    """Else another command of the purse took it over, and nobody could hold the member."""

    async def tell() -> None:
        book(tmp_path)
        shelf = Shelf(tmp_path, "http://market", 42)
        assert shelf.kept(VK) and shelf.stays(VK)
        held, _ = held_by(tmp_path)
        await held.lease_over(NAME)
        await held.let_go()
        assert shelf.kept(VK) and not shelf.stays(VK)

    anyio.run(tell)


def test_nothing_is_ordered_to_run_that_is_not_paid_for_any_more(tmp_path: Path) -> None:
    """A receipt that bills before RUN: kept as evidence, told, its lease asked to stop, unpaid."""

    async def tell() -> None:
        book(tmp_path)
        held, sent = held_by(tmp_path)
        await held.receipt(Paper().tick(AGREED, 1000))
        assert held.book.stopped == "RECEIPT_UNORDERED" and sent.vouchers == []
        assert wire.StopAsked(NAME, "RECEIPT_UNORDERED") in sent.messages
        assert [(one.kind, one.code) for one in sent.told] == [("refused", "RECEIPT_UNORDERED")]
        with pytest.raises(PayerStopped):
            await held.order(NAME, RUN)
        assert (await held.order(NAME, HOLD)).order.version == 1  # it may be frozen for all that
        await held.let_go()
        assert peek(tmp_path, VK).book.stopped == "RECEIPT_UNORDERED"
        assert (
            '"code": "RECEIPT_UNORDERED", "receipt"' in (tmp_path / f"{VK.hex()}.jsonl").read_text()
        )

    anyio.run(tell)


def test_what_is_billed_in_a_hold_is_told_and_not_signed(tmp_path: Path) -> None:
    async def tell() -> None:
        book(tmp_path)
        held, sent = held_by(tmp_path)
        paper = Paper()
        await held.order(NAME, RUN)
        await held.receipt(paper.tick(AGREED, 1000))
        await held.order(NAME, HOLD)
        await held.progress(wire.LeaseProgress(NAME, "ORDERED", 0, {"verb": "RUN", "version": 1}))
        assert peek(tmp_path, VK).book.leases[NAME] == held.book.leases[NAME]  # that is an old one
        await held.progress(wire.LeaseProgress(NAME, "ORDERED", 0, {"verb": "HOLD", "version": 2}))
        await held.receipt(paper.tick(AGREED, 60_000))
        most = max(sent.vouchers)
        assert most <= 3 * 2000 and held.book.leases[NAME].last == paper.last
        notes = [(one.code, one.message) for one in sent.told if one.kind == "note"]
        assert [code for code, _ in notes] == ["NOT_SIGNED_ORDER"]
        assert "not ordered to RUN" in notes[0][1]
        before = held.book
        await held.let_go()
        again = peek(tmp_path, VK).book.leases[NAME]
        assert again.orders == before.leases[NAME].orders and again.orders is not None
        assert again.orders.still_ms is not None and again.orders.still_ms <= Stamp.now().mono_ms

    anyio.run(tell)


# ---- a book that lost its end --------------------------------------------------------------------


def test_an_order_that_the_book_lost_is_taken_from_the_market_and_gone_on_above(
    tmp_path: Path,
) -> None:
    async def tell() -> None:
        book(tmp_path)
        held, _ = held_by(tmp_path)
        await held.order(NAME, MEET)
        lost = await held.order(NAME, RUN, (peer(1),))
        await held.let_go()
        path = tmp_path / f"{VK.hex()}.jsonl"
        path.write_bytes(path.read_bytes()[:-9])
        again, sent = held_by(tmp_path)
        paper = Paper()
        billed = paper.tick(AGREED, 1000)
        await again.receipt(billed)  # refused, and no proof of anything
        assert not again.book.stopped and sent.told[0].code == "ORDERS_LOST"
        assert await again.order(NAME, RUN, (peer(1),), lost) == lost  # that one itself
        after = await again.order(NAME, HOLD, (peer(1),), lost)
        assert after.order.version == 3
        await again.receipt(billed)
        assert sent.vouchers == [2000]
        await again.let_go()
        third, _ = held_by(tmp_path)  # and from the book from then on
        assert (await third.order(NAME, HOLD, (peer(1),))) == after
        await third.let_go()

    anyio.run(tell)


def test_an_order_that_this_key_did_not_sign_for_the_lease_moves_nothing(tmp_path: Path) -> None:
    async def tell() -> None:
        book(tmp_path)
        held, _ = held_by(tmp_path)
        first = await held.order(NAME, MEET)
        lies = (
            SignedOrder.sign(CONSUMER, ClusterOrder(NAME, 9, RUN)),
            SignedOrder.sign(SESSION, ClusterOrder("lease_2", 9, RUN)),
            SignedOrder(ClusterOrder(NAME, 9, RUN).encode(), first.signature),
            SignedOrder(b"nonsense", SESSION.sign(b"nonsense")),
            first,
        )
        for shown in lies:
            assert await held.order(NAME, MEET, (), shown) == first
        assert (await held.order(NAME, HOLD, (), lies[0])).order.version == 2
        orders = held.book.leases[NAME].orders
        assert orders is not None and not orders.ran
        await held.let_go()

    anyio.run(tell)


def test_a_rewritten_book_still_has_its_orders(tmp_path: Path) -> None:
    async def tell() -> None:
        book(tmp_path)
        held, _ = held_by(tmp_path)
        paper = Paper()
        await held.order(NAME, RUN)
        for _ in range(20):
            await held.receipt(paper.tick(AGREED, 1))
        await held.order(NAME, HOLD)
        await held.let_go()
        before = peek(tmp_path, VK).book.leases[NAME]
        Journal.hold(tmp_path, VK, compact_bytes=1)[0].close()
        after = peek(tmp_path, VK).book.leases[NAME]
        assert (after.orders, after.since_ms) == (before.orders, before.since_ms)
        assert newest(tmp_path).version == 2

    anyio.run(tell)


# ---- crashes -------------------------------------------------------------------------------------


def orders_for_ever(folder: Path, out: int) -> None:
    """Orders, and tells the number of each that it was given."""

    async def tell() -> None:
        held, _ = held_by(folder)
        while True:
            for verb in (MEET, RUN, HOLD):
                order = await held.order(NAME, verb)
                os.write(out, order.order.version.to_bytes(8, "big"))

    anyio.run(tell)


def test_no_kill_brings_an_older_number_back(tmp_path: Path) -> None:
    book(tmp_path)
    dice, last, lives = random.Random(7), 0, 0
    while last < 12 or lives < 6:
        lives += 1
        assert lives < 200, "no life got anywhere"
        told = kill_at_random(orders_for_ever, tmp_path, dice)
        numbers = [int.from_bytes(told[at : at + 8], "big") for at in range(0, len(told) - 7, 8)]
        if numbers:
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert numbers[0] >= last  # the first may be the last one again, if that said the same
            last = int.from_bytes(last_of(told), "big")
            assert newest(tmp_path).version >= last


def test_a_disk_that_fails_gives_no_order_out_that_it_does_not_keep(tmp_path: Path) -> None:
    async def orders(folder: Path, files: BadDisk) -> list[SignedOrder]:
        given: list[SignedOrder] = []
        held, _ = held_by(folder, files)
        with pytest.raises(DiskFault):
            for number in range(9):
                given.append(await held.order(NAME, RUN, (peer(number),)))  # noqa: PERF401  till it fails
        await held.let_go()
        return given

    async def tell() -> None:
        gave = 0
        for number, files in enumerate(bad_disks(8)):
            folder = tmp_path / str(number)
            book(folder)
            try:
                given = await orders(folder, files)
            except DiskFault:
                continue  # it could not even be opened
            again, _ = held_by(folder)
            known = again.book.leases[NAME].orders
            assert known is not None and known.version >= len(given)
            after = await again.order(NAME, HOLD)
            assert all(after.order.version > one.order.version for one in given)
            gave += len(given)
            await again.let_go()
        assert gave > 20

    anyio.run(tell)
