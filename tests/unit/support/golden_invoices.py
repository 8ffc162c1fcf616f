"""The golden vectors of ``docs/invoice.md``: for every row of its rules' table, every way to break
it.

``vectors()`` is what ``tests/golden/invoices.json`` holds. Regenerate with
``TALLY_GOLDEN=write pytest tests/unit/domain/test_invoice.py`` after reading the diff.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from marketplace.domain.keys import Signer
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.evidence import LedgerFacts, read
from marketplace.domain.money.invoice.verify import reconcile
from marketplace.domain.money.receipt import Lost
from tests.unit.support import golden_routes
from tests.unit.support.invoice import (
    OTHER_SESSION,
    RECEIPT,
    SESSION,
    TERMS,
    Case,
    bend,
    channel_row,
    lease_row,
    ledger_row,
    longer,
    on_ledger,
    opened,
    rechain,
    restate,
    retell,
    sign_receipt,
    sign_terms,
    small,
    voucher_row,
    whole,
)
from tests.unit.support.payer import Paper, terms

Make = Callable[[], Case]
ELSEWHERE = Signer(b"\x0a" * 32)
IDENTITY = bytes([1, *[0] * 31])
"""A key of order 1: B and S = 1 are its signature of every message, where that is not refused."""


def facts(row: dict[str, Any] | None) -> LedgerFacts | None:
    """A vector's ledger entry."""
    if row is None:
        return None
    session, adapter, payout, consumer, close, fee = row["consts"]
    keys = [bytes.fromhex(key) for key in (session, adapter, payout, consumer)]
    consts = Consts(keys[0], keys[1], keys[2], keys[3], close, fee)
    numbers = {k: row[k] for k in ("funded", "claimed", "refunded", "held", "ended")}
    return LedgerFacts(bytes.fromhex(row["session_vk"]), consts, **numbers)


def answer(case: Case) -> dict[str, Any]:
    """What our verifier says of a case that holds."""
    return reconcile(read(case.json()), [facts(row) for row in case.ledger]).to_json()


# --- cases that hold ------------------------------------------------------------------------------


def ahead(claimed: int = 4101, **more: Any) -> Case:
    """9,000 were signed for before a page was closed, and 4,101 delivered."""
    case = whole()
    case.evidence["channels"][0]["voucher"] = voucher_row(SESSION, 9000)
    case.ledger[0] = ledger_row(terms(), claimed, **more)
    return case


def not_asked(case: Case) -> Case:
    case.ledger = [None] * len(case.ledger)
    return case


def other_keys() -> Case:
    def work(evidence: Any) -> None:
        evidence["state"], evidence["channels"][0]["provider"] = "ENDED", {"a": [None, True, -7]}
        del evidence["channels"][0]["index"]

    return bend(work)


def nothing() -> Case:
    return Case({"job": "job_1", "leases": [], "channels": []}, [])


def unopened() -> Case:
    def work(evidence: Any) -> None:
        evidence["leases"] = evidence["leases"][:1]
        evidence["channels"] = evidence["channels"][:1]
        del evidence["channels"][0]["voucher"]
        evidence["channels"][0] |= {"receipts": [], "open_tx": ""}

    case = bend(work)
    case.ledger = [None]
    return case


def still_open() -> Case:
    return on_ledger(claimed=1000, refunded=0, held=11_999_000, ended=False)


def paid_short() -> Case:
    case = whole()
    case.evidence["channels"][0]["voucher"] = voucher_row(SESSION, 2100)
    case.ledger[0] = ledger_row(terms(), 2100)
    return case


def disk() -> Case:
    """A volume of 20 GB, for ten minutes of which one was not paid in time."""
    volume, paper = terms(resource="disk", units_milli=20_000, rate_micro=20_000), Paper()
    paper.tick(volume, 300_000)
    paper.tick(volume, 300_000, billed=240_000, lost=(Lost("paused", 60_000),), final=True)
    evidence = {
        "job": "job_1", "leases": [lease_row(volume, SESSION)],
        "channels": [channel_row(paper, SESSION, 216, "ab" * 32)],
    }  # fmt: skip
    return Case(evidence, [ledger_row(volume, 216)])


