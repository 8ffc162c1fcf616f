"""Random routed evidence that holds, and random hands that bend what routers and hops sign."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.paid import Paid
from tests.unit.support import routed as R
from tests.unit.support.invoice import Case, channel_row, opened, sign_terms, voucher_row
from tests.unit.support.payer import ADAPTER

SHOWN: Final = ((True, True), (True, False), (False, True))


def honest(dice: Random) -> Case:
    """One or two routed leases over the same hops, with whatever of them is shown."""
    into, out = dice.choice(SHOWN)
    journeys = [
        R.journey(
            f"lease_{number}", key, *(dice.randint(0, 3000) for _ in range(dice.randint(0, 3))),
            bps=dice.choice((0, 1, 50, 200)), job="job_1" if number == 0 else dice.choice(("job_1", "job_2")),
            rate_micro=dice.randint(1, 4_000_000_000), units_milli=dice.choice((1000, 250, 10)),
        )
        for number, key in enumerate((R.LEASE_1, R.LEASE_2)[: dice.choice((1, 1, 2))])
    ]  # fmt: skip
    ins, outs = [Leaf(R.OFFER.hash, dice.choice((0, 25_000, 26_000)))], list[Leaf]()
    if dice.random() < 0.4:
        ins.append(Leaf(R.BLIND.terms, dice.randint(0, 5000)))
    rows: list[dict[str, Any]] = []
    for one in journeys:
        most = with_fee(one.owed, one.route.route_bps)
        ins.append(Leaf(one.routed.hash, dice.choice((0, most // 2, most, most, most + 500))))
        outs.append(
            Leaf(one.routed.hash, dice.choice((0, one.owed // 2, one.owed, one.owed + 500)))
        )
        paid = dice.choice((None, 0, one.owed // 2, one.owed, one.owed))
        rows.append(one.row(paid, into=into, out=out))
    evidence: dict[str, Any] = {
        "job": "job_1", "leases": rows, "hops": [],
        "channels": [channel_row(one.paper, one.key, None, "") for one in journeys],
    }  # fmt: skip
    ledger: list[dict[str, Any] | None] = [None for _ in journeys]
    for shown, key, leaves, side in ((into, R.HOP_IN, ins, True), (out, R.HOP_OUT, outs, False)):
        if shown:
            evidence["hops"].append(R.hop_row(key, leaves, into=side))
            least = due(journeys, leaves, into=side)
            ledger.append(settled(dice, journeys[0], key, least, into=side))
    dice.shuffle(evidence["leases"])
    return Case(evidence, ledger)


def due(journeys: list[R.Journey], leaves: list[Leaf], *, into: bool) -> int:
    """What a hop owes for these leases, blind leaves left out."""
    bound = {R.OFFER.hash: 25_000}
    for one in journeys:
        bound[one.routed.hash] = (
            with_fee(one.owed, one.route.route_bps) if into else one.owed
        )  # fmt: skip
    return sum(min(leaf.amount, bound.get(leaf.terms, 0)) for leaf in leaves)


def settled(
    dice: Random, one: R.Journey, key: Any, least: int, *, into: bool
) -> dict[str, Any] | None:
    """Not asked, open with some of it claimed, or ended with what is due."""
    if dice.random() < 0.3:
        return None
    if dice.random() < 0.4:
        return R.fact_row(one.terms, key, dice.randint(0, least), into=into)
    return R.fact_row(one.terms, key, least, into=into, **R.ended(least))


def a_route(dice: Random, case: Case) -> Any:
    return dice.choice([row for row in case.evidence["leases"] if row["route"]])


def a_hop(dice: Random, case: Case) -> Any:
    return dice.choice(case.evidence["hops"])


def near(dice: Random, value: Any) -> Any:
    """A value beside *value*, of its own kind."""
    if isinstance(value, int):
        return value + dice.choice((-1000, -1, 1, 1, 100, 1000))
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    return dice.choice(("lease_0", "lease_1", "lease_7", None, 0, [], "x" * 201))


def other_route(dice: Random, case: Case) -> None:
    """A field of a route, signed again and mostly named by the terms."""
    row = a_route(dice, case)
    terms, fields = row["terms"], opened(row["route"], "body")
    at = dice.randrange(len(fields))
    fields[at] = near(dice, fields[at])
    R.sign_route(row, fields)
    if dice.random() < 0.3:
        agreed = opened(row, "terms")
        agreed[R.ROUTED] = opened({"terms": terms}, "terms")[R.ROUTED]
        sign_terms(row, agreed)


def other_routed_terms(dice: Random, case: Case) -> None:
    """Another field of the terms, its leaf following them where it can."""
    row = a_route(dice, case)
    before = R.blake2b_256(bytes.fromhex(row["terms"])).hex()
    fields = opened(row, "terms")
    at = dice.choice((1, 7, 8, 10, 10, 14, 17, 18, 21, 25))
    fields[at] = "ab" * 30 if at == 21 else near(dice, fields[at])
    sign_terms(row, fields)
    after = R.blake2b_256(bytes.fromhex(row["terms"])).hex()
    for hop in case.evidence["hops"]:
        for leaf in hop["leaves"]:
            if leaf["terms"] == before and dice.random() < 0.8:
                leaf["terms"] = after
        R.state(hop)


def unshown(dice: Random, case: Case) -> None:
    """What is shown of the hops: exchanged, hidden, another salt."""
    shown = a_route(dice, case)["route"]
    work: Callable[[], None] = dice.choice(
        (
            lambda: shown.update({"in": shown["out"], "out": shown["in"]}),
            lambda: shown.update({dice.choice(("in", "out")): None}),
            lambda: (shown["in"] or shown["out"]).update(salt="11" * 32),
        )
    )
    work()


def other_statement(dice: Random, case: Case) -> None:
    row = a_hop(dice, case)
    fields = opened(row["statement"], "body")
    at = dice.randrange(len(fields))
    fields[at] = near(dice, fields[at])
    R.sign_statement(row, fields)
    if dice.random() < 0.2:
        row["statement"]["signature"] = "00" * 64


def other_leaf(dice: Random, case: Case) -> None:
    """A leaf with another amount, place or name, or none at all; mostly stated so."""
    row = a_hop(dice, case)
    leaves = row["leaves"]
    at = dice.randrange(len(leaves))
    work: Callable[[], object] = dice.choice(
        (
            lambda: leaves[at].update(
                amount=max(0, leaves[at]["amount"] + dice.choice((-1, 1, 900)))
            ),
            lambda: leaves.reverse(),
            lambda: leaves.pop(at),
            lambda: leaves.append(dict(leaves[at])),
            lambda: leaves[at].update(terms="33" * 32),
            lambda: leaves[at].update(amount=2**63 - 1),
        )
    )
    work()
    if dice.random() < 0.7:
        R.state(row)


def other_offer(dice: Random, case: Case) -> None:
    row = a_hop(dice, case)
    if row["offer"] is None:
        row["offer"] = R.hop_row(R.HOP_IN, [R.BLIND], into=True)["offer"]
        return
    if dice.random() < 0.2:
        row["offer"] = None
        return
    fields = opened(row["offer"], "body")
    at = dice.randrange(len(fields))
    fields[at] = near(dice, fields[at])
    R.sign_offer(row, fields)


def other_hop_voucher(dice: Random, case: Case) -> None:
    row = a_hop(dice, case)
    held = row["voucher"]["cumulative"]
    key = dice.choice((R.HOP_IN, R.HOP_OUT))
    row["voucher"] = dice.choice(
        (None, voucher_row(key, held), voucher_row(key, max(0, held + dice.choice((-1, 1)))))
    )


def other_paid(dice: Random, case: Case) -> None:
    row = a_route(dice, case)
    fields, amount = opened(row, "terms"), dice.choice((0, 1, 10**6))
    signer = dice.choice((ADAPTER, ADAPTER, R.ROUTER))
    said = Paid.sign(signer, fields[9], fields[2], amount)
    row["route"]["paid"] = {"amount": amount, "signature": said.signature.hex()}


def misuse(dice: Random, case: Case) -> None:
    """A lease's key with a voucher or a channel of its own; hops that nobody names, or twice."""
    channel, hops = dice.choice(case.evidence["channels"]), case.evidence["hops"]
    stranger = {**dice.choice(hops), "session_vk": R.FOREIGN.verify_key.hex()}
    work: Callable[[], object] = dice.choice(
        (
            lambda: channel.update(voucher=voucher_row(R.LEASE_1, dice.randint(0, 3))),
            lambda: channel.update(open_tx="ab" * 32),
            lambda: hops.append(stranger),
            lambda: hops.append(dice.choice(hops)),
            lambda: hops.pop(),
        )
    )
    count = len(hops)
    work()
    if len(hops) < count:
        case.ledger.pop()
    case.ledger += [None] * (len(hops) - count)


BENDS: Final[tuple[Callable[[Random, Case], None], ...]] = (
    other_route, other_route, other_routed_terms, other_routed_terms, unshown, other_statement, other_leaf,
    other_leaf, other_offer, other_hop_voucher, other_paid, misuse,
)  # fmt: skip
