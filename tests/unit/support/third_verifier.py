"""A third verifier, generated from the tables of ``docs/invoice.md``.

Fields, types, limits and the order of rules are read from the page; the arithmetic of each rule is
written here in the page's words. It knows nothing of ``marketplace.domain``: JSON, CBOR, blake2b
and Ed25519 come from libraries, and what the page does not say it cannot do.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import cbor2
import nacl.exceptions
import nacl.signing

from tests.unit.support.page import table

MAX: Final = 9223372036854775807
CHANNEL_CONSTS: Final = (
    "session_vk", "adapter_vkh", "payout", "consumer_vkh", "close_period_ms", "fee_bps",
)  # fmt: skip


class Not(Exception):
    """A field that is not as its table says."""


# --- the tables -----------------------------------------------------------------------------------


def number(text: str) -> int:
    return MAX if text == "max" else int(text)


def span(limit: str) -> Callable[[int], bool]:
    """``32``, ``0 or 64``, ``1..max``: which sizes or values are allowed."""
    if " or " in limit:
        return lambda n: n in {number(part) for part in limit.split(" or ")}
    low, dots, high = limit.partition("..")
    least, most = number(low), number(high if dots else low)
    return lambda n: least <= n <= most


def is_text(value: Any, size: Callable[[int], bool]) -> bool:
    return (
        isinstance(value, str)
        and size(len(value))
        and not any(c == "\0" or 0xD800 <= ord(c) <= 0xDFFF for c in value)
    )


def is_integer(value: Any, fits: Callable[[int], bool]) -> bool:
    return type(value) is int and fits(value)


def signed_type(row: dict[str, str]) -> Callable[[Any], bool]:
    """What the tables of terms and receipts say of one field."""
    kind, limit = row["type"], row["limit"]
    if kind == "integer":
        return lambda v: is_integer(v, span(limit))
    if kind == "bytes":
        return lambda v: isinstance(v, bytes) and len(v) == int(limit)
    if kind == "boolean":
        return lambda v: v is True or v is False
    if kind == "list of [cause, ms]":
        letters, most = (span(part) for part in limit.split(", "))
        return lambda v: (
            isinstance(v, list)
            and all(isinstance(x, list) and len(x) == 2 for x in v)
            and all(is_text(c, letters) and is_integer(ms, most) for c, ms in v)
        )
    assert kind == "text", row
    if limit.startswith("empty or"):
        letters = span(limit.split()[2])
        return lambda v: (
            v == "" or (is_text(v, letters) and re.fullmatch("([0-9a-f][0-9a-f])+", v) is not None)
        )
    if "`" in limit or not limit[0].isdigit():  # words of which it is one
        words = [word.strip("`") for word in limit.split(" or ")]
        return lambda v: v in words
    return lambda v: is_text(v, span(limit))


RECORDS: Final = {
    name: [(row[name], signed_type(row)) for row in table("#", name)]
    for name in ("terms", "receipt", "route", "router", "statement")
}
_ROUTED = {int(row["#"]): row for row in table("#", "routed terms")}
RECORDS["routed terms"] = [
    *((_ROUTED[i]["routed terms"], signed_type(_ROUTED[i])) if i in _ROUTED else one
      for i, one in enumerate(RECORDS["terms"])),
    (_ROUTED[25]["routed terms"], signed_type(_ROUTED[25])),
]  # fmt: skip
OBJECTS: Final[dict[str, list[dict[str, str]]]] = {}
for _row in table("object", "field"):
    OBJECTS.setdefault(_row["object"], []).append(_row)
RULES: Final = [(row["each"], row["rule"], row["way"]) for row in table("step")]


# --- the evidence ---------------------------------------------------------------------------------


def one_reading(text: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise Not("a key twice")
        return dict(pairs)

    def refuse(token: str) -> Any:
        raise Not(token)

    def integer(token: str) -> int:
        return int(token) if len(token) <= 20 else refuse(token)

    def deep(value: Any, depth: int) -> None:
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, (dict, list)):
            if depth == 32:
                raise Not("deep")
            for one in inner:
                deep(one, depth + 1)

    value = json.loads(
        text, object_pairs_hook=once, parse_int=integer, parse_float=refuse, parse_constant=refuse
    )
    deep(value, 0)
    return value


def shaped(kind: str, value: Any) -> dict[str, Any]:
    """An object of the evidence, each field by its row; hex becomes bytes."""
    if not isinstance(value, dict):
        raise Not(kind)
    found: dict[str, Any] = {}
    for row in OBJECTS[kind]:
        name, type_, limit, missing = (row[k] for k in ("field", "type", "limit", "missing"))
        if name not in value or (value[name] is None and missing == "none"):
            if missing == "refused":
                raise Not(name)
            found[name] = None if missing == "none" else int(missing)
            continue
        found[name] = field(type_, limit, value[name])
    return found


def field(type_: str, limit: str, value: Any) -> Any:
    if type_ in OBJECTS:
        return shaped(type_, value)
    if type_.startswith("list of "):
        if not isinstance(value, list):
            raise Not(type_)
        return [shaped(type_.removeprefix("list of "), one) for one in value]
    if type_ == "integer" and is_integer(value, span(limit)):
        return value
    if type_ == "text" and is_text(value, span(limit)):
        return value
    if type_ == "hex" and isinstance(value, str) and re.fullmatch("([0-9a-f][0-9a-f])*", value):
        data = bytes.fromhex(value)
        if span(limit)(len(data)):
            return data
    raise Not(type_)


def record(kind: str, body: bytes) -> dict[str, Any] | None:
    """Terms or a receipt by name; None if it is not canonical or not as the table says."""
    try:
        value = cbor2.loads(body)
        if cbor2.dumps(value, canonical=True) != body:
            return None
    except Exception:  # noqa: BLE001  whatever a decoder says of bytes that are none
        return None
    rows = RECORDS[kind]
    if not isinstance(value, list) or len(value) != len(rows):
        return None
    if not all(fits(v) for (_, fits), v in zip(rows, value, strict=True)):
        return None
    return {name: v for (name, _), v in zip(rows, value, strict=True)}


def signs(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        nacl.signing.VerifyKey(key).verify(message, signature)
    except (nacl.exceptions.BadSignatureError, ValueError, TypeError):
        return False
    return True


def blake(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


# --- the rules ------------------------------------------------------------------------------------


class Bill:
    """The evidence as it is read, row after row."""

    def __init__(self, text: str, ledger: list[Any]) -> None:
        self.text, self.ledger = text, ledger
        self.evidence: dict[str, Any] = {}
        self.terms: list[dict[str, Any]] = []
        self.past: list[bytes] = []  # channels seen in step 4
        self.heard: dict[bytes, list[dict[str, Any]]] = {}

    def on(self, session_vk: bytes) -> list[dict[str, Any]]:
        return [one for one in self.terms if one["session_vk"] == session_vk]

    def owed(self, session_vk: bytes) -> int:
        heard = self.heard.get(session_vk, [])
        return heard[-1]["channel_owed"] if heard else 0

    # each of these says whether its row holds

    def malformed_form(self, _: Any) -> bool:
        try:
            self.evidence = shaped("evidence", one_reading(self.text))
        except (Not, ValueError, RecursionError):
            return False
        return True

    def i1_terms(self, row: Any) -> bool:
        row["read"] = record("terms", row["terms"]) or record("routed terms", row["terms"])
        return row["read"] is not None

    def i1_adapter(self, row: Any) -> bool:
        return signs(row["read"]["adapter_vk"], row["terms"], row["adapter_signature"])

    def i1_session(self, row: Any) -> bool:
        return signs(row["read"]["session_vk"], row["terms"], row["session_signature"])

    def i1_twice(self, row: Any) -> bool:
        return row["read"]["lease"] not in [one["lease"] for one in self.terms]

    def i11_route(self, row: Any) -> bool:
        routed = "route" in row["read"]
        row["way"] = record("route", row["route"]["body"]) if row["route"] else None
        return (row["way"] is not None) if routed else row["route"] is None

    def i11_router(self, row: Any) -> bool:
        shown, way = row["route"], row["way"]
        return not way or signs(way["router_vk"], shown["body"], shown["signature"])

    def i11_hash(self, row: Any) -> bool:
        return not row["way"] or row["read"]["route"] == blake(row["route"]["body"])

    def i11_lease(self, row: Any) -> bool:
        way, terms = row["way"], row["read"]
        mine = (terms["magic"], terms["lease"], terms["session_vk"])
        return not way or (way["magic"], way["lease"], way["lease_vk"]) == mine

    def i11_consumer(self, row: Any) -> bool:
        key = hashlib.blake2b(row["read"]["session_vk"], digest_size=28).digest()
        return not row["way"] or row["read"]["consumer_vkh"] == key

    def i11_pace(self, row: Any) -> bool:
        return not row["way"] or row["read"]["tick_ms"] >= 4 * row["way"]["hop_ms"]

    def i11_commit(self, row: Any) -> bool:
        if not row["way"]:
            return True
        told = [(row["route"][k], row["way"][f"{k}_commit"]) for k in ("in", "out")]
        shown = [(one, sealed) for one, sealed in told if one]
        return bool(shown) and all(
            blake(b"tally/commit/v1" + one["hop"] + one["salt"]) == sealed for one, sealed in shown
        )

    def i11_own(self, channel: Any) -> bool:
        on = self.on(channel["session_vk"])
        if not any("route" in one for one in on):
            return True
        return len(on) == 1 and not channel["open_tx"] and channel["voucher"] is None

    def routed(self) -> list[Any]:
        return [row for row in self.evidence["leases"] if row["way"]]

    def naming(self, hop: Any, side: str) -> list[Any]:
        named = ((row, row["route"][side]) for row in self.routed())
        return [row for row, one in named if one and one["hop"] == hop["session_vk"]]

    def i11_absent(self, row: Any) -> bool:
        there = {hop["session_vk"] for hop in self.evidence["hops"] or []}
        named = [row["route"][k] for k in ("in", "out")] if row["way"] else []
        return all(one["hop"] in there for one in named if one)

    def i11_twice(self, hop: Any) -> bool:
        again = hop["session_vk"] in self.past
        self.past.append(hop["session_vk"])
        hop["side"] = "in" if hop["offer"] else "out"
        hop["on"] = self.naming(hop, hop["side"])
        return not again

    def i11_bare(self, hop: Any) -> bool:
        return bool(self.naming(hop, "in") or self.naming(hop, "out"))

    def i11_side(self, hop: Any) -> bool:
        return not self.naming(hop, "out" if hop["offer"] else "in")

    def i11_offer(self, hop: Any) -> bool:
        if not hop["offer"]:
            return True
        read = hop["asks"] = record("router", hop["offer"]["body"])
        return read is not None and signs(
            read["router_vk"], hop["offer"]["body"], hop["offer"]["signature"]
        )

    def i11_agree(self, hop: Any) -> bool:
        if hop["offer"]:
            asks = hop["asks"]
            if any(asks["router_vk"] != row["way"]["router_vk"] for row in hop["on"]):
                return False
            if any(asks["magic"] != row["read"]["magic"] for row in hop["on"]):
                return False
        payee = () if hop["offer"] else ("adapter_vkh", "payout", "close_period_ms", "fee_bps")
        same = ("magic", "asset", *payee)
        found = {(row["way"]["router_vk"], *(row["read"][k] for k in same)) for row in hop["on"]}
        return len(found) == 1

    def i6_statement(self, hop: Any) -> bool:
        read = hop["says"] = record("statement", hop["statement"]["body"])
        return read is not None and read["session_vk"] == hop["session_vk"]

    def i6_stated(self, hop: Any) -> bool:
        said = hop["statement"]
        return signs(hop["session_vk"], said["body"], said["signature"])

    def i6_leaves(self, hop: Any) -> bool:
        leaves, says = hop["leaves"], hop["says"]
        sums = sum(one["amount"] for one in leaves)
        if len({one["terms"] for one in leaves}) < len(leaves) or not leaves or sums > MAX:
            return False
        return (len(leaves), sums, tree(leaves)) == (says["count"], says["total"], says["root"])

    def i6_leaf(self, hop: Any) -> bool:
        held = {one["terms"] for one in hop["leaves"]}
        if hop["offer"] and hop["leaves"][0]["terms"] != blake(hop["offer"]["body"]):
            return False
        shown = [(row, row["route"][hop["side"]]) for row in self.routed()]
        return all(
            (one["hop"] == hop["session_vk"]) == (blake(row["terms"]) in held)
            for row, one in shown if one
        )  # fmt: skip

    def i6_total(self, hop: Any) -> bool:
        return signed(hop) == hop["says"]["total"]

    def i6_voucher(self, hop: Any) -> bool:
        return self.i6_signature(hop)

    def i12_paid(self, row: Any) -> bool:
        paid, terms = row["route"] and row["route"]["paid"], row["read"]
        if not paid:
            return True
        said = ["tally/paid/v1", terms["session_vk"], terms["lease"], paid["amount"]]
        return signs(terms["adapter_vk"], cbor2.dumps(said, canonical=True), paid["signature"])

    def i12_owed(self, row: Any) -> bool:
        paid = row["route"] and row["route"]["paid"]
        return not paid or paid["amount"] <= self.owed(row["read"]["session_vk"])

    def most(self, hop: Any) -> dict[bytes, int]:
        """What may be claimed of each leaf that is not blind."""
        found = {blake(row["terms"]): self.share(row, hop["side"]) for row in hop["on"]}
        if hop["offer"]:
            found[blake(hop["offer"]["body"])] = hop["asks"]["hop_fee"]
        return found

    def share(self, row: Any, side: str) -> int:
        owed = self.owed(row["read"]["session_vk"])
        return owed + (fee(owed, row["way"]["route_bps"]) if side == "in" else 0)

    def due(self, hop: Any) -> int:
        most = self.most(hop)
        return sum(
            min(one["amount"], most.get(one["terms"], one["amount"])) for one in hop["leaves"]
        )

    def blind(self, hop: Any) -> int:
        most = self.most(hop)
        return sum(one["amount"] for one in hop["leaves"] if one["terms"] not in most)

    def i11_ledger(self, pair: Any) -> bool:
        hop, facts = pair
        names = ("adapter_vkh", "payout", "close_period_ms", "fee_bps")
        asks = {**hop["asks"], "fee_bps": 0} if hop["offer"] else hop["on"][0]["read"]
        plain = [asks[k].hex() if isinstance(asks[k], bytes) else asks[k] for k in names]
        vk, adapter, payout, _, close, bounty = facts["consts"]
        mine = hop["session_vk"].hex()
        return (facts["session_vk"], vk) == (mine, mine) and [
            adapter,
            payout,
            close,
            bounty,
        ] == plain

    def i7_hop_signed(self, pair: Any) -> bool:
        return self.i7_signed(pair)

    def i7_hop_due(self, pair: Any) -> bool:
        return pair[1]["claimed"] <= self.due(pair[0])

    def i7_hop_ended(self, pair: Any) -> bool:
        least = self.due(pair[0]) - self.blind(pair[0])
        return not pair[1]["ended"] or pair[1]["claimed"] >= least

    def i8_hop_sum(self, pair: Any) -> bool:
        return self.i8_sum(pair)

    def i10_job(self, _: Any) -> bool:
        return not self.terms or self.evidence["job"] in [one["job"] for one in self.terms]

    def i2_twice(self, channel: Any) -> bool:
        again = channel["session_vk"] in self.past
        self.past.append(channel["session_vk"])
        return not again

    def i2_named(self, row: Any) -> bool:
        return row["channel"] == row["read"]["session_vk"]

    def i2_absent(self, row: Any) -> bool:
        return row["channel"] in self.past

    def i2_bare(self, channel: Any) -> bool:
        return bool(self.on(channel["session_vk"]))

    def i2_agree(self, channel: Any) -> bool:
        same = ("magic", "asset", *CHANNEL_CONSTS)
        return len({tuple(one[k] for k in same) for one in self.on(channel["session_vk"])}) == 1

    def i3_receipt(self, row: Any) -> bool:
        r = row["read"] = record("receipt", row["body"])
        if r is None:
            return False
        channel = row["of"]["session_vk"]
        row["agreed"] = next((t for t in self.on(channel) if t["lease"] == r["lease"]), None)
        row["before"] = (self.heard.get(channel) or [None])[-1]
        mine = [one for one in self.heard.get(channel, []) if one["lease"] == r["lease"]]
        row["mine"] = mine[-1] if mine else {
            "t1_ms": 0, "unit_ms_total": 0, "lease_owed": 0, "final": False,
        }  # fmt: skip
        row["grown"] = r["unit_ms_total"] - row["mine"]["unit_ms_total"]
        row["lost"] = sum(ms for _, ms in r["lost"])
        return True

    def i3_channel(self, row: Any) -> bool:
        return row["read"]["session_vk"] == row["of"]["session_vk"]

    def i3_lease(self, row: Any) -> bool:
        return row["agreed"] is not None

    def i3_signature(self, row: Any) -> bool:
        return signs(row["agreed"]["adapter_vk"], row["body"], row["signature"])

    def i4_seq(self, row: Any) -> bool:
        return row["read"]["seq"] == (row["before"]["seq"] + 1 if row["before"] else 1)

    def i4_previous(self, row: Any) -> bool:
        return row["read"]["previous"] == (row["before"]["hash"] if row["before"] else bytes(32))

    def i4_final(self, row: Any) -> bool:
        return not row["mine"]["final"]

    def i4_backwards(self, row: Any) -> bool:
        return row["read"]["t1_ms"] >= row["read"]["t0_ms"]

    def i4_gap(self, row: Any) -> bool:
        return row["read"]["t0_ms"] == row["mine"]["t1_ms"]

    def i4_shrinks(self, row: Any) -> bool:
        return row["grown"] >= 0

    def i4_owed(self, row: Any) -> bool:
        due = row["read"]["unit_ms_total"] * row["agreed"]["rate_micro"] // 10**9
        return row["read"]["lease_owed"] == due

    def i4_sum(self, row: Any) -> bool:
        lease = row["read"]["lease_owed"] - row["mine"]["lease_owed"]
        before = row["before"]["channel_owed"] if row["before"] else 0
        return row["read"]["channel_owed"] - before == lease

    def i5_resource(self, row: Any) -> bool:
        return row["read"]["resource"] == row["agreed"]["resource"]

    def i5_device(self, row: Any) -> bool:
        return row["read"]["device"] == row["agreed"]["devices"]

    def i5_ceiling(self, row: Any) -> bool:
        return row["read"]["lease_owed"] <= row["agreed"]["ceiling"]

    def i9_total(self, row: Any) -> bool:
        r, units = row["read"], row["agreed"]["units_milli"]
        return r["unit_ms_total"] <= r["t1_ms"] * units // 1000

    def i9_growth(self, row: Any) -> bool:
        r, units = row["read"], row["agreed"]["units_milli"]
        held = max(0, r["t1_ms"] - r["t0_ms"] - row["lost"] + 1)
        return row["grown"] <= held * units // 1000 + 1

    def i9_lost(self, row: Any) -> bool:
        return row["lost"] <= row["read"]["t1_ms"] - row["read"]["t0_ms"]

    def i6_signature(self, channel: Any) -> bool:
        voucher = channel["voucher"]
        if voucher is None:
            return True
        message = b"tally/v1" + voucher["cumulative"].to_bytes(8, "big")
        return signs(channel["session_vk"], message, voucher["signature"])

    def i2_ledger(self, pair: Any) -> bool:
        channel, facts = pair
        terms = self.on(channel["session_vk"])[0]
        consts = [terms[k] for k in CHANNEL_CONSTS]
        plain = [v.hex() if isinstance(v, bytes) else v for v in consts]
        return facts["session_vk"] == channel["session_vk"].hex() and facts["consts"] == plain

    def i7_signed(self, pair: Any) -> bool:
        return pair[1]["claimed"] <= signed(pair[0])

    def i7_delivered(self, pair: Any) -> bool:
        return pair[1]["claimed"] <= self.owed(pair[0]["session_vk"])

    def i7_due(self, pair: Any) -> bool:
        due = min(signed(pair[0]), self.owed(pair[0]["session_vk"]))
        return not pair[1]["ended"] or pair[1]["claimed"] == due

    def i8_sum(self, pair: Any) -> bool:
        return pair[1]["funded"] == pair[1]["claimed"] + pair[1]["refunded"] + pair[1]["held"]

    # what "each" of a step is

    def each(self, what: str) -> Iterator[Any]:
        if what in ("text", "evidence"):
            yield None
        elif what == "lease":
            yield from self.evidence["leases"]
        elif what == "channel":
            yield from self.evidence["channels"]
        elif what == "hop":
            yield from self.evidence["hops"] or []
        elif what in ("ledger", "hop ledger"):
            channels, hops = self.evidence["channels"], self.evidence["hops"] or []
            pairs = list(zip([*channels, *hops], self.ledger, strict=True))
            for part, facts in (
                pairs[: len(channels)] if what == "ledger" else pairs[len(channels) :]
            ):
                plain = "leaves" in part or not self.on_hops(part)
                if facts is not None and plain:
                    yield part, facts

    def on_hops(self, channel: Any) -> bool:
        return any("route" in one for one in self.on(channel["session_vk"]))

    def says(self, ways: list[tuple[str, str]], item: Any) -> tuple[str, str] | None:
        for rule, way in ways:
            if not getattr(self, f"{rule.lower()}_{way}")(item):
                return rule, way
        if ("I1", "terms") in ways:
            self.terms.append(item["read"])
        if ("I3", "receipt") in ways:
            item["read"]["hash"] = blake(item["body"])
            self.heard.setdefault(item["of"]["session_vk"], []).append(item["read"])
        return None


def fee(owed: int, bps: int) -> int:
    return (owed * bps + 9999) // 10000


def tree(leaves: list[dict[str, Any]]) -> bytes:
    """RFC 6962's shape, by its own definition: split at the largest power of two below."""

    def node(rows: list[dict[str, Any]]) -> tuple[bytes, int]:
        if len(rows) == 1:
            amount = rows[0]["amount"]
            return blake(b"\0" + rows[0]["terms"] + amount.to_bytes(8, "big")), amount
        at = 1 << ((len(rows) - 1).bit_length() - 1)
        (a, x), (b, y) = node(rows[:at]), node(rows[at:])
        return blake(b"\1" + a + x.to_bytes(8, "big") + b + y.to_bytes(8, "big")), x + y

    return node(leaves)[0]