HOLD: dict[str, Make] = {
    "reconciled": whole,
    "signed ahead: reconciled": ahead,
    "signed ahead: not asked": lambda: not_asked(ahead()),
    "further keys are ignored, an index may be absent": other_keys,
    "a volume": disk,
    "nothing was agreed": nothing,
    "agreed, and never opened": unopened,
    "a channel is still open": still_open,
    "delivered and not paid for": paid_short,
    "leases in another order": lambda: bend(lambda e: e["leases"].reverse()),
    "the other job of the channel": lambda: bend(lambda e: e.update(job="job_2")),
    "a unit-ms that rounding kept back": lambda: bend(
        lambda e: (restate(e, 2, unit_ms_total=1752, lease_owed=3504, channel_owed=3505),
                   restate(e, 3, channel_owed=3505),
                   restate(e, 4, unit_ms_total=2050, lease_owed=4100))
    ),
    **golden_routes.HOLD,
}  # fmt: skip


# --- cases that break -----------------------------------------------------------------------------

FIELDS: dict[str, tuple[Any, ...]] = {
    "job": (1, None, "", "j" * 65, "a\0b", "\ud800"),
    "leases": (None, {}, "", [[]], [None]),
    "channels": (None, {}, "", [[]], [None]),
    "lease.channel": (None, 7, "", "ab" * 31, "ab" * 33, "AB" * 32, "ab " * 32, "xy" * 32),
    "lease.terms": (None, "", "0", "zz", "ab" * 8193),
    "lease.adapter_signature": (None, "", "ab" * 63, "ab" * 65, " " + "ab" * 64),
    "lease.session_signature": (None, 0, "ab" * 63, "AB" * 64),
    "channel.session_vk": (None, "", "ab" * 31, "AB" * 32),
    "channel.open_tx": (None, 1, "ab" * 31, "AB" * 32, "0x" + "ab" * 31),
    "channel.index": (None, "0", -1, 65_536, True),
    "channel.receipts": (None, {}, ["aa"], [None]),
    "channel.voucher": (0, "", [], {}, False),
    "receipt.body": (None, "", "abc", "AB", "ab" * 8193),
    "receipt.signature": (None, "", "ab" * 63, "AB" * 64),
    "voucher.cumulative": (None, "4101", -1, 2**63, True, [4101]),
    "voucher.signature": (None, "", "ab" * 63, "ab" * 65),
}  # fmt: skip


def within(evidence: Any, name: str) -> tuple[dict[str, Any], str]:
    """The object that holds the field, in the first lease or channel."""
    first, _, second = name.partition(".")
    if not second:
        return evidence, first
    channel = evidence["channels"][0]
    holders = {
        "lease": evidence["leases"][0], "channel": channel, "receipt": channel["receipts"][0],
        "voucher": channel["voucher"],
    }  # fmt: skip
    return holders[first], second


def malformed() -> Iterator[tuple[str, Make]]:
    """MALFORMED: each field's wrong values, and texts of more than one reading."""

    def field(name: str, value: Any) -> Make:
        def work(evidence: Any) -> None:
            holder, key = within(evidence, name)
            holder[key] = value

        return lambda: bend(work, small)

    def absent(name: str) -> Make:
        def work(evidence: Any) -> None:
            holder, key = within(evidence, name)
            del holder[key]

        return lambda: bend(work, small)

    for name, values in FIELDS.items():
        for value in values:
            yield f"{name} is {json.dumps(value)[:24]}", field(name, value)
        if name not in ("channel.index", "channel.voucher"):
            yield f"{name} is missing", absent(name)
    text = small().json()
    texts = {
        "a float": text.replace('"cumulative": 2000', '"cumulative": 2000.0'),
        "an exponent": text.replace('"cumulative": 2000', '"cumulative": 2000e0'),
        "an exponent where nothing is read": text.replace("{", '{"more": 1E3, ', 1),
        "21 characters": text.replace("{", '{"more": 100000000000000000000, ', 1),
        "a leading zero": text.replace('"cumulative": 2000', '"cumulative": 02000'),
        "not a number": text.replace('"cumulative": 2000', '"cumulative": NaN'),
        "a second key of the same name": text.replace("{", '{"channels": [], ', 1),
        "a second key of the same name, escaped": text.replace("{", '{"ch\\u0061nnels": [], ', 1),
        "a second key where nothing is read": text.replace("{", '{"more": {"a": 1, "a": 1}, ', 1),
        "33 deep": text.replace("{", '{"more": ' + "[" * 32 + "]" * 32 + ", ", 1),
        "bytes follow": text + " {}",
        "cut": text[:-1],
        "a byte order mark": "\ufeff" + text,
        "a control character": text.replace("job_1", "job\t1", 1),
        "no JSON": "invoice",
        "empty": "",
        "a list": f"[{text}]",
        "null": "null",
    }
    for name, bent in texts.items():
        assert bent != text
        yield name, (lambda bent=bent: Case(None, [None], bent))


