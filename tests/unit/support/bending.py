"""Random evidence that holds, and random hands that bend it: JSON, signed bodies, or the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

import cbor2

from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Lost
from tests.unit.support import bending_routes
from tests.unit.support.invoice import (
    KEYS,
    OTHER_SESSION,
    RECEIPT,
    SESSION,
    Case,
    channel_row,
    lease_row,
    ledger_row,
    longer,
    opened,
    rechain,
    sign_receipt,
    sign_terms,
    voucher_row,
)
from tests.unit.support.payer import Paper, terms

STRANGER: Final = Signer(b"\x0b" * 32)
UNITS: Final = (1000, 1000, 2000, 250, 333, 10)
CAUSES: Final = ("pulling", "starting", "paused", "gpu_lost", "ü", "😀", "")


def honest(dice: Random) -> Case:
    """One or two channels, up to three leases on each, and everything as it should be."""
    evidence: dict[str, Any] = {"job": "job_1", "leases": [], "channels": []}
    ledger: list[dict[str, Any] | None] = []
    for number, session in enumerate((SESSION, OTHER_SESSION)[: dice.choice((1, 1, 2))]):
        asset = dice.choice(("", "", "ab" * 30))
        agreed = [
            terms(
                f"lease_{number}{i}", job="job_1" if i == 0 else dice.choice(("job_1", "job_2")),
                session_vk=session.verify_key, resource=dice.choice(("gpu", "core")), asset=asset,
                units_milli=dice.choice(UNITS), rate_micro=dice.randint(1, 4_000_000_000),
            )
            for i in range(dice.randint(1, 3))
        ]  # fmt: skip
        paper, over = Paper(), set[str]()
        for _ in range(dice.randint(0, 6)):
            one = dice.choice(agreed)
            if one.lease not in over:
                ms, final = dice.randint(0, 3000), dice.random() < 0.15
                gone = dice.randint(0, ms) if dice.random() < 0.4 else 0
                lost = (Lost(dice.choice(CAUSES), gone),) if gone else ()
                paper.tick(one, ms, billed=ms - gone, lost=lost, final=final)
                over |= {one.lease} if final else set()
        owed = paper.last.channel_owed if paper.last else 0
        paid = dice.choice((None, 0, owed // 2, owed, owed, owed, owed + 5000))
        tx = ("ab" if number == 0 else "cd") * 32
        evidence["leases"] += [lease_row(one, session) for one in agreed]
        evidence["channels"].append(channel_row(paper, session, paid, tx))
        ledger.append(settled(dice, agreed[0], min(paid or 0, owed)))
    dice.shuffle(evidence["leases"])
    return Case(evidence, ledger)


def settled(dice: Random, agreed: Any, due: int) -> dict[str, Any] | None:
    """Not asked, still open with some of it claimed, or ended with what is due."""
    if dice.random() < 0.3:
        return None
    if dice.random() < 0.3:
        claimed = dice.randint(0, due)
        row = ledger_row(agreed, claimed, refunded=0, ended=False)
        return {**row, "held": row["funded"] - claimed}
    return ledger_row(agreed, due)


# --- hands that bend ------------------------------------------------------------------------------

JUNK: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 7, 2**53 + 1, 2**63 - 1, 2**63, "", "x", "00", "AB", [], {}, [[]],
    [None], {"a": 1}, "job_2", "😀", "\ud800", "a\0b",
)  # fmt: skip
SIGNED_JUNK: Final[tuple[Any, ...]] = (
    None, True, 0, 1, -1, 999, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 1.5, "", "x", "a\0b", "gpu",
    "core", "é" * 64, "😀" * 64, "😀" * 65, "y" * 201, b"", bytes(28), bytes(32), b"\xff" * 32, [], [["xid", 1]],
    [["xid", 2**63 - 1], ["xid", 2**63 - 1]], [["b", 1], ["a", 0], ["b", 2]], [[1, 1]], {}, {"a": 1},
    [0, [1, [2]]], "ab" * 28, "AB" * 28,
)  # fmt: skip


def everywhere(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    found: list[tuple[Any, Any]] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        found.append((value, key))
        if isinstance(inner, (dict, list)):
            found += everywhere(inner)
    return found


def receipts(dice: Random, case: Case) -> list[Any]:
    return dice.choice(case.evidence["channels"])["receipts"]


def lists(dice: Random, case: Case) -> list[Any]:
    """The leases, the channels, or some channel's receipts."""
    return dice.choice((case.evidence["leases"], case.evidence["channels"], receipts(dice, case)))


