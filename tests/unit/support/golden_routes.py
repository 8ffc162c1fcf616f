"""The golden vectors of routed leases: every way to break each of their rows in ``docs/invoice.md``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cbor2

from marketplace.domain.keys import Signer
from marketplace.domain.money.route.paid import Paid
from tests.unit.support import routed as R
from tests.unit.support.invoice import (
    TERMS,
    Case,
    lease_row,
    longer,
    opened,
    sign_terms,
    voucher_row,
)
from tests.unit.support.payer import ADAPTER, terms
from tests.unit.support.routed import bend, ended, routed

Make = Callable[[], Case]
STRANGER = Signer(b"\x0b" * 32)


def consumers() -> Case:
    """What a consumer shows: its own hop, and the provider's word for the rest."""
    return routed(out=False)


def providers() -> Case:
    """What a provider shows: the router's hop to it."""
    return routed(into=False)


def settled() -> Case:
    """Both hops ended with what was due."""
    return routed(
        blind=False, claimed=(29_022, 4_001), facts=(ended(29_022), ended(4_001))
    )  # fmt: skip


def over(taken: int, **more: Any) -> Case:
    """Both hops ended; the router took *taken* of a hop in that has another lease's leaf."""
    return routed(claimed=(taken, 4_001), facts=(ended(taken), ended(4_001)), **more)


HOLD: dict[str, Make] = {
    "routed: both hops": routed,
    "routed: reconciled": settled,
    "routed: the consumer's own hop": consumers,
    "routed: the provider's own hop": providers,
    "routed: beside a direct channel": R.beside_a_direct_channel,
    "routed: the other job": bend(lambda e: e.update(job="job_2")),
    "routed: the router passes nothing on": lambda: routed(out=False, paid=None),
    "routed: the router keeps a tick": lambda: routed(out=False, paid=2000),
    "routed: passed on, and its Paid is lost": lambda: routed(paid=None),
    "routed: signed ahead": lambda: routed(signed=9000, passed=8000),
    "routed: signed ahead, ended with the due": lambda: routed(
        blind=False, signed=9000, claimed=(29_022, 4_001), facts=(ended(29_022), ended(4_001))),
    "routed: ended, another lease's leaf unclaimed": lambda: routed(
        claimed=(29_022, 4_001), facts=(ended(29_022), {})),
    "routed: ended, another lease's leaf claimed": lambda: routed(
        claimed=(29_799, 4_001), facts=(ended(29_799), {})),
    "routed: reconciled, another lease's leaf unclaimed": lambda: over(29_022),
    "routed: reconciled, a part of another lease's leaf claimed": lambda: over(29_400),
    "routed: reconciled, another lease's leaf claimed": lambda: over(29_799),
    "routed: reconciled, the consumer's own hop": lambda: routed(
        out=False, claimed=(29_799, 0), facts=(ended(29_799), {})),
    "routed: nothing signed yet": lambda: nothing_signed(),
    "routed: the ledger is not asked": lambda: Case(routed().evidence, [None] * 4),
    "routed: no hops, and no leases": lambda: Case(
        {"job": "job_1", "leases": [], "channels": [], "hops": []}, []),
    "routed: hops is null": lambda: Case(
        {"job": "job_1", "leases": [], "channels": [], "hops": None}, []),
}  # fmt: skip


def nothing_signed() -> Case:
    """Admitted: leaves of 0 everywhere, and no receipt."""

    def work(evidence: Any) -> None:
        for row in evidence["hops"]:
            for leaf in row["leaves"]:
                leaf["amount"] = 0
            R.state(row)
            row["voucher"], row["open_tx"] = None, ""
        for lease, channel in zip(evidence["leases"], evidence["channels"], strict=True):
            channel["receipts"], lease["route"]["paid"] = [], None

    case = bend(work)()
    return Case(case.evidence, [None] * 4)


# --- forms ----------------------------------------------------------------------------------------