def changed(at: str, rows: Callable[[Any], list[Any]], index: int, name: str, value: Any) -> Make:
    """A signed body with one field that its table does not allow."""
    positions, sign, body = (
        (TERMS, sign_terms, "terms") if at == "terms" else (RECEIPT, sign_receipt, "body")
    )

    def work(evidence: Any) -> None:
        row = rows(evidence)[index]
        fields = opened(row, body)
        fields[positions[name]] = value
        sign(row, fields)

    return lambda: bend(work, small)


def receipts(evidence: Any) -> list[Any]:
    return evidence["channels"][0]["receipts"]


def leases(evidence: Any) -> list[Any]:
    return evidence["leases"]


LIMITS: dict[str, tuple[tuple[str, Any], ...]] = {
    "terms": (
        ("lease", 1), ("lease", "l" * 201), ("job", "a\0b"), ("magic", -1), ("magic", 2**63),
        ("magic", True), ("adapter_vk", bytes(31)), ("payout", "07" * 28), ("resource", "tpu"),
        ("rate_micro", 0), ("rate_micro", 1.0), ("units_milli", 0), ("ceiling", 0), ("fee_bps", 101),
        ("tick_ms", 999), ("tick_ms", 60_001), ("asset", "token"), ("asset", "AB" * 28),
        ("asset", "ab" * 27), ("asset", "ab" * 61), ("devices", None),
    ),
    "receipt": (
        ("lease", b"lease_1"), ("lease", "l" * 65), ("seq", 0), ("seq", "1"), ("t0_ms", -1),
        ("t1_ms", 2**63), ("t1_ms", 1000.0), ("device", bytes(33)), ("resource", "tpu"),
        ("unit_ms_total", None), ("lease_owed", False), ("channel_owed", 2**64), ("lost", None),
        ("lost", [["xid"]]), ("lost", [["xid", -1]]), ("lost", [["x" * 41, 1]]), ("lost", [[1, 1]]),
        ("lost", {"xid": 1}), ("readings", bytes(31)), ("previous", None), ("final", 1),
    ),
}  # fmt: skip


def bodies(at: str, rows: Callable[[Any], list[Any]]) -> Iterator[tuple[str, Make]]:
    """Terms (I1) or receipts (I3) that are none."""
    body = "terms" if at == "terms" else "body"
    sign: Callable[..., None] = sign_terms if at == "terms" else sign_receipt

    def exactly(make: Callable[[str], str]) -> Make:
        def work(evidence: Any) -> None:
            row = rows(evidence)[0]
            sign(row, opened(row, body), bytes.fromhex(make(row[body])))

        return lambda: bend(work, small)

    def fields(make: Callable[[list[Any]], object]) -> Make:
        def work(evidence: Any) -> None:
            row = rows(evidence)[0]
            given = opened(row, body)
            make(given)
            sign(row, given)

        return lambda: bend(work, small)

    for name, value in LIMITS[at]:
        yield f"{name} is {str(value)[:24]}", changed(at, rows, 0, name, value)
    yield "not canonical", exactly(longer)
    yield "a byte follows", exactly(lambda data: data + "00")
    yield "cut", exactly(lambda data: data[:-2])
    yield "no CBOR", exactly(lambda data: "ff" + data)
    yield "a field too many", fields(lambda given: given.append(0))
    yield "a field too few", fields(lambda given: given.pop())
    yield "of another kind", fields(lambda given: given.__setitem__(0, "tally/other/v1"))


