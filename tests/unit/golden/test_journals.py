"""What lies on the disks of adapters and payers: an old file is read by today's code."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import anyio

from adapter.core.events import Outcome, Send
from adapter.core.hop import Hop, Routed
from adapter.core.state import Channel, Debtor, Lease, Past, State
from adapter.core.workload import Handle
from adapter.journal.journal import Journal, StoredTx
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Opening
from marketplace.chain.node.submit import FileLog, TxRecord
from marketplace.client.net.clock import Stamp
from marketplace.client.payer import hop_rows
from marketplace.client.payer import journal as book
from marketplace.client.payer.decide import Book, LeaseBook
from marketplace.client.payer.journal import ChannelFacts, Loaded
from marketplace.client.payer.renewal_rule import RenewalRule
from marketplace.client.wallet import one_open
from marketplace.domain.keys import Signer
from marketplace.domain.metering.merkle import MerkleLog
from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import Evidence, Reading
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.route.hop import Paying
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.payee import Served
from marketplace.domain.money.route.payer import Bought
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.transaction import TxState
from marketplace.domain.protocol import codec, wire
from marketplace.domain.supply.grant import Grant
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.market.base.records import Record
from tests.unit.support import snapshot as ledger
from tests.unit.support.golden import enums_in, filled, pinned, shown
from tests.unit.support.hop_out import HOP, payment
from tests.unit.support.pinned import (
    ADAPTER,
    GIVEN,
    RECEIPT,
    SESSION,
    SIGNED_RECEIPT,
    TERMS,
    VOUCHER,
)

EVIDENCE = Evidence(energy_mj=77, cpu_ns=88)  # the counters: the rest of a reading is in its leaf
METER = filled(
    Meter,
    {"evidence": EVIDENCE, "Reading": filled(Reading, evidence=EVIDENCE), "MerkleLog": MerkleLog(3, (b"p" * 32, b"q" * 32))},
)  # fmt: skip
UNSTORED = {"fault_since_ms": 0, "idle_since_ms": 0}
"""Marks of this process's own looking, which begin anew after a restart."""


def state() -> State:
    """One lease and its channel, and every table with a row."""
    handle = filled(Handle, ports={8080: ("127.0.0.1", 40_000)})
    given = {**GIVEN, "Meter": METER, "Handle": handle, "Grant": filled(Grant)}
    lease = filled(
        Lease, given, id="lease_1", meters=(METER,), last=RECEIPT, routed=None, **UNSTORED
    )
    channel = filled(
        Channel, given, session_vk=SESSION.verify_key, leases=("lease_1",), last=RECEIPT,
        terms=TERMS.encode(), voucher=VOUCHER, hop=None,
    )  # fmt: skip
    routed, hop = over_a_hop(lease, channel)
    return State(
        {lease.id: lease, routed.id: routed},
        {channel.session_vk: channel, hop.session_vk: hop},
        draining=True,
        past=filled(Past),
        debtors={b"\x0d" * 28: filled(Debtor)},
    )


def over_a_hop(lease: Lease, channel: Channel) -> tuple[Lease, Channel]:
    """A lease that a router pays, and the hop that it pays it over, forked."""
    vk, terms = HOP.verify_key, RoutedTerms(replace(TERMS, lease="lease_2"), b"\x0e" * 32)
    body = terms.encode()
    paid = Routed(vk, terms.hash, 7_000, b"a route", b"\x0f" * 64, b"\x10" * 32)
    served = Served("lease_2", TERMS.session_vk, 20, 7_000, 60, 40)
    payments = [payment([Leaf(terms.hash, amount)], 3, bytes(32)) for amount in (40, 41)]
    consts = Consts(vk, TERMS.adapter_vkh, TERMS.payout, b"\x0d" * 28, 86_400_000, 33)
    hop = Hop(consts, 42, "", 1, {terms.hash: served}, *payments)
    return (
        replace(
            lease, id="lease_2", terms=terms.terms, routed=paid, last=None,
            signed=SignedTerms(body, ADAPTER.sign(body), SESSION.sign(body)),
        ),
        replace(
            channel, session_vk=vk, terms=b"", hop=hop, voucher=payments[0].voucher, last=None,
            leases=("lease_2",), young=None,
        ),
    )  # fmt: skip


