"""The browser's payer decides as the other one: the same receipts, the same clock, the same
answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser

from marketplace.client.payer import decide
from marketplace.domain.errors import Refusal
from marketplace.domain.money.keep import KEEP_MS, Keep
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.voucher import End, voucher_message
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import GpuNeed, Range, Resources
from marketplace.domain.work.workload import NO_EGRESS, Egress, EgressMode
from tests.browser.support.product import Product
from tests.unit.support import invoice
from tests.unit.support.payer import CONSUMER, SESSION, Paper, signed_terms, terms

pytestmark = pytest.mark.browser
Step = tuple[SignedReceipt | str, int]

DECIDE = """
async ([terms, adapter, session, capacity, cap, steps]) => {
  const payer = await import("/assets/money/payer.js");
  const {fromHex} = await import("/assets/crypto/bytes.js");
  const lease = payer.newLease(fromHex(terms), fromHex(adapter), BigInt(cap));
  let book = payer.newBook({id: session, capacity: BigInt(capacity), leases: {lease_1: lease}});
  const answers = [];
  for (const [body, signature, now] of steps) {
    if (signature === "") { book = payer.staged(book, "lease_1", body, now); answers.push("stage"); continue; }
    try {
      const outcome = await payer.decide(book, fromHex(body), fromHex(signature), now);
      if (outcome.missing) { answers.push(`missing ${outcome.missing.join("-")}`); continue; }
      book = outcome.book;
      answers.push(`${outcome.sign ?? "none"} ${outcome.note?.code ?? ""}`.trim());
    } catch (error) {
      if (error.stop) book = {...book, stopped: error.code};
      answers.push(error.code ?? String(error));
    }
  }
  return [answers, Number(book.signed)];
}
"""
STAGES = {
    "STARTED": decide.started,
    "PAUSED": decide.paused,
    "RESUMED": decide.resumed,
    "FINISHED": decide.ended,
}


def by_python(agreed: Terms, capacity: int, cap: int, steps: list[Step]) -> tuple[list[str], int]:
    """What ``marketplace.client.payer.decide`` answers."""
    book = decide.Book(SESSION.verify_key, capacity=capacity)
    book = book.with_lease(decide.LeaseBook(agreed, cap))
    answers: list[str] = []
    for what, now in steps:
        if isinstance(what, str):
            book = STAGES[what](book, "lease_1", now)
            answers.append("stage")
            continue
        try:
            outcome = decide.decide(book, what, now)
        except Refusal as refusal:
            book = decide.stop(book, refusal)
            answers.append(refusal.code)
            continue
        if isinstance(outcome, decide.Missing):
            answers.append(f"missing {outcome.first}-{outcome.last}")
            continue
        book = outcome.book
        sign = "none" if outcome.sign is None else str(outcome.sign)
        answers.append(f"{sign} {outcome.note.code if outcome.note else ''}".strip())
    return answers, book.signed


def honest(seed: int) -> list[Step]:
    """Jitter, a pause, a repetition, and a last receipt."""
    chance, paper, now = random.Random(seed), Paper(), 1_000_000
    steps: list[Step] = [("STARTED", now)]
    for n in range(30):
        now += 1000
        sent = paper.tick(terms(), 1000, final=n == 29)
        steps.append((sent, now + chance.randint(-300, 300)))
        if chance.random() < 0.2:
            steps.append((sent, now + 400))
        if n == 12:
            steps += [("PAUSED", now + 500), ("RESUMED", now + 9000)]
            now += 9000
    return [*steps, ("FINISHED", now)]


def greedy(seed: int) -> list[Step]:
    """A clock that runs ten per cent fast, until the cap."""
    paper, now = Paper(), 5_000_000
    steps: list[Step] = [("STARTED", now)]
    for _ in range(60 + seed):
        now += 909
        steps.append((paper.tick(terms(), 1000), now))
    return steps


def hostile(seed: int) -> list[Step]:
    """Gaps, replays, strangers' signatures, forks and sums that do not add up."""
    chance, paper, now = random.Random(seed), Paper(), 9_000_000
    steps: list[Step] = []
    for _ in range(25):
        now += 1000
        lies: list[Callable[[], SignedReceipt]] = [
            lambda: Paper(paper.last, dict(paper.leases)).tick(terms(), 1000, adapter=CONSUMER),
            lambda: Paper(paper.last, dict(paper.leases)).tick(terms(), 1000, seq=99),
            lambda: paper.sent[chance.randrange(len(paper.sent))],
            lambda: Paper().tick(terms(), 1500),
            lambda: Paper(paper.last, dict(paper.leases)).tick(terms(), 1000, channel_owed=99),
            lambda: Paper(paper.last, dict(paper.leases)).tick(terms(), 1000, device=bytes(32)),
            lambda: Paper(paper.last, dict(paper.leases)).tick(terms(), 1000, billed=3000),
        ]
        if paper.sent and chance.random() < 0.25:
            steps.append((chance.choice(lies[: 3 if chance.random() < 0.8 else None])(), now))
        steps.append((paper.tick(terms(), 1000), now))
    return steps