def order_one(evidence: Any) -> None:
    """Terms of a provider whose key signs everything: no secret is needed."""
    row = leases(evidence)[0]
    fields = opened(row, "terms")
    fields[TERMS["adapter_vk"]] = IDENTITY
    sign_terms(row, fields)
    row["adapter_signature"] = (base_point() + (1).to_bytes(32, "little")).hex()


def base_point() -> bytes:
    """Ed25519's B, compressed (RFC 8032)."""
    return bytes.fromhex("58" + "66" * 31)


def set_(path: Callable[[Any], dict[str, Any]], key: str, value: Any) -> Make:
    return lambda: bend(lambda e: path(e).__setitem__(key, value))


def drop(rows: Callable[[Any], list[Any]], *at: int) -> Make:
    def work(evidence: Any) -> None:
        for i in sorted(at, reverse=True):
            del rows(evidence)[i]

    return lambda: bend(work)


def swapped(evidence: Any) -> None:
    one, two = leases(evidence)[0], leases(evidence)[1]
    key = "adapter_signature"
    one[key], two[key] = two[key], one[key]


def on_two_channels(evidence: Any) -> None:
    """One lease, agreed upon twice: on this channel and on another."""
    other = terms("lease_1", session_vk=OTHER_SESSION.verify_key)
    leases(evidence).append(lease_row(other, OTHER_SESSION))


def after_final(evidence: Any) -> None:
    """Lease 2 goes on after its last receipt."""
    rows = receipts(evidence)
    fields = opened(rows[3], "body")
    t1 = fields[RECEIPT["t1_ms"]]
    fields[RECEIPT["seq"]], fields[RECEIPT["t0_ms"]] = 6, t1
    fields[RECEIPT["channel_owed"]] = 4101
    rows.append({})
    sign_receipt(rows[5], fields)
    rechain(rows, 5)


def without_channel(evidence: Any, index: int = 0) -> None:
    del evidence["channels"][index]


def no_leases_on_first(evidence: Any) -> None:
    evidence["leases"] = evidence["leases"][2:]


def hour_in_a_second(evidence: Any) -> None:
    """What a voucher signed ahead would pay: an hour of GPU in the first tick."""
    evidence["leases"][1:] = []
    evidence["channels"][1:] = []
    rows = receipts(evidence)
    rows[1:] = []
    units = 3_600_000
    restate(evidence, 0, unit_ms_total=units, lease_owed=2 * units, channel_owed=2 * units)
    evidence["channels"][0]["voucher"] = voucher_row(SESSION, 10_000_000)


def grown(evidence: Any, units: int, lost: list[Any]) -> None:
    """The third receipt (lease 1, 1,000 ms to 2,000 ms) states *units* in all."""
    due = 2 * units
    restate(
        evidence, 2, unit_ms_total=units, lease_owed=due, channel_owed=due + 1, lost=lost
    )  # fmt: skip