def test_an_old_journal_of_an_adapter_is_read() -> None:
    def dump(folder: Path) -> bytes:
        journal = Journal(folder / "journal.db")
        message = Send(wire.LeaseDeclined("lease_2", "A_CODE", "a message"))
        journal.write(Outcome(state(), (message,), ticks=(SIGNED_RECEIPT,)))
        journal.bind(42)
        journal.put_transaction(filled(StoredTx, state=TxState.BUILT.name))
        journal.close()
        with sqlite3.connect(folder / "journal.db") as db:
            text = "\n".join(db.iterdump())
        db.close()
        return text.encode()

    def read(_: str, data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            with sqlite3.connect(Path(folder) / "journal.db") as db:
                db.executescript(data.decode())
            db.close()
            journal = Journal(Path(folder) / "journal.db")
            try:
                return {
                    "state": journal.load(),
                    "outbox": [codec.from_bytes(payload) for _, payload in journal.outbox()],
                    "ticks": journal.ticks("lease_1"),
                    "network": journal.network(),
                    "transactions": journal.transactions(),
                }
            finally:
                journal.close()

    with tempfile.TemporaryDirectory() as folder:
        made = dump(Path(folder))
    pinned("journal_adapter.json", {"journal": made}, read)
    assert shown(read("", made))["state"] == shown(state())


def ordered(lease: str, version: int, verb: Verb) -> SignedOrder:
    return SignedOrder.sign(SESSION, ClusterOrder(lease, version, verb))


def rows() -> dict[str, list[dict[str, Any]]]:
    """What each function of the journal that makes a row makes, by its name."""
    at = Stamp("boot", 1_000_000, 1_800_000_000_000)
    name = TERMS.lease
    one = Book(SESSION.verify_key, {name: LeaseBook(TERMS, 9_000, approved=77)}, signed=88)
    facts = filled(ChannelFacts, {"session_vk": SESSION.verify_key})
    facts = replace(facts, router=(), hop="", route_bps=0)  # a hop's, or a routed lease's: below
    makers: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "channel_row": lambda: [book.channel_row(facts)],
        "lease_row": lambda: [book.lease_row(GIVEN["SignedTerms"], 9_000, at)],
        "lease_row of a cluster's member": lambda: [
            book.lease_row(GIVEN["SignedTerms"], 9_000, at, member=True)
        ],
        "order_row": lambda: [
            book.lease_row(GIVEN["SignedTerms"], 9_000, at, member=True),
            book.order_row(ordered(name, 1, Verb.RUN), replace(at, mono_ms=at.mono_ms + 5)),
            book.order_row(ordered(name, 2, Verb.HOLD), replace(at, mono_ms=at.mono_ms + 9)),
            book.clock_row(name, "followed", replace(at, mono_ms=at.mono_ms + 10)),
            book.order_row(ordered(name, 4, Verb.RUN), at, again=True),
        ],
        "cut_row": lambda: [book.cut_row()],
        "renewed_row": lambda: [book.renewed_row(GIVEN["SignedTerms"], 12_000)],
        "told_row": lambda: [book.told_row(name)],
        "rule_row": lambda: [
            book.rule_row(name, None),
            book.rule_row(name, RenewalRule(90_000, 30_000, 7)),
        ],
        "cap_row": lambda: [book.cap_row(name, 10_000)],
        "clock_row": lambda: [
            book.clock_row(name, what, replace(at, mono_ms=at.mono_ms + i))
            for i, what in enumerate(("started", "paused", "resumed", "ended"))
        ],
        "clock_row of a pause that is handed on": lambda: [
            book.clock_row(name, "started", at),
            book.clock_row(name, "paused", replace(at, mono_ms=at.mono_ms + 1)),
            book.clock_row(name, "paused", replace(at, mono_ms=at.mono_ms + 9), handed=True),
        ],
        "tick_row": lambda: [book.tick_row(SIGNED_RECEIPT, one, name, at)],
        "signed_row": lambda: [book.signed_row(replace(one, signed=99))],
        "stopped_row": lambda: [book.stopped_row("A", SIGNED_RECEIPT), book.stopped_row("A_CODE")],
        "final_row": lambda: [book.final_row(name)],
        "end_row": lambda: [book.end_row(at)],
    }
    public = {one for one in vars(book) if one.endswith("_row") and not one.startswith("_")}
    assert public == {kind.split()[0] for kind in makers}, "a row that is not pinned"
    return {kind: make() for kind, make in makers.items()}