def beyond(seed: int) -> list[Step]:
    """More than the ceiling, or than the terms let it run; at the limit itself nothing is
    refused.
    """
    agreed, paper, now = terms(), Paper(), 7_000_000
    most = decide.LeaseBook(agreed, 1).longest_ms
    steps: list[Step] = [("STARTED", now), (paper.tick(agreed, 1000), now + 1000)]
    if seed == 0:
        steps.append((paper.tick(agreed, most - 1000), now + 2000))
    ms, billed = [(1, None), (10**13, None), (most - 999, 0), (2**60, 0), (5_000_001, None)][
        seed % 5
    ]
    steps.append((paper.tick(agreed, ms, billed=billed), now + 3000))
    return [*steps, (paper.tick(agreed, 1), now + 4000)]


@pytest.mark.parametrize("kind", [honest, greedy, hostile, beyond])
def test_the_browser_decides_as_the_sdk(
    running: Product, browser: Browser, kind: Callable[[int], list[Step]]
) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    agreed = terms()
    signed = signed_terms(agreed)
    seen: set[str] = set()
    for seed in range(6):
        steps = kind(seed)
        capacity, cap = (10_000_000, 10_000_000) if seed % 2 else (10_000_000, 40_000)
        given: list[list[Any]] = [
            [what, "", now]
            if isinstance(what, str)
            else [what.body.hex(), what.signature.hex(), now]
            for what, now in steps
        ]
        answer = page.evaluate(
            DECIDE,
            [signed.body.hex(), signed.adapter_signature.hex(), SESSION.verify_key.hex(), capacity,
             cap, given],
        )  # fmt: skip
        expected = by_python(agreed, capacity, cap, steps)
        assert answer == [expected[0], expected[1]], f"{kind.__name__} {seed}"
        seen |= {word for line in expected[0] for word in line.split() if word.isupper()}
    wanted: dict[str, set[str]] = {
        "honest": {"NOT_SIGNED_BUDGET"},
        "greedy": {"NOT_SIGNED_CLOCK", "NOT_SIGNED_BUDGET"},
        "hostile": {"RECEIPT_FORGED", "RECEIPT_REPLAYED", "PAYER_STOPPED"},
        "beyond": {"RECEIPT_WRONG", "PAYER_STOPPED"},
    }
    assert wanted[kind.__name__] <= seen, seen
    page.context.close()


CAPPED = """
async ([terms, adapter, session, before, after]) => {
  const payer = await import("/assets/money/payer.js");
  const {fromHex} = await import("/assets/crypto/bytes.js");
  const lease = payer.newLease(fromHex(terms), fromHex(adapter), 10_000_000n);
  let book = payer.newBook({id: session, capacity: 10_000_000n, leases: {lease_1: lease}});
  const answer = async ([body, signature, now]) => {
    book = (await payer.decide(book, fromHex(body), fromHex(signature), now)).book;
    return Number(book.signed);
  };
  const signed = [];
  for (const one of before) signed.push(await answer(one));
  const names = (...asked) => payer.capped([book], ...asked).map(({leases}) => Number(leases.lease_1.cap));
  const told = [names("job_2", "lease_9", 0n), names("job_1", "lease_1", 0n), names("job_1", "lease_2", 9n), names("job_1", "lease_2", 99_000_000n)];
  [book] = payer.capped([book], "job_1", "lease_2", 14_000n);
  for (const one of after) signed.push(await answer(one));
  return [signed, told];
}
"""