BREAK: dict[str, dict[str, Make]] = {
    "I1.adapter": {
        "no signature of the provider": set_(lambda e: leases(e)[0], "adapter_signature", "00" * 64),
        "the provider's signature of other terms": lambda: bend(swapped),
        "one bit of the provider's signature": lambda: bend(lambda e: flip(leases(e)[0], "adapter_signature")),
        "a key of small order": lambda: bend(order_one),
    },
    "I1.session": {
        "the consumer did not sign": set_(lambda e: leases(e)[0], "session_signature", ""),
        "another key signed for the consumer": lambda: bend(
            lambda e: leases(e)[0].update(session_signature=ELSEWHERE.sign(bytes.fromhex(leases(e)[0]["terms"])).hex())),
        "one bit of the consumer's signature": lambda: bend(lambda e: flip(leases(e)[0], "session_signature")),
    },
    "I1.twice": {
        "the same terms twice": lambda: bend(lambda e: leases(e).append(dict(leases(e)[0]))),
        "two prices for one lease": lambda: bend(
            lambda e: leases(e).append(lease_row(terms(rate_micro=1), SESSION))),
        "one lease on two channels": lambda: bend(on_two_channels),
    },
    "I10.job": {
        "the job is renamed": lambda: bend(lambda e: e.update(job="job_9")),
        "another job's leases only": lambda: bend(
            lambda e: (leases(e).__delitem__(2), leases(e).__delitem__(0), without_channel(e, 1))),
    },
    "I2.twice": {
        "a channel stands twice": lambda: bend(lambda e: e["channels"].append(e["channels"][0])),
        "a channel stands twice, once without receipts": lambda: bend(
            lambda e: e["channels"].append({**e["channels"][0], "receipts": [], "voucher": None})),
    },
    "I2.named": {
        "a lease names another channel": lambda: bend(
            lambda e: leases(e)[0].update(channel=leases(e)[2]["channel"])),
        "terms of another session key": set_(lambda e: leases(e)[0], "channel", ELSEWHERE.verify_key.hex()),
    },
    "I2.absent": {
        "the first channel is missing": lambda: bend(without_channel),
        "the retry's channel is missing": lambda: bend(lambda e: without_channel(e, 1)),
        "all channels are missing": lambda: bend(lambda e: e.update(channels=[])),
    },
    "I2.bare": {
        "no terms of the channel's leases": lambda: bend(no_leases_on_first),
        "a foreign channel beside": lambda: bend(lambda e: e["channels"].append(
            {**e["channels"][1], "session_vk": ELSEWHERE.verify_key.hex(), "receipts": []})),
        "channels and no leases": lambda: bend(lambda e: e.update(leases=[])),
    },
    "I2.agree": {
        "another payout": lambda: bend(lambda e: retell(e, 1, payout=b"\x08" * 28)),
        "another network": lambda: bend(lambda e: retell(e, 1, magic=1)),
        "another asset": lambda: bend(lambda e: retell(e, 1, asset="ab" * 30)),
        "another fee": lambda: bend(lambda e: retell(e, 1, fee_bps=51)),
    },
    "I3.channel": {
        "another channel's receipt": lambda: bend(
            lambda e: receipts(e).append(e["channels"][1]["receipts"][0])),
        "another channel's receipt first": lambda: bend(
            lambda e: receipts(e).insert(0, e["channels"][1]["receipts"][0])),
        "another session key in it": lambda: bend(
            lambda e: restate(e, 0, session_vk=ELSEWHERE.verify_key)),
    },
    "I3.lease": {
        "no terms of its lease": drop(leases, 1),
        "a lease that nobody knows": lambda: bend(lambda e: restate(e, 0, lease="lease_9")),
        "a lease of another channel": lambda: bend(lambda e: restate(e, 0, lease="lease_3")),
    },
    "I3.signature": {
        "nobody signed it": set_(lambda e: receipts(e)[0], "signature", "00" * 64),
        "one bit of its signature": lambda: bend(lambda e: flip(receipts(e)[4], "signature")),
        "the consumer signed it": lambda: bend(lambda e: receipts(e)[2].update(
            signature=SESSION.sign(bytes.fromhex(receipts(e)[2]["body"])).hex())),
        "a number changed after it was signed": lambda: bend(lambda e: change_after(e, lease_owed=1)),
        "lost time invented after it was signed": lambda: bend(lambda e: change_after(e, lost=[["xid", 5]])),
        "another form of its signature": lambda: bend(second_s),
    },
    "I4.seq": {
        "the first is missing": drop(receipts, 0),
        "one in the middle is missing": drop(receipts, 2),
        "order exchanged": lambda: bend(lambda e: receipts(e).reverse()),
        "the other job's are left out": lambda: bend(other_jobs_left_out),
        "one stands twice": lambda: bend(lambda e: receipts(e).insert(1, receipts(e)[0])),
        "the last stands twice": lambda: bend(lambda e: receipts(e).append(receipts(e)[-1])),
        "a number is left out": lambda: bend(lambda e: restate(e, 4, seq=6)),
        "the first is not 1": lambda: bend(lambda e: restate(e, 0, seq=2)),
    },
    "I4.previous": {
        "another hash": lambda: bend(lambda e: restate(e, 2, chained=False, previous=bytes(32))),
        "the first follows something": lambda: bend(lambda e: restate(e, 0, previous=b"\x01" * 32)),
        "another receipt before it": lambda: bend(lambda e: restate(e, 1, chained=False, readings=b"\x01" * 32)),
    },
    "I4.final": {"the lease goes on after its last": lambda: bend(after_final)},
    "I4.backwards": {
        "it ends before it begins": lambda: bend(lambda e: restate(e, 2, t1_ms=999)),
    },
    "I4.gap": {
        "time is left out": lambda: bend(lambda e: restate(e, 2, t0_ms=1001)),
        "time is counted twice": lambda: bend(lambda e: restate(e, 2, t0_ms=999)),
        "the first does not begin at 0": lambda: bend(lambda e: restate(e, 0, t0_ms=1)),
    },
    "I4.shrinks": {
        "usage shrinks": lambda: bend(lambda e: restate(e, 2, unit_ms_total=999, lease_owed=1998)),
    },
    "I4.owed": {
        "a lovelace too much": lambda: bend(lambda e: restate(e, 0, lease_owed=2001, channel_owed=2001)),
        "a lovelace too little": lambda: bend(lambda e: restate(e, 0, lease_owed=1999, channel_owed=1999)),
        "another rate in the terms": lambda: bend(lambda e: retell(e, 0, rate_micro=1_000_000_000)),
        "rounded up": lambda: bend(lambda e: restate(e, 1, lease_owed=2, channel_owed=2002)),
    },
    "I4.sum": {
        "the channel's total is not the sum": lambda: bend(lambda e: restate(e, 1, channel_owed=9000)),
        "the channel's total forgets the other lease": lambda: bend(lambda e: restate(e, 4, channel_owed=4100)),
    },
    "I5.resource": {"another resource": lambda: bend(lambda e: restate(e, 0, resource="core"))},
    "I5.device": {"other devices": lambda: bend(lambda e: restate(e, 0, device=bytes(32)))},
    "I5.ceiling": {
        "above its ceiling": lambda: bend(lambda e: retell(e, 0, ceiling=1999)),
        "above its ceiling at last": lambda: bend(lambda e: retell(e, 0, ceiling=4099)),
    },
    "I9.total": {
        "an hour in a second": lambda: bend(hour_in_a_second),
        "a unit-ms more than its time": lambda: bend(
            lambda e: restate(e, 0, unit_ms_total=1001, lease_owed=2002, channel_owed=2002)),
        "fewer units in the terms": lambda: bend(lambda e: retell(e, 0, units_milli=999)),
    },
    "I9.growth": {
        "what was lost is billed": lambda: bend(lambda e: grown(e, 1753, [["gpu_lost", 250]])),
        "what was paused is billed": lambda: bend(lambda e: grown(e, 1503, [["paused", 500]])),
        "causes together": lambda: bend(lambda e: grown(e, 1503, [["paused", 250], ["xid", 250]])),
        "later than it was used": lambda: bend(saved_up),
    },
    "I9.lost": {
        "more lost than there was": lambda: bend(lambda e: grown(e, 1000, [["gpu_lost", 1001]])),
        "more lost than there was, by several causes": lambda: bend(
            lambda e: grown(e, 1000, [["gpu_lost", 600], ["paused", 401]])),
    },
    "I6.signature": {
        "nobody signed it": lambda: bend(lambda e: e["channels"][0]["voucher"].update(signature="00" * 64)),
        "another channel's key": lambda: bend(
            lambda e: e["channels"][0].update(voucher=voucher_row(OTHER_SESSION, 4101))),
        "raised": lambda: bend(lambda e: e["channels"][0]["voucher"].update(cumulative=4102)),
        "lowered": lambda: bend(lambda e: e["channels"][0]["voucher"].update(cumulative=4100)),
    },
    "I2.ledger": {
        "another payout": lambda: consts(2, "08" * 28),
        "another session key": lambda: consts(0, ELSEWHERE.verify_key.hex()),
        "another finisher": lambda: consts(1, "08" * 28),
        "another consumer": lambda: consts(3, "08" * 28),
        "another close period": lambda: consts(4, 60_001),
        "another fee": lambda: consts(5, 51),
        "another channel": lambda: on_ledger(session_vk=ELSEWHERE.verify_key.hex()),
    },
    "I7.signed": {
        "more claimed than signed": lambda: on_ledger(claimed=4102, refunded=11_995_898),
        "claimed without a voucher": lambda: voucherless(),
        "more claimed than a smaller voucher": lambda: smaller_voucher(),
    },
    "I7.delivered": {
        "signed ahead: more claimed than delivered": lambda: ahead(4102),
        "signed ahead: all of it claimed, still open": lambda: ahead(
            9000, refunded=0, held=11_991_000, ended=False),
        "the last receipt is missing": lambda: cut_after_claim(1),
        "all receipts are missing": lambda: cut_after_claim(5),
    },
    "I7.due": {
        "ended with less than was signed": lambda: on_ledger(claimed=4100, refunded=11_995_900),
        "signed ahead: ended with less than was delivered": lambda: ahead(4100),
    },
    "I8.sum": {
        "money is missing": lambda: on_ledger(refunded=11_995_898),
        "money came from nowhere": lambda: on_ledger(held=1),
        "more went in than is shown": lambda: on_ledger(funded=12_000_001),
    },
}  # fmt: skip