FIELDS: dict[str, tuple[Any, ...]] = {
    "hops": (0, {}, "", [[]], [None]),
    "lease.route": (0, "", [], False),
    "route.body": (None, "", "abc", "ab" * 8193),
    "route.signature": (None, "", "ab" * 63),
    "route.in": (0, "", [], {}),
    "route.out": (0, "", [], {}),
    "route.paid": (0, "", [], {}),
    "opening.hop": (None, "", "ab" * 31, "AB" * 32),
    "opening.salt": (None, 7, "ab" * 33),
    "paid.amount": (None, "0", -1, 2**63, True),
    "paid.signature": (None, "", "ab" * 65),
    "hop.session_vk": (None, "", "ab" * 31),
    "hop.open_tx": (None, 1, "ab" * 31),
    "hop.index": (None, "0", -1, 65_536),
    "hop.offer": (0, "", [], {}),
    "hop.statement": (None, "", [], {}),
    "hop.leaves": (None, {}, ["aa"], [None]),
    "hop.voucher": (0, "", [], {}),
    "offer.body": (None, "", "AB"),
    "offer.signature": (None, "ab" * 63),
    "statement.body": (None, "", "zz"),
    "statement.signature": (None, "", "AB" * 64),
    "leaf.terms": (None, "", "ab" * 31, "AB" * 32),
    "leaf.amount": (None, "0", -1, 2**63, 1.0),
}  # fmt: skip
OPTIONAL = (
    "hops",
    "lease.route",
    "route.in",
    "route.out",
    "route.paid",
    "hop.index",
    "hop.offer",
    "hop.voucher",
)


def _holder(evidence: Any, name: str) -> tuple[dict[str, Any], str]:
    first, _, second = name.partition(".")
    if not second:
        return evidence, first
    lease, hop = evidence["leases"][0], evidence["hops"][0]
    route = lease["route"]
    holders = {
        "lease": lease, "route": route, "opening": route["in"], "paid": route["paid"], "hop": hop,
        "offer": hop["offer"], "statement": hop["statement"], "leaf": hop["leaves"][1],
    }  # fmt: skip
    return holders[first], second


def malformed() -> Iterator[tuple[str, Make]]:
    """MALFORMED: each field's wrong values."""

    def given(name: str, value: Any) -> Make:
        def work(evidence: Any) -> None:
            holder, key = _holder(evidence, name)
            holder[key] = value

        return bend(work)

    def absent(name: str) -> Make:
        def work(evidence: Any) -> None:
            holder, key = _holder(evidence, name)
            del holder[key]

        return bend(work)

    for name, values in FIELDS.items():
        for value in values:
            yield f"{name} is {json.dumps(value)[:24]}", given(name, value)
        if name not in OPTIONAL:
            yield f"{name} is missing", absent(name)


LIMITS: dict[str, tuple[tuple[str, Any], ...]] = {
    "route": (
        ("magic", -1), ("router_vk", bytes(31)), ("lease", 1), ("lease", "l" * 201), ("lease_vk", None),
        ("in_commit", bytes(33)), ("out_commit", "x"), ("route_bps", 201), ("route_bps", -1), ("hop_ms", True),
        ("reserve", 0), ("expires_at_ms", 2**63),
    ),
    "offer": (
        ("magic", None), ("router_vk", bytes(33)), ("adapter_vkh", bytes(32)), ("payout", bytes(27)),
        ("close_period_ms", -1), ("route_bps", 201), ("hop_fee", 2**63), ("hop_ms", "1"), ("hop_cap", -1),
        ("lease_cap", 1.0),
    ),
    "statement": (
        ("session_vk", bytes(31)), ("n", 0), ("n", True), ("total", -1), ("count", 0), ("root", bytes(28)),
        ("previous", None),
    ),
}  # fmt: skip
SIGNED = {
    "route": (R.ROUTE, R.sign_route, lambda e: (e["leases"][0], e["leases"][0]["route"])),
    "offer": (R.ROUTER_OFFER, R.sign_offer, lambda e: (e["hops"][0], e["hops"][0]["offer"])),
    "statement": (
        R.STATEMENT, R.sign_statement, lambda e: (e["hops"][0], e["hops"][0]["statement"])),
}  # fmt: skip
ROWS = {"route": "I11.route", "offer": "I11.offer", "statement": "I6.statement"}