def junk(dice: Random, case: Case) -> None:
    holder, key = dice.choice(everywhere(case.evidence))
    holder[key] = dice.choice(JUNK)


def forget(dice: Random, case: Case) -> None:
    holder, key = dice.choice(everywhere(case.evidence))
    del holder[key]


def repeat(dice: Random, case: Case) -> None:
    rows = lists(dice, case)
    if rows:
        rows.insert(dice.randint(0, len(rows)), dice.choice(rows))


def shuffle(dice: Random, case: Case) -> None:
    dice.shuffle(lists(dice, case))


def drop(dice: Random, case: Case) -> None:
    rows = lists(dice, case)
    if rows:
        rows.pop(dice.randrange(len(rows)))


def cut(dice: Random, case: Case) -> None:
    rows = receipts(dice, case)
    del rows[dice.randint(0, len(rows)) :]


def letters(dice: Random, case: Case) -> None:
    """One letter of a hex text: another digit, upper-case, a space."""
    texts = [(h, k) for h, k in everywhere(case.evidence) if isinstance(h[k], str) and h[k]]
    holder, key = dice.choice(texts)
    at = dice.randrange(len(holder[key]))
    text = holder[key]
    letter = dice.choice((dice.choice("0123456789abcdef"), " ", text[at].upper(), ""))
    holder[key] = text[:at] + letter + text[at + 1 :]


def exchange(dice: Random, case: Case) -> None:
    """Two texts of the same name change places: signatures, bodies, channels."""
    name = dice.choice(
        ("signature", "adapter_signature", "session_signature", "body", "terms", "channel")
    )
    rows = [h for h, k in everywhere(case.evidence) if k == name]
    if len(rows) > 1:
        one, two = dice.sample(rows, 2)
        one[name], two[name] = two[name], one[name]


def rename(dice: Random, case: Case) -> None:
    case.evidence["job"] = dice.choice(("job_2", "job_9", "job_1"))


def other_voucher(dice: Random, case: Case) -> None:
    row = dice.choice(case.evidence["channels"])
    held = row["voucher"]["cumulative"] if row["voucher"] else 0
    amount = max(0, dice.choice((held + 1, held - 1, held * 2, 0, 2**63 - 1)))
    row["voucher"] = voucher_row(dice.choice([*KEYS.values(), STRANGER]), amount)


def other_terms(dice: Random, case: Case) -> None:
    """A field of signed terms, signed again by both."""
    row = dice.choice(case.evidence["leases"])
    fields = opened(row, "terms")
    at = dice.randrange(len(fields))
    fields[at] = near(dice, fields[at])
    sign_terms(row, fields)
    if isinstance(fields[9], bytes) and dice.random() < 0.5:
        row["channel"] = fields[9].hex()


def other_receipt(dice: Random, case: Case) -> None:
    """A field of a signed receipt, signed again; mostly the chain follows it."""
    rows = receipts(dice, case)
    if not rows:
        return
    at = dice.randrange(len(rows))
    fields = opened(rows[at], "body")
    which = dice.randrange(len(fields))
    fields[which] = near(dice, fields[which])
    sign_receipt(rows[at], fields)
    if dice.random() < 0.8:
        rechain(rows, at + 1)