def flip(row: dict[str, Any], name: str) -> None:
    data = bytearray.fromhex(row[name])
    data[40] ^= 1
    row[name] = data.hex()


def change_after(evidence: Any, **change: Any) -> None:
    row = receipts(evidence)[0]
    signature = row["signature"]
    restate(evidence, 0, chained=False, **change)
    row["signature"] = signature


def second_s(evidence: Any) -> None:
    """The same signature with S + L: valid to whoever does not compare S with the group's order."""
    row = receipts(evidence)[0]
    data = bytes.fromhex(row["signature"])
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(data[32:], "little") + order
    row["signature"] = (data[:32] + s.to_bytes(32, "little")).hex()


def other_jobs_left_out(evidence: Any) -> None:
    """Lease 2's terms and receipts are gone: a chain of lease 1 alone."""
    del leases(evidence)[1]
    del receipts(evidence)[3], receipts(evidence)[1]


def saved_up(evidence: Any) -> None:
    """Little in the first tick, and the rest of its time in the next."""
    restate(evidence, 0, unit_ms_total=500, lease_owed=1000, channel_owed=1000)
    restate(evidence, 1, channel_owed=1001)
    grown(evidence, 1753, [])


def consts(at: int, value: Any) -> Case:
    case = whole()
    facts_ = case.ledger[0]
    assert facts_ is not None
    facts_["consts"][at] = value
    return case