def bodies(kind: str) -> Iterator[tuple[str, Make]]:
    """Signed records that are none."""
    positions, sign, find = SIGNED[kind]

    def fields(make: Callable[[list[Any]], object]) -> Make:
        def work(evidence: Any) -> None:
            row, part = find(evidence)
            given = opened(part, "body")
            make(given)
            sign(row, given)

        return bend(work)

    def exactly(make: Callable[[str], str]) -> Make:
        def work(evidence: Any) -> None:
            row, part = find(evidence)
            sign(row, opened(part, "body"), bytes.fromhex(make(part["body"])))

        return bend(work)

    for name, value in LIMITS[kind]:
        at = positions[name]
        yield (
            f"{kind}: {name} is {str(value)[:24]}",
            fields(lambda g, at=at, v=value: g.__setitem__(at, v)),
        )
    yield f"{kind}: not canonical", exactly(longer)
    yield f"{kind}: a byte follows", exactly(lambda data: data + "00")
    yield f"{kind}: a field too many", fields(lambda g: g.append(0))
    yield f"{kind}: a field too few", fields(lambda g: g.pop())
    yield f"{kind}: of another kind", fields(lambda g: g.__setitem__(0, "tally/other/v1"))


def leases(evidence: Any) -> list[Any]:
    return evidence["leases"]


def route(evidence: Any, index: int = 0) -> Any:
    return evidence["leases"][index]["route"]


def retell(evidence: Any, index: int, at: int, value: Any) -> None:
    """Routed terms with another field, signed by both."""
    row = leases(evidence)[index]
    fields = opened(row, "terms")
    fields[at] = value
    sign_terms(row, fields)


def stripped(evidence: Any) -> None:
    """The route taken off the terms: they read as direct ones, and nobody signed those."""
    row = leases(evidence)[0]
    fields = opened(row, "terms")
    row["terms"] = cbor2.dumps(["tally/terms/v1", *fields[1:-1]], canonical=True).hex()
    row["route"] = None


def another_lease(evidence: Any) -> None:
    """A direct lease on the key of a routed one."""
    key = R.LEASE_1
    agreed = terms("lease_9", session_vk=key.verify_key, consumer_vkh=key.key_hash)
    leases(evidence).append(lease_row(agreed, key))


def hop(evidence: Any, index: int = 0) -> Any:
    return evidence["hops"][index]


def another_router(evidence: Any) -> None:
    """An offer of another router's, on the hop of this one."""
    row = hop(evidence)
    other = replace(R.OFFER, router_vk=STRANGER.verify_key)
    R.sign_offer(row, opened({"body": other.encode().hex()}, "body"))
    row["offer"]["signature"] = STRANGER.sign(other.encode()).hex()


def drop_leaf(evidence: Any, index: int, at: int) -> None:
    row = hop(evidence, index)
    del row["leaves"][at]
    R.state(row)


def too_much(evidence: Any) -> None:
    """Leaves whose sum is beyond what a voucher can hold."""
    row = hop(evidence)
    row["leaves"][0]["amount"] = row["leaves"][1]["amount"] = 2**63 - 1


def on_a_foreign_hop(evidence: Any) -> None:
    """A second hop in, that another lease names, has a leaf of the first lease too."""
    salt = bytes(32)
    two = R.journey("lease_2", R.LEASE_2, 1500, job="job_2", rate_micro=1_234_567)
    sealed = R.commit(R.FOREIGN.verify_key, salt)
    two.route = replace(two.route, in_commit=sealed)
    two.routed = replace(two.routed, route=two.route.hash)
    row = two.row(1, out=False)
    row["route"]["in"] = R.opening(R.FOREIGN, salt)
    one = R.journey("lease_1", R.LEASE_1, 1000, 1000)
    evidence["leases"][1] = row
    drop_leaf(evidence, 0, 3)
    del evidence["hops"][1]
    route(evidence)["out"] = None
    both = [R.Leaf(R.OFFER.hash, 0), R.Leaf(two.routed.hash, 2), R.Leaf(one.routed.hash, 4020)]
    evidence["hops"].append(R.hop_row(R.FOREIGN, both, into=True))


