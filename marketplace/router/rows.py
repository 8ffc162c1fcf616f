"""A router's state as JSON: a *patch* says what is new in it; all patches in their order are the
state. Of payments only the leaves that changed are said, as on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from marketplace.domain.money.route.hop import Earning, Paying, Payment, merged
from marketplace.domain.money.route.leaves import Leaf, pack, unpack
from marketplace.domain.money.route.offer import SignedRouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import SignedRoute
from marketplace.domain.money.route.router_book import Carried, RouterBook
from marketplace.domain.money.route.statement import SignedStatement
from marketplace.domain.money.voucher import Voucher
from marketplace.router.state import HopIn, HopOut, Rest, Routed, Seen, State

Patch = dict[str, Any]
EMPTY: Final = State(RouterBook(bytes(32), {}, {}, {}))


def patch(old: State, new: State) -> Patch:
    """What makes *new* of *old*; empty if nothing does."""
    was, book = old.book, new.book
    found: Patch = {
        "in": _changed(old.hops_in, new.hops_in, _hop_in),
        "out": _changed(old.hops_out, new.hops_out, _hop_out),
        "capacity": _numbers(_capacities(was), _capacities(book)),
        "skip": _numbers(_skips(was), _skips(book)),
        "routes": _changed(old.routes, new.routes, _route),
        "rests": {
            key: [one.ended_ms, one.had, one.over]
            for key, one in new.rests.items()
            if old.rests.get(key) != one
        },
        "gone": sorted(old.routes.keys() - new.routes.keys()),
        "leases": {
            key.hex(): _moving(one)
            for key, one in book.leases.items()
            if was.leases.get(key) != one
        },
        "paid": _payments(_lasts(was), _lasts(book)),
        "forked": sorted(key.hex() for key in book.forked - was.forked),
        "stopped": sorted(key.hex() for key in book.stopped),
    }
    if book.stopped == was.stopped:
        del found["stopped"]
    return {name: value for name, value in found.items() if value or name == "stopped"}


def apply(state: State, row: Mapping[str, Any]) -> State:
    """*state* after *row*, a patch; ``KeyError``, ``TypeError``, ``ValueError`` or Malformed for
    anything else.
    """
    book = state.book
    hops_in, hops_out = dict(state.hops_in), dict(state.hops_out)
    routes, leases = dict(state.routes), dict(book.leases)
    earning, paying, room = dict(book.hops_in), dict(book.hops_out), dict(book.room)
    first = dict(book.first)
    for raw in row.get("in", ()):
        hop = _read_in(raw)
        hops_in[hop.session_vk] = hop
        earning.setdefault(hop.session_vk, Earning(hop.session_vk, 0))
        first[hop.session_vk] = Leaf(hop.terms.hash, hop.terms.hop_fee)
    for raw in row.get("out", ()):
        out = _read_out(raw)
        hops_out[out.session_vk] = out
        paying.setdefault(out.session_vk, Paying(out.session_vk))
        room.setdefault(out.session_vk, 0)
    for key, amount in _pairs(row, "capacity"):
        if key in earning:
            earning[key] = replace(earning[key], capacity=amount)
        else:
            room[key] = amount
    for key, amount in _pairs(row, "skip"):
        paying[key] = replace(paying[key], skip=amount)
    for raw in row.get("routes", ()):
        route = _read_route(raw)
        routes[route.carried.lease] = route
    for name in row.get("gone", ()):
        del routes[name]
    known = {one.terms: one.carried for one in routes.values() if one.terms}
    for key, raw in row.get("leases", {}).items():
        terms = bytes.fromhex(key)
        leases[terms] = _moved(leases.get(terms) or known[terms], raw)
    for key, raw in row.get("paid", {}).items():
        vk = bytes.fromhex(key)
        if vk in earning:
            earning[vk] = replace(earning[vk], last=_read_payment(vk, raw, earning[vk].last))
        else:
            paying[vk] = replace(paying[vk], last=_read_payment(vk, raw, paying[vk].last))
    stopped = (
        frozenset(bytes.fromhex(key) for key in row["stopped"])
        if "stopped" in row
        else book.stopped
    )
    forked = book.forked | {bytes.fromhex(key) for key in row.get("forked", ())}
    book = RouterBook(book.offer, earning, paying, room, leases, forked, stopped, first)
    rests = {key: Rest(*map(int, said)) for key, said in row.get("rests", {}).items()}
    return State(book, hops_in, hops_out, routes, {**state.rests, **rests})


def _changed(
    old: Mapping[Any, Any], new: Mapping[Any, Any], plain: Callable[[Any], Any]
) -> list[Any]:
    return [plain(one) for key, one in new.items() if old.get(key) != one]


def _numbers(old: Mapping[bytes, int], new: Mapping[bytes, int]) -> dict[str, int]:
    return {key.hex(): value for key, value in new.items() if old.get(key, 0) != value}


def _pairs(row: Mapping[str, Any], name: str) -> list[tuple[bytes, int]]:
    return [(bytes.fromhex(key), int(value)) for key, value in row.get(name, {}).items()]


def _capacities(book: RouterBook) -> dict[bytes, int]:
    return {**{key: one.capacity for key, one in book.hops_in.items()}, **book.room}


def _skips(book: RouterBook) -> dict[bytes, int]:
    return {key: one.skip for key, one in book.hops_out.items()}


def _lasts(book: RouterBook) -> dict[bytes, Payment | None]:
    ends = {**book.hops_in, **book.hops_out}
    return {key: one.last for key, one in ends.items()}


def _payments(
    old: Mapping[bytes, Payment | None], new: Mapping[bytes, Payment | None]
) -> dict[str, Any]:
    return {
        key.hex(): _payment(one, old.get(key))
        for key, one in new.items()
        if one is not None and one != old.get(key)
    }


def _payment(one: Payment, since: Payment | None) -> list[Any]:
    body, signature = one.signed.body.hex(), one.signed.signature.hex()
    voucher = one.voucher
    leaves = pack(one.changes(since)).hex()
    return [body, signature, voucher.cumulative, voucher.signature.hex(), leaves]


def _read_payment(vk: bytes, raw: Any, last: Payment | None) -> Payment:
    body, signature, cumulative, by, leaves = raw
    signed = SignedStatement(bytes.fromhex(body), bytes.fromhex(signature))
    voucher = Voucher(vk, int(cumulative), bytes.fromhex(by))
    return merged(last, signed, voucher, unpack(bytes.fromhex(leaves)))


def _moving(one: Carried) -> list[Any]:
    paid = [one.paid.amount, one.paid.signature.hex()] if one.paid else None
    return [one.owed, one.reserve, paid]


def _moved(one: Carried, raw: Any) -> Carried:
    owed, reserve, paid = raw
    said = paid and Paid(one.lease_vk, one.lease, int(paid[0]), bytes.fromhex(paid[1]))
    return replace(one, owed=int(owed), reserve=int(reserve), paid=said)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one.hex() if isinstance(one, bytes) else one for key, one in row.items()}


def _hex(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: bytes.fromhex(one) if key in names else one for key, one in row.items()}


def _hop_in(hop: HopIn) -> dict[str, Any]:
    return _plain({**asdict(hop), "offer": [hop.offer.body.hex(), hop.offer.signature.hex()]})


def _read_in(raw: Mapping[str, Any]) -> HopIn:
    body, signature = (bytes.fromhex(part) for part in raw["offer"])
    row = _hex(raw, "session_vk", "consumer_vkh")
    row |= {"offer": SignedRouterOffer(body, signature), "seen": Seen(raw["seen"])}
    return HopIn(**row)


def _hop_out(hop: HopOut) -> dict[str, Any]:
    return _plain(asdict(hop))


def _read_out(raw: Mapping[str, Any]) -> HopOut:
    row = _hex(raw, "session_vk", "adapter_vkh", "payout", "owner")
    row["seen"] = Seen(raw["seen"])
    return HopOut(**row)


def _route(one: Routed) -> dict[str, Any]:
    made = one.carried
    return {
        "lease": made.lease, "lease_vk": made.lease_vk.hex(), "adapter_vk": made.adapter_vk.hex(),
        "hop_in": made.hop_in.hex(), "hop_out": made.hop_out.hex(), "bps": made.route_bps,
        "reserve": made.reserve, "account": one.account, "provider": one.provider,
        "signed": [one.signed.body.hex(), one.signed.signature.hex()],
        "salts": [one.salt_in.hex(), one.salt_out.hex()], "expires_ms": one.expires_ms,
        "terms": one.terms.hex(), "over": one.over,
    }  # fmt: skip


def _read_route(raw: Mapping[str, Any]) -> Routed:
    key = _hex(raw, "lease_vk", "adapter_vk", "hop_in", "hop_out")
    carried = Carried(
        key["lease"], key["lease_vk"], key["adapter_vk"], key["hop_in"], key["hop_out"],
        int(raw["bps"]), int(raw["reserve"]),
    )  # fmt: skip
    body, signature = (bytes.fromhex(part) for part in raw["signed"])
    salt_in, salt_out = (bytes.fromhex(part) for part in raw["salts"])
    return Routed(
        carried, raw["account"], raw["provider"], SignedRoute(body, signature), salt_in, salt_out,
        int(raw["expires_ms"]), bytes.fromhex(raw["terms"]), bool(raw["over"]),
    )  # fmt: skip