def voucherless() -> Case:
    case = whole()
    case.evidence["channels"][0]["voucher"] = None
    return case


def smaller_voucher() -> Case:
    case = whole()
    case.evidence["channels"][0]["voucher"] = voucher_row(SESSION, 4100)
    return case


def cut_after_claim(count: int) -> Case:
    case = whole()
    del receipts(case.evidence)[-count:]
    return case


def breaks() -> Iterator[tuple[str, str, Make]]:
    """(row of the page, name, case)."""
    for name, make in malformed():
        yield "MALFORMED.form", name, make
    for name, make in bodies("terms", leases):
        yield "I1.terms", name, make
    for name, make in bodies("receipt", receipts):
        yield "I3.receipt", name, make
    for row, cases in BREAK.items():
        for name, make in cases.items():
            yield row, name, make
    yield from golden_routes.breaks()


def vectors() -> list[dict[str, Any]]:
    """What docs/invoice.md points other verifiers to."""
    found: list[dict[str, Any]] = []
    for name, make in HOLD.items():
        case = make()
        found.append(
            {"name": name, "rule": "", "way": "", "expect": answer(case), "evidence": case.json(),
             "ledger": case.ledger}
        )  # fmt: skip
    for row, name, make in breaks():
        case = make()
        rule, way = row.split(".")
        found.append(
            {"name": f"{row}: {name}", "rule": rule, "way": way, "expect": None,
             "evidence": case.json(), "ledger": case.ledger}
        )  # fmt: skip
    return found