def signed(channel: dict[str, Any]) -> int:
    return channel["voucher"]["cumulative"] if channel["voucher"] else 0


def steps() -> list[list[tuple[str, str, str]]]:
    """The rules' table, step by step."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for row in table("step"):
        found.setdefault(row["step"], []).append((row["each"], row["rule"], row["way"]))
    return [found[key] for key in sorted(found, key=int)]


STEPS: Final = steps()


def judge(text: str, ledger: list[Any]) -> dict[str, Any]:
    """``{rule, way, bill}``: rule and way are empty, and the bill is there, if everything holds."""
    bill = Bill(text, ledger)
    for step in STEPS:
        kinds = {each for each, _, _ in step}
        if kinds == {"receipt", "voucher"}:
            broken = by_channel(bill, step)
        else:
            (kind,) = kinds
            ways = [(rule, way) for _, rule, way in step]
            broken = next((b for x in bill.each(kind) if (b := bill.says(ways, x))), None)
        if broken:
            return {"rule": broken[0], "way": broken[1], "bill": None}
    return {"rule": "", "way": "", "bill": total(bill)}


def by_channel(bill: Bill, step: list[tuple[str, str, str]]) -> tuple[str, str] | None:
    of = {kind: [(r, w) for each, r, w in step if each == kind] for kind in ("receipt", "voucher")}
    for channel in bill.evidence["channels"]:
        for row in channel["receipts"]:
            row["of"] = channel
            if broken := bill.says(of["receipt"], row):
                return broken
        if broken := bill.says(of["voucher"], channel):
            return broken
    return None


def total(bill: Bill) -> dict[str, Any]:
    """The page's "The bill"."""
    lines: list[dict[str, Any]] = []
    channels: list[dict[str, Any]] = []
    ledger = [*bill.ledger, *[None] * len(bill.evidence["channels"])]
    for channel, facts in zip(bill.evidence["channels"], ledger, strict=False):
        vk = channel["session_vk"]
        heard, leases = bill.heard.get(vk, []), {one["lease"]: one for one in bill.on(vk)}
        lines += [
            line(leases[name], [r for r in heard if r["lease"] == name])
            for name in dict.fromkeys(r["lease"] for r in heard)
            if leases[name]["job"] == bill.evidence["job"]
        ]
        if bill.on_hops(channel):
            continue
        owed, paid = bill.owed(vk), signed(channel)
        channels.append(
            {"channel": vk.hex(), "owed": owed, "signed": paid, "ahead": max(paid - owed, 0), **known(facts)}
        )  # fmt: skip
    hops = [
        {
            "hop": hop["session_vk"].hex(), "into": hop["side"] == "in", "due": bill.due(hop),
            "blind": bill.blind(hop), "unshown": unshown(bill, hop, facts), "signed": signed(hop), "ahead": signed(hop) - bill.due(hop), **known(facts),
        }
        for hop, facts in zip(
            bill.evidence["hops"] or [], ledger[len(bill.evidence["channels"]) :], strict=False
        )
    ]  # fmt: skip
    routes = [
        route_line(bill, row) for row in bill.routed() if row["read"]["job"] == bill.evidence["job"]
    ]
    settled = all(
        c["ended"] and c["claimed"] == min(c["signed"], c["owed"]) for c in channels
    ) and all(h["ended"] and h["due"] - h["blind"] <= h["claimed"] <= h["due"] for h in hops)
    more = {
        "route_fee": sum(one["fee"] for one in routes),
        "withheld": sum(one["withheld"] for one in routes),
        "unshown": sum(one["unshown"] or 0 for one in hops),
        "routes": routes, "hops": hops,
    }  # fmt: skip
    return {
        "job": bill.evidence["job"],
        "owed": sum(one["owed"] for one in lines),
        "unsigned": sum(max(one["owed"] - one["signed"], 0) for one in channels)
        + sum(one["owed"] - one["reached"] for one in routes),
        "ahead": sum(one["ahead"] for one in [*channels, *hops]),
        "reconciled": bool(channels or hops) and settled,
        "lines": lines,
        "channels": channels,
        **(more if hops else {}),
    }