def near(dice: Random, value: Any) -> Any:
    """A value beside *value*, or of another kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and dice.random() < 0.7:
        return value + dice.choice((-1000, -2, -1, 1, 1, 2, 1000, 10**9))
    if isinstance(value, bytes) and value and dice.random() < 0.6:
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, list) and dice.random() < 0.7:
        return [*value, [dice.choice(CAUSES), dice.choice((0, 1, 500, 10_000))]]
    return dice.choice(SIGNED_JUNK)


def overbill(dice: Random, case: Case) -> None:
    """More usage from one receipt on, with every sum in order: only time and ceiling can tell."""
    rows = receipts(dice, case)
    if not rows:
        return
    start, extra = dice.randrange(len(rows)), dice.choice((1, 2, 3, 100, 3_600_000))
    lease = opened(rows[start], "body")[RECEIPT["lease"]]
    rate = rates(case).get(lease, 1)
    before, before_channel = 0, 0
    for at, row in enumerate(rows):
        fields = opened(row, "body")
        owed = fields[RECEIPT["lease_owed"]]
        if at >= start and fields[RECEIPT["lease"]] == lease:
            fields[RECEIPT["unit_ms_total"]] += extra
            total = fields[RECEIPT["unit_ms_total"]] * rate // 10**9
            before_channel = total - owed
            fields[RECEIPT["lease_owed"]] = total
        fields[RECEIPT["channel_owed"]] += before_channel
        before += 1
        sign_receipt(row, fields)
        rechain(rows, at + 1)


def rates(case: Case) -> dict[str, int]:
    found = (opened(row, "terms") for row in case.evidence["leases"])
    return {fields[2]: fields[12] for fields in found}


def more_lost(dice: Random, case: Case) -> None:
    rows = receipts(dice, case)
    if rows:
        at = dice.randrange(len(rows))
        fields = opened(rows[at], "body")
        room = fields[RECEIPT["t1_ms"]] - fields[RECEIPT["t0_ms"]]
        cause = dice.choice(CAUSES)
        fields[RECEIPT["lost"]] = [[cause, max(0, room + dice.choice((-1, 0, 1, 2, -room // 2)))]]
        sign_receipt(rows[at], fields)
        rechain(rows, at + 1)


def encoding(dice: Random, case: Case) -> None:
    """The same value in other bytes, properly signed."""
    rows = case.evidence["leases"] if dice.random() < 0.5 else receipts(dice, case)
    if not rows:
        return
    row = dice.choice(rows)
    name, sign = ("terms", sign_terms) if "terms" in row else ("body", sign_receipt)
    change = dice.choice((longer, lambda b: b + "00", lambda b: b[:-2], lambda b: "c1" + b))
    sign(row, opened(row, name), bytes.fromhex(change(row[name])))


def ledger(dice: Random, case: Case) -> None:
    found = [row for row in case.ledger if row is not None]
    if not found:
        return
    row = dice.choice(found)
    name = dice.choice(
        ("claimed", "claimed", "refunded", "held", "funded", "ended", "consts", "moved")
    )
    if name == "ended":
        row["ended"] = not row["ended"]
    elif name == "consts":
        at = dice.randrange(6)
        row["consts"][at] = "08" * 28 if at < 4 else row["consts"][at] + 1
    elif name == "moved":
        amount = dice.choice((1, 100, 100_000))
        row["claimed"] += amount
        row["refunded" if row["ended"] else "held"] -= amount
    else:
        row[name] += dice.choice((1, 2, 1000))


def text(dice: Random, case: Case) -> None:
    """The text itself: a second key, another form of a number, a cut."""
    whole = json.dumps(case.evidence)
    at = dice.choice([i for i, letter in enumerate(whole) if letter == "{"]) + 1
    first = whole[at:].split(":")[0]
    case.text = dice.choice(
        (
            lambda: whole[:at] + f"{first}: null, " + whole[at:] if first.startswith('"') else whole,
            lambda: whole.replace('"index": 0', dice.choice(('"index": 0.0', '"index": -0', '"index": 0e0', '"index": 00'))),
            lambda: whole[: dice.randint(0, len(whole))],
            lambda: whole + dice.choice((" ", "\n", "x", ",", "\u00a0", "\0")),
            lambda: whole[:at] + dice.choice(('"more": 1.5, ', '"more": [{}], ', '"__proto__": {}, ', '"more": "\\ud800", ', '"more": "\\x", ', '"more": 12345678901234567890, ', "'more': 1, ")) + whole[at:],
        )
    )()  # fmt: skip


def nothing(dice: Random, case: Case) -> None:
    """Left as it is: most evidence must hold."""


BENDS: Final[tuple[Callable[[Random, Case], None], ...]] = (
    junk, forget, repeat, shuffle, drop, cut, letters, exchange, rename, other_voucher, other_terms,
    other_terms, other_terms, other_receipt, other_receipt, other_receipt, overbill, overbill, more_lost,
    encoding, ledger, ledger, text, nothing,
)  # fmt: skip


def bent(dice: Random) -> Case:
    """Honest evidence, routed or not, after one hand; after two, now and then."""
    over = dice.random() < 0.4
    case = bending_routes.honest(dice) if over else honest(dice)
    hands = [*BENDS, *bending_routes.BENDS] if over else BENDS
    for hand in dice.choices(hands, k=dice.choice((1, 1, 1, 2))):
        if case.text is None:
            try:
                hand(dice, case)
            except (
                LookupError, TypeError, ValueError, AttributeError, cbor2.CBORError, EOFError, Malformed,
            ):  # fmt: skip
                continue  # the second hand found nothing left to take
    return replace(case)