def a_paid(amount: int, signer: Signer = ADAPTER, lease: str = "lease_1") -> Make:
    def work(evidence: Any) -> None:
        said = Paid.sign(signer, R.LEASE_1.verify_key, lease, amount)
        route(evidence)["paid"] = {"amount": amount, "signature": said.signature.hex()}

    return bend(work)


def on_ledger(index: int, **change: Any) -> Make:
    def make() -> Case:
        case = routed()
        row = case.ledger[2 + index]
        assert row is not None
        row.update(change)
        return case

    return make


def consts(index: int, at: int, value: Any) -> Make:
    def make() -> Case:
        case = routed()
        row = case.ledger[2 + index]
        assert row is not None
        row["consts"][at] = value
        return case

    return make


def claimed(index: int, amount: int) -> Make:
    return on_ledger(index, claimed=amount, held=20_000_000 - amount)


def cut(evidence: Any) -> None:
    """The last receipt is left out, and the provider's word for what it was."""
    del evidence["channels"][0]["receipts"][-1]
    route(evidence)["paid"] = None


def claimed_after_cut() -> Case:
    case = bend(cut)()
    row = case.ledger[3]
    assert row is not None
    row.update(claimed=4001, held=20_000_000 - 4001)
    return case


BREAK: dict[str, dict[str, Make]] = {
    "I1.adapter": {"routed: the route is stripped off": bend(stripped)},
    "I1.terms": {
        "routed: the route is no hash": bend(lambda e: retell(e, 0, R.ROUTED, bytes(31))),
        "routed: a field too few": bend(lambda e: sign_terms(leases(e)[0], opened(leases(e)[0], "terms")[:-1])),
        "routed: direct terms with a route's tag": bend(lambda e: sign_terms(
            leases(e)[0], ["tally/terms/v2", *opened(leases(e)[0], "terms")[1:-1]])),
        "routed: a rate of 0": bend(lambda e: retell(e, 0, TERMS["rate_micro"], 0)),
    },
    "I11.route": {
        "routed terms without it": bend(lambda e: leases(e)[0].update(route=None)),
        "direct terms with one": bend(
            lambda e: leases(e)[0].update(route=route(e, 1)), R.beside_a_direct_channel),
    },
    "I11.router": {
        "nobody signed it": bend(lambda e: route(e).update(signature="00" * 64)),
        "another router signed it": bend(lambda e: route(e).update(
            signature=STRANGER.sign(bytes.fromhex(route(e)["body"])).hex())),
    },
    "I11.hash": {
        "another lease's route": bend(lambda e: leases(e)[0].update(route=route(e, 1))),
        "a higher fee than agreed": bend(lambda e: higher_fee(e)),
    },
    "I11.lease": {
        "for another lease": bend(lambda e: R.reroute(e, 0, lease="lease_2")),
        "for another key": bend(lambda e: R.reroute(e, 0, lease_vk=R.LEASE_2.verify_key)),
        "on another network": bend(lambda e: R.reroute(e, 0, magic=1)),
    },
    "I11.consumer": {
        "the consumer's own key": bend(lambda e: retell(e, 0, 10, b"\x0e" * 28)),
    },
    "I11.pace": {"hops too slow for its ticks": bend(lambda e: R.reroute(e, 0, hop_ms=251))},
    "I11.commit": {
        "another salt": bend(lambda e: route(e)["in"].update(salt="00" * 32)),
        "another hop": bend(lambda e: route(e)["out"].update(hop=R.FOREIGN.verify_key.hex())),
        "its hops exchanged": bend(lambda e: route(e).update({"in": route(e)["out"], "out": route(e)["in"]})),
        "neither hop is shown": bend(lambda e: route(e).update({"in": None, "out": None})),
    },
    "I11.own": {
        "the lease's key signed a voucher": bend(lambda e: e["channels"][0].update(
            voucher=voucher_row(R.LEASE_1, 4000))),
        "a channel of its own": bend(lambda e: e["channels"][0].update(open_tx="ab" * 32)),
        "another lease on its key": bend(another_lease),
    },
    "I11.absent": {
        "the hop in is missing": bend(lambda e: e["hops"].__delitem__(0)),
        "all hops are missing": bend(lambda e: e.__delitem__("hops")),
    },
    "I11.twice": {
        "a hop stands twice": bend(lambda e: e["hops"].append(hop(e))),
        "a hop with the key of a channel": bend(
            lambda e: e["hops"].append({**hop(e, 1), "session_vk": R.LEASE_1.verify_key.hex()})),
    },
    "I11.bare": {
        "a foreign hop beside": bend(
            lambda e: e["hops"].append({**hop(e), "session_vk": R.FOREIGN.verify_key.hex()})),
        "direct leases and a hop": bend(
            lambda e: e["hops"].append({**hop(routed().evidence), "session_vk": R.FOREIGN.verify_key.hex()}),
            R.beside_a_direct_channel),
    },
    "I11.side": {
        "the hop in without the router's offer": bend(lambda e: hop(e).update(offer=None)),
        "the hop out with it": bend(lambda e: hop(e, 1).update(offer=hop(e)["offer"])),
    },
    "I11.offer": {
        "nobody signed it": bend(lambda e: hop(e)["offer"].update(signature="00" * 64)),
        "another router signed it": bend(lambda e: hop(e)["offer"].update(
            signature=STRANGER.sign(bytes.fromhex(hop(e)["offer"]["body"])).hex())),
    },
    "I11.agree": {
        "another router's offer": bend(another_router),
        "another payout of the provider": bend(lambda e: retell(e, 1, TERMS["payout"], b"\x08" * 28), providers),
        "another asset": bend(lambda e: retell(e, 1, TERMS["asset"], "ab" * 30), consumers),
        "an offer for another network": bend(lambda e: R.sign_offer(
            hop(e), [*opened(hop(e)["offer"], "body")[:1], 1, *opened(hop(e)["offer"], "body")[2:]])),
    },
    "I6.statement": {
        "another hop's": bend(lambda e: hop(e).update(statement=hop(e, 1)["statement"])),
    },
    "I6.stated": {
        "nobody signed it": bend(lambda e: hop(e)["statement"].update(signature="00" * 64)),
        "the lease's key signed it": bend(lambda e: hop(e)["statement"].update(
            signature=R.LEASE_1.sign(bytes.fromhex(hop(e)["statement"]["body"])).hex())),
    },
    "I6.leaves": {
        "a leaf is raised": bend(lambda e: hop(e)["leaves"][1].update(amount=4021)),
        "a lovelace moved from one lease to another": bend(lambda e: (
            hop(e)["leaves"][1].update(amount=4021), hop(e)["leaves"][2].update(amount=776))),
        "order exchanged": bend(lambda e: hop(e)["leaves"].reverse()),
        "a leaf is missing": bend(lambda e: hop(e)["leaves"].pop()),
        "a leaf stands twice": bend(lambda e: (hop(e)["leaves"].append(hop(e)["leaves"][1]), R.state(hop(e)))),
        "no leaf": bend(lambda e: hop(e).update(leaves=[])),
        "another count": bend(lambda e: R.state(hop(e), count=5)),
        "another total": bend(lambda e: R.state(hop(e), total=29_798)),
        "another root": bend(lambda e: R.state(hop(e), root=bytes(32))),
        "more than a voucher can hold": bend(too_much),
    },
    "I6.leaf": {
        "a lease has none on its hop in": bend(lambda e: drop_leaf(e, 0, 1)),
        "a lease has none on its hop out": bend(lambda e: drop_leaf(e, 1, 0)),
        "the router's offer is not the first": bend(lambda e: (
            hop(e)["leaves"].append(hop(e)["leaves"].pop(0)), R.state(hop(e)))),
        "one lease on two hops to the router": bend(on_a_foreign_hop),
    },
    "I6.total": {
        "a smaller voucher": bend(lambda e: hop(e).update(voucher=voucher_row(R.HOP_IN, 29_798))),
        "a greater voucher": bend(lambda e: hop(e).update(voucher=voucher_row(R.HOP_IN, 29_800))),
        "no voucher": bend(lambda e: hop(e).update(voucher=None)),
    },
    "I6.voucher": {
        "nobody signed it": bend(lambda e: hop(e)["voucher"].update(signature="00" * 64)),
        "the other hop's key": bend(lambda e: hop(e).update(voucher=voucher_row(R.HOP_OUT, 29_799))),
    },
    "I12.paid": {
        "the router signed it": a_paid(4000, R.ROUTER),
        "of another lease": a_paid(4000, lease="lease_2"),
        "raised": bend(lambda e: route(e)["paid"].update(amount=3999)),
    },
    "I12.owed": {"more than is owed": a_paid(4001)},
    "I11.ledger": {
        "a bounty on the hop in": consts(0, 5, 1),
        "the router's payout": consts(0, 2, "08" * 28),
        "who finishes the hop in": consts(0, 1, "08" * 28),
        "another close period": consts(0, 4, 90_001),
        "the provider's payout": consts(1, 2, "08" * 28),
        "another fee on the hop out": consts(1, 5, 51),
        "another session key": consts(1, 0, R.FOREIGN.verify_key.hex()),
        "another channel": on_ledger(0, session_vk=R.FOREIGN.verify_key.hex()),
    },
    "I7.hop_signed": {"more claimed than signed": claimed(0, 29_800)},
    "I7.hop_due": {
        "signed ahead and claimed": lambda: routed(signed=9000, claimed=(29_800, 4_000)),
        "what was signed ahead, behind another lease's leaf": lambda: over(29_800, signed=9000),
        "more than the router's fee for its end": lambda: dear_end(),
        "the hop out: more than is owed": lambda: routed(passed=4100, claimed=(28_000, 4_002)),
        "the last receipt is missing": claimed_after_cut,
    },
    "I7.hop_ended": {
        "another lease's leaf claimed in place of a due": lambda: over(29_021),
        "ended with less than was due": lambda: routed(
            claimed=(29_021, 4_000), facts=(ended(29_021), {})),
    },
    "I8.hop_sum": {
        "money is missing": on_ledger(0, held=1),
        "money came from nowhere": on_ledger(1, funded=20_000_001),
    },
}  # fmt: skip


def higher_fee(evidence: Any) -> None:
    """The router shows another route than the one of the terms."""
    fields = opened(route(evidence), "body")
    fields[R.ROUTE["route_bps"]] = 200
    body = cbor2.dumps(fields, canonical=True)
    route(evidence).update(body=body.hex(), signature=R.ROUTER.sign(body).hex())


def dear_end() -> Case:
    """A leaf of 30,000 for an end that was offered at 25,000, and all of it claimed."""
    case = bend(lambda e: R.releaf(e, 0, 0, 30_000))()
    row = case.ledger[2]
    assert row is not None
    row.update(claimed=34_799, held=20_000_000 - 34_799)
    return case


def breaks() -> Iterator[tuple[str, str, Make]]:
    """(row of the page, name, case)."""
    for name, make in malformed():
        yield "MALFORMED.form", name, make
    for kind, row in ROWS.items():
        for name, make in bodies(kind):
            yield row, name, make
    for row, cases in BREAK.items():
        for name, make in cases.items():
            yield row, name, make