def test_an_old_book_of_a_payer_is_read() -> None:
    """Each kind of row upon those that it needs, and all of them in one book."""
    made = rows()
    begin = [*made["channel_row"], *made["lease_row"]]
    books = {kind: [*begin, *own] for kind, own in made.items()}
    books["all"] = [row for own in made.values() for row in own]

    def read(_: str, data: bytes) -> object:
        found = [json.loads(line) for line in data.splitlines()]
        return book.fold(SESSION.verify_key, found, Stamp("boot", 1_060_000, 1_800_000_060_000))

    lines = {
        kind: b"".join(json.dumps(row).encode() + b"\n" for row in own)
        for kind, own in books.items()
    }
    pinned("journal_payer.json", lines, read)


def hop_rows_made() -> list[dict[str, Any]]:
    """Each kind of row of a hop's book, upon its facts: a lease, what it owes, two payments."""
    key, lease_vk = Signer(b"\x31" * 32), Signer(b"\x32" * 32).verify_key
    terms, offer = b"\x0a" * 32, b"\x0c" * 32
    lease = Bought("lease_9", lease_vk, ADAPTER.verify_key, 50, 1_000, 90_000)
    first = Paying(key.verify_key).pay({offer: 25_000, terms: 0}, key)
    second = first.pay({terms: 1_005}, key)
    assert first.last is not None and second.last is not None
    facts = replace(
        filled(ChannelFacts, {"session_vk": key.verify_key}),
        router=("aa", "bb", "cc"),
        hop="",
        route_bps=0,
    )
    return [
        book.channel_row(facts),
        hop_rows.bought_row(terms, lease),
        hop_rows.payment_row(first.last, None),
        hop_rows.owes_row(terms, 1_000),
        hop_rows.payment_row(second.last, first.last),
        hop_rows.said_row(terms, 1_000),
        hop_rows.over_row(terms, replace(lease, reserve=1_000)),
    ]


def test_an_old_book_of_a_hop_is_read() -> None:
    """Its payments add up from what changed; rewritten whole, it is the same book."""
    made = hop_rows_made()
    assert {row["k"] for row in made} == {"channel", *hop_rows.KINDS}
    vk = Signer(b"\x31" * 32).verify_key

    def loaded(rows: list[dict[str, Any]]) -> Loaded:
        return book.fold(vk, rows, Stamp("boot", 1_060_000, 1_800_000_060_000))

    def read(_: str, data: bytes) -> object:
        return loaded([json.loads(line) for line in data.splitlines()])

    lines = b"".join(json.dumps(row).encode() + b"\n" for row in made)
    pinned("journal_hop.json", {"hop": lines}, read)
    whole = loaded(made)
    assert whole.hop is not None and whole.book.signed == 26_005
    again = loaded([made[0], *hop_rows.whole(whole.hop)])
    assert again.hop == whole.hop


def opening() -> TxRecord:
    """The transaction that opens a channel, signed."""
    wanted = [Opening(20 * ledger.ADA, lambda _ref, _index: ledger.consts("x"), ledger.STAKE)]
    draft = plans.open_channels(ledger.snapshot(), ledger.funds(100 * ledger.ADA), wanted).finish()
    signed = draft.sign(ledger.WALLET.signer)
    return TxRecord(draft.tx_id, signed.bytes, "open", TxState.BUILT)


def test_an_old_log_of_a_purse_names_its_opens() -> None:
    """What keeps a second channel from being opened after an update: see
    ``client.wallet.one_open``.
    """

    async def dump(folder: Path) -> bytes:
        log, record = FileLog(folder / "log.jsonl"), opening()
        await log.put(record)
        await log.put(replace(record, state=TxState.SEEN, height=7))
        return await anyio.Path(folder / "log.jsonl").read_bytes()

    async def look(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = anyio.Path(folder) / "log.jsonl"
            await path.write_bytes(data)
            known = await FileLog(Path(path)).known()
            vk = ledger.consts("x").session_vk
            return [[one, one.until, one_open.opens(one, vk)] for one in known]

    with tempfile.TemporaryDirectory() as folder:
        made = anyio.run(dump, Path(folder))
    pinned("log_purse.json", {"log": made}, lambda _, data: anyio.run(look, data))


def _of(kind: type[Enum], stored: str) -> Enum:
    """By name, as most are stored; a text's enum also answers to what it was called before."""
    return kind[stored] if stored in kind.__members__ else kind(stored)


def test_every_name_of_what_is_stored_by_name_is_still_known() -> None:
    kinds = enums_in(
        Lease, Channel, TxRecord, *Record.__subclasses__(), *wire.Message.kinds.values()
    )
    made = {name: "\n".join(one.name for one in kind).encode() for name, kind in kinds.items()}
    pinned(
        "names.json",
        made,
        lambda name, data: [_of(kinds[name], one) for one in data.decode().split()],
    )
