"""``tally invoice FILE`` as a user meets it: what a bent bill says, and the right words for the
rest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marketplace.chain.node.answers import Moves
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.client.jobs.verifier import facts, verify
from marketplace.client.net.clock import Stamp
from marketplace.client.payer import journal as rows
from marketplace.client.payer.decide import Book, LeaseBook
from marketplace.client.payer.journal import Journal
from marketplace.client.sdk.job import Job
from marketplace.domain.money.evidence import read
from marketplace.domain.money.invoice.refusals import (
    ChannelDiffers,
    InvoiceRefused,
    JobDiffers,
    ReceiptNotSigned,
)
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.terms import SignedTerms
from tests.unit.support.invoice import Case, bend, small, whole
from tests.unit.support.payer import terms
from tests.unit.support.routed import beside_a_direct_channel, routed

TWICE = 'a second "channels"'


def tally(*words: str, at: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TALLY_HOME": str(at), "COLUMNS": "300"}
    env.pop("TALLY_CHAIN_URL", None)
    return subprocess.run(
        [sys.executable, "-m", "marketplace.cli.main", *words], env=env, cwd=at,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def kept(at: Path, case: Case) -> str:
    (at / "bill.json").write_text(case.json())
    return "bill.json"


BENT: dict[str, tuple[Callable[[], Case], str]] = {
    "the channel twice": (
        lambda: bend(lambda e: e["channels"].append(e["channels"][0])), "INVOICE_CHANNEL",
    ),
    "the channel dropped, the lease kept": (
        lambda: bend(lambda e: e["channels"].pop(0)), "INVOICE_CHANNEL",
    ),
    TWICE: (lambda: Case(None, [], whole().json()[:-1] + ', "channels": []}'), "INVOICE_MALFORMED"),
    "the job renamed": (lambda: bend(lambda e: e.update(job="job_x")), "INVOICE_JOB"),
    "hex with spaces": (
        lambda: bend(lambda e: e["leases"][0].update(channel=" " + e["leases"][0]["channel"])),
        "INVOICE_MALFORMED",
    ),
}  # fmt: skip


def own_books(at: Path, case: Case) -> None:
    """The books of the purse that answered every receipt of *case*."""
    for channel in case.evidence["channels"]:
        vk = bytes.fromhex(channel["session_vk"])
        journal, _ = Journal.hold(at / "channels", vk)
        stamp = Stamp.now()
        for row in case.evidence["leases"]:
            if row["channel"] == channel["session_vk"]:
                parts = ("terms", "adapter_signature", "session_signature")
                signed = SignedTerms.from_wire([bytes.fromhex(row[part]) for part in parts])
                journal.write(rows.lease_row(signed, signed.terms.ceiling, stamp))
        for row in channel["receipts"]:
            receipt = SignedReceipt(bytes.fromhex(row["body"]), bytes.fromhex(row["signature"]))
            lease = LeaseBook(terms(receipt.receipt.lease), 1)
            book = Book(vk, {receipt.receipt.lease: lease})
            journal.write(rows.tick_row(receipt, book, receipt.receipt.lease, stamp))
        journal.close()


SHORT: dict[str, tuple[Callable[[Any], object], str]] = {
    "a lost provider's lease together with its channel": (
        lambda e: (e["leases"].pop(2), e["channels"].pop(1)), "lease_3 on channel",
    ),
    "the last receipt": (
        lambda e: (e["channels"][0]["receipts"].pop(), e["channels"][0].update(voucher=None)),
        "ends in the evidence with receipt 3: this purse has answered 5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_what_the_own_books_know_and_the_evidence_lacks_is_said_by_name(
    tmp_path: Path, name: str
) -> None:
    work, words = SHORT[name]
    case = bend(work)
    assert tally("invoice", kept(tmp_path, case), at=tmp_path).returncode == 0  # by itself it holds
    own_books(tmp_path, whole())
    done = tally("invoice", "bill.json", at=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "INVOICE_INCOMPLETE" in said and words in said, said
    kept(tmp_path, whole())
    assert tally("invoice", "bill.json", at=tmp_path).returncode == 0


@pytest.mark.parametrize("name", BENT)
def test_a_bent_bill_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    make, code = BENT[name]
    done = tally("invoice", kept(tmp_path, make()), at=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 3 and said.startswith(code), done.stdout + done.stderr
    if code == "INVOICE_MALFORMED":
        assert "tally invoice JOB --save FILE" in said
    else:
        assert re.search("channel [0-9a-f]{16}", said) and "lease_1" in said and "receipt" in said


def test_right_words_for_a_file_that_is_not_there_and_for_a_job_without_a_channel(
    tmp_path: Path,
) -> None:
    done = tally("invoice", "saved/bill.json", at=tmp_path)
    assert done.returncode == 3 and "saved/bill.json: no such file" in done.stderr
    nothing = Case({"job": "job_1", "leases": [], "channels": []}, [])
    done = tally("invoice", kept(tmp_path, nothing), at=tmp_path)
    assert done.returncode == 0 and "nothing was agreed, so nothing is owed" in done.stdout


def test_a_routed_bill_shows_both_hops_the_fee_and_what_a_router_kept(tmp_path: Path) -> None:
    done = tally("invoice", kept(tmp_path, routed()), at=tmp_path)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stderr
    for part in (
        "its fee 0.000020 ADA (50 of 10000); 0.004020 ADA signed to the router, 0.004000 ADA signed to",
        "0.004000 ADA paid by the provider's word",
        "to the router due 0.029799 ADA, 0.000777 ADA of it at most for leases not shown",
        "to the provider due 0.004001 ADA", "compute 0.004000 ADA + router 0.000020 ADA",
    ):  # fmt: skip
        assert part in said, said
    assert "not seen to reach" not in said
    done = tally("invoice", kept(tmp_path, routed(out=False, paid=2000)), at=tmp_path)
    said = " ".join(done.stdout.split())
    assert "signed for to the router and not seen to reach the provider: 0.002000 ADA" in said, said
    assert "delivered and not paid for: 0.002000 ADA" in said
    done = tally("invoice", kept(tmp_path, routed()), "--json", at=tmp_path)
    told = json.loads(done.stdout)
    assert (told["route_fee"], told["withheld"], len(told["hops"])) == (20, 0, 2)


def test_a_routed_bill_survives_being_saved(tmp_path: Path) -> None:
    for case in (routed(), routed(out=False, paid=None), beside_a_direct_channel()):
        done = tally("invoice", kept(tmp_path, case), "--save", "again.json", at=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "again.json").read_text()) == case.evidence


# --- what a market answers ------------------------------------------------------------------------


class Market:
    """Answers every question about an invoice with the same evidence."""

    def __init__(self, case: Case) -> None:
        self.case = case

    async def text(self, path: str) -> bytes:
        return self.case.json().encode()

    async def get(self, path: str) -> Any:
        return json.loads(self.case.json())


@pytest.mark.anyio
async def test_an_answer_about_another_job_is_not_this_jobs_bill() -> None:
    market: Any = Market(whole())
    chain: Any = None
    assert (await Job(market, "job_1", None, chain, frozenset).invoice()).owed == 8100
    with pytest.raises(JobDiffers):
        await Job(market, "job_2", None, chain, frozenset).invoice()


# --- the ledger -----------------------------------------------------------------------------------


class Chain:
    """A chain on which the open transaction is not, or did something else; *asked* counts
    questions.
    """

    def __init__(self, moves: Moves | None = None) -> None:
        self.found, self.asked = moves, 0

    async def tip(self) -> Any:
        return SimpleNamespace(height=100)

    async def moves(self, tx_id: bytes) -> Moves | None:
        self.asked += 1
        return self.found

    async def output(self, ref: Any) -> Any:
        self.asked += 1
        return None if self.found is None else SimpleNamespace(utxo=SimpleNamespace(ref=ref))


def chain_of(moves: Moves | None) -> Any:
    return Chain(moves)


@pytest.mark.anyio
async def test_the_chain_is_not_asked_about_what_was_not_signed() -> None:
    forged = bend(lambda e: e["channels"][0]["receipts"][0].update(signature="00" * 64))
    chain: Any = chain_of(None)
    with pytest.raises(ReceiptNotSigned):
        await verify(read(forged.json()), chain)
    assert chain.asked == 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("moves", "why"),
    [
        (None, "it is in no block of this chain"),
        (Moves((), ()), "it holds another output"),
    ],
)
async def test_an_open_transaction_that_opened_something_else_is_called_so(
    moves: Moves | None, why: str
) -> None:
    evidence = read(small().json())
    chain: ChainReader = chain_of(moves)
    with pytest.raises(ChannelDiffers, match=why) as caught:
        await facts(chain, evidence.channels[0])
    assert isinstance(caught.value, InvoiceRefused) and "#0 did not open it" in caught.value.message


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