def test_a_provider_that_was_given_up_bills_no_further_than_the_budget_leaves(
    running: Product, browser: Browser
) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    signed, paper = signed_terms(terms()), Paper()
    sent = [paper.tick(terms(), 1000) for _ in range(20)]
    given = [[r.body.hex(), r.signature.hex(), 1_000_000 + 1000 * n] for n, r in enumerate(sent)]
    got = page.evaluate(
        CAPPED,
        [signed.body.hex(), signed.adapter_signature.hex(), SESSION.verify_key.hex(), given[:5],
         given[5:]],
    )  # fmt: skip
    up_to = [2000 * n for n in (1, 2, 3, 4, 5, 6, 7)]
    assert got[0] == up_to + [14_000] * 13
    # Another job's lease and the new one itself stay; what was approved stays; a cap is never
    # raised.
    assert got[1] == [[], [], [10_000], [10_000_000]]
    page.context.close()


def test_the_page_names_what_its_books_know_and_a_bill_lacks(
    running: Product, browser: Browser
) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    whole, short = invoice.whole().evidence, invoice.whole().evidence
    short["leases"].pop(2)
    short["channels"].pop(1)
    short["channels"][0]["receipts"].pop()
    got = page.evaluate(
        """async ([whole, short]) => {
          const {lackingIn} = await import("/assets/money/ownbooks.js");
          const {readReceipt, readTerms} = await import("/assets/money/records.js");
          const {fromHex} = await import("/assets/crypto/bytes.js");
          const books = whole.channels.map(({session_vk: id}) => ({id, leases: {}}));
          for (const {channel, terms} of whole.leases) {
            const bytes = fromHex(terms);
            books.find(({id}) => id === channel).leases[readTerms(bytes).lease] = {terms: bytes, last: null};
          }
          for (const {session_vk, receipts} of whole.channels) {
            const {leases} = books.find(({id}) => id === session_vk);
            for (const last of receipts.map(({body}) => fromHex(body))) leases[readReceipt(last).lease].last = last;
          }
          return [lackingIn(whole, books), lackingIn(short, books), lackingIn(short, [])];
        }""",
        [whole, short],
    )
    assert got == [
        [],
        [
            "lease lease_1 ends here with receipt 3, and this browser has answered 5",
            "lease lease_3 is left out, and this browser has answered its receipts up to 1",
        ],
        [],
    ]
    page.context.close()


def test_the_form_asks_for_a_network_only_where_its_reader_did(
    running: Product, browser: Browser
) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/jobs/new")
    page.get_by_label("Image").fill("sha256:" + "ab" * 32)
    read = """async () => {
      const {readForm} = await import("/assets/form/spec.js");
      try { return readForm(document.getElementById("new"), {}); } catch (e) { return {field: e.field}; }
    }"""
    found = [page.evaluate(read)]
    page.get_by_label("Network out").select_option("the internet")
    found.append(page.evaluate(read))
    page.get_by_label("Network out").select_option("only these")
    found.append(page.evaluate(read))
    page.get_by_label("Hosts and ports").fill("pypi.org:443, files.pythonhosted.org:443")
    found.append(page.evaluate(read))
    assert found[2] == {"field": "reach"}
    named = Egress(EgressMode.LIST, ("pypi.org:443", "files.pythonhosted.org:443"))
    assert [JobSpec.from_wire(found[n]).egress for n in (0, 1, 3)] == [
        NO_EGRESS, Egress(EgressMode.OPEN), named,
    ]  # fmt: skip
    page.context.close()


def test_the_browser_signs_and_hashes_the_very_bytes(running: Product, browser: Browser) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    gpu = GpuNeed(("H100", "Ünïcode"), Range(1, 2), Range(24_000), 500)
    spec = JobSpec(
        "x",
        "sha256:" + "ab" * 32,
        ("a", "é"),
        (Resources(gpu=gpu), Resources()),
        env={"b": "1", "aa": "2"},
        egress=Egress(EgressMode.LIST, ("pypi.org:443",)),
    )
    got = page.evaluate(
        """async ([spec, vk]) => {
          const r = await import("/assets/money/records.js");
          const {fromHex, toHex} = await import("/assets/crypto/bytes.js");
          return [toHex(r.workOf(spec)), toHex(r.voucherMessage(2n ** 62n)), toHex(r.endMessage(fromHex(vk), 70000n)),
            toHex(r.keepMessage(fromHex(vk), 600000))];
        }""",
        [spec.to_wire(), SESSION.verify_key.hex()],
    )
    assert got == [
        spec.hash.hex(),
        voucher_message(2**62).hex(),
        End.message(SESSION.verify_key, 70_000).hex(),
        Keep.message(SESSION.verify_key, KEEP_MS).hex(),
    ]
    page.context.close()