def unshown(bill: Bill, hop: Any, facts: dict[str, Any] | None) -> int | None:
    return max(0, facts["claimed"] - (bill.due(hop) - bill.blind(hop))) if facts else None


def known(facts: dict[str, Any] | None) -> dict[str, Any]:
    names = ("claimed", "refunded", "held", "funded", "ended")
    return {k: facts[k] if facts else None for k in names}


def route_line(bill: Bill, row: Any) -> dict[str, Any]:
    way, owed = row["way"], bill.owed(row["read"]["session_vk"])

    def leaf(side: str) -> int | None:
        for hop in bill.evidence["hops"]:
            if row in hop["on"] and hop["side"] == side:
                return next(x["amount"] for x in hop["leaves"] if x["terms"] == blake(row["terms"]))
        return None

    given, passed = leaf("in"), leaf("out")
    paid = row["route"]["paid"]["amount"] if row["route"]["paid"] else None
    reached = min(owed, max(paid or 0, passed or 0))
    most = (given or 0) * 10000 // (10000 + way["route_bps"])
    return {
        "lease": row["read"]["lease"], "router": way["router_vk"].hex(), "route_bps": way["route_bps"],
        "owed": owed, "fee": fee(owed, way["route_bps"]), "signed_in": given, "signed_out": passed,
        "paid": paid, "reached": reached, "withheld": max(0, min(owed, most) - reached),
    }  # fmt: skip


def line(terms: dict[str, Any], heard: list[dict[str, Any]]) -> dict[str, Any]:
    first, last = heard[0], heard[-1]
    lost: dict[str, int] = {}
    for cause, ms in (part for one in heard for part in one["lost"]):
        lost[cause] = lost.get(cause, 0) + ms
    same = ("lease", "provider", "resource", "units_milli", "rate_micro", "ceiling")
    return {
        **{k: terms[k] for k in same},
        "channel": terms["session_vk"].hex(),
        "ticks": len(heard),
        "started_wall_ms": first["wall_ms"] - (first["t1_ms"] - first["t0_ms"]),
        "ended_wall_ms": last["wall_ms"],
        "lease_ms": last["t1_ms"],
        "unit_ms": last["unit_ms_total"],
        "owed": last["lease_owed"],
        "final": last["final"],
        "lost": [{"cause": cause, "ms": lost[cause]} for cause in sorted(lost) if lost[cause]],
    }
