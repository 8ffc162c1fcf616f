"""What is signed for a routed lease: fees, trees, commitments, and what passes for nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.route.fee import MAX_ROUTE_BPS, fee, reach, with_fee
from marketplace.domain.money.route.leaves import Leaf, root, total
from marketplace.domain.money.route.route import (
    Route,
    RouteRefused,
    SignedRoute,
    check_route,
    commit,
)
from marketplace.domain.money.route.statement import Statement
from marketplace.domain.money.route.terms import RoutedTerms, SignedRoutedTerms, either, is_routed
from marketplace.domain.money.terms import SignedTerms, Terms, TermsRefused
from tests.unit.support.payer import ADAPTER, SESSION
from tests.unit.support.routed import LEASE_1, LEASE_2, OFFER, ROUTER, journey

BPS = st.integers(0, MAX_ROUTE_BPS)
MONEY = st.integers(0, 10**15)


@given(MONEY, BPS)
def test_a_fee_is_its_share_rounded_up_by_less_than_a_lovelace(owed: int, bps: int) -> None:
    assert 0 <= fee(owed, bps) * 10_000 - owed * bps < 10_000


@given(MONEY, BPS)
def test_an_amount_reaches_as_far_as_its_fee_lets_it(amount: int, bps: int) -> None:
    far = reach(amount, bps)
    assert with_fee(far, bps) <= amount < with_fee(far + 1, bps)


@given(st.lists(MONEY, max_size=60), BPS)
def test_round_many_small_ticks_cost_what_their_sum_costs(ticks: list[int], bps: int) -> None:
    """Threat 18: the fee is cumulative, so floors and tiny ticks win nobody a lovelace."""
    sofar, charged = 0, 0
    for tick in ticks:
        charged += with_fee(sofar + tick, bps) - with_fee(sofar, bps)
        sofar += tick
    assert charged == with_fee(sum(ticks), bps)


def split(rows: list[Leaf]) -> tuple[bytes, int]:
    """RFC 6962's tree by its own recursive definition."""
    if len(rows) == 1:
        amount = rows[0].amount
        return blake2b_256(b"\x00" + rows[0].terms + amount.to_bytes(8, "big")), amount
    at = 1 << ((len(rows) - 1).bit_length() - 1)
    (left, x), (right, y) = split(rows[:at]), split(rows[at:])
    both = left + x.to_bytes(8, "big") + right + y.to_bytes(8, "big")
    return blake2b_256(b"\x01" + both), x + y


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=70))
def test_a_tree_has_the_shape_of_rfc_6962_and_sums(amounts: list[int]) -> None:
    leaves = [Leaf(blake2b_256(bytes([i])), amount) for i, amount in enumerate(amounts)]
    assert (root(leaves), total(leaves)) == split(leaves)


def test_a_leaf_is_no_node_and_no_order_is_another() -> None:
    one, two = Leaf(b"\x01" * 32, 5), Leaf(b"\x02" * 32, 7)
    assert len({root([one, two]), root([two, one]), root([one]), root([one, two, one])}) == 4
    moved = [replace(one, amount=6), replace(two, amount=6)]
    assert total(moved) == total([one, two]) and root(moved) != root([one, two])


@pytest.mark.parametrize(
    "leaves",
    [
        [], [Leaf(bytes(31), 1)], [Leaf(bytes(32), -1)], [Leaf(bytes(32), 2**63)],
        [Leaf(bytes(32), 2**62), Leaf(b"\x01" * 32, 2**62)],
    ],
)  # fmt: skip
def test_what_cannot_be_summed_has_no_root(leaves: list[Leaf]) -> None:
    with pytest.raises(Malformed):
        root(leaves)


def test_a_commitment_says_nothing_without_its_salt() -> None:
    vk = LEASE_1.verify_key
    assert (
        len({commit(vk, bytes(32)), commit(vk, b"\x01" * 32), commit(ROUTER.verify_key, bytes(32))})
        == 3
    )
    with pytest.raises(Malformed):
        commit(vk, b"")


def test_downgrade_routed_terms_are_nobodys_direct_terms() -> None:
    """Threat 22: neither reads as the other, and a signature over one is none over the other."""
    way = journey("lease_1", LEASE_1)
    body = way.routed.encode()
    assert is_routed(body) and not is_routed(way.terms.encode())
    for read in (Terms.decode, lambda data: SignedTerms(data, bytes(64)).terms):
        with pytest.raises(Malformed):
            read(body)
    with pytest.raises(Malformed):
        RoutedTerms.decode(way.terms.encode())
    stripped = SignedTerms(way.terms.encode(), ADAPTER.sign(body), LEASE_1.sign(body))
    with pytest.raises(TermsRefused):
        stripped.verify()
    assert RoutedTerms.decode(body) == way.routed


def test_replay_nothing_that_is_signed_passes_for_anything_else() -> None:
    """Threat 21: tags and lengths; a voucher is 16 bytes and none of these is."""
    way = journey("lease_1", LEASE_1)
    statement = Statement.of(LEASE_1.verify_key, 1, [Leaf(bytes(32), 0)], bytes(32))
    records = [way.routed, way.route, OFFER, statement]
    for one in records:
        assert len(one.encode()) > 16
        for other in (type(x) for x in records if type(x) is not type(one)):
            with pytest.raises(Refusal):
                other.decode(one.encode())


def signed(route: Route) -> SignedRoute:
    return SignedRoute(route.encode(), ROUTER.sign(route.encode()))


CHANGES = {
    "magic": 1, "lease": "lease_2", "lease_vk": LEASE_2.verify_key, "hop_ms": 251,
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_route_of_another_network_lease_key_or_pace_is_not_this_one(name: str) -> None:
    way = journey("lease_1", LEASE_1)
    other = replace(way.route, **{name: CHANGES[name]})
    assert check_route(signed(way.route), way.routed) == way.route
    with pytest.raises(RouteRefused):  # shown instead of the one that the terms name
        check_route(signed(other), way.routed)
    with pytest.raises(RouteRefused):  # named by the terms
        check_route(signed(other), replace(way.routed, route=other.hash))


def test_fee_up_a_route_with_a_higher_fee_is_not_the_one_that_was_agreed() -> None:
    """Threat 19."""
    way = journey("lease_1", LEASE_1)
    dearer = replace(way.route, route_bps=200)
    with pytest.raises(RouteRefused, match="another route"):
        check_route(signed(dearer), way.routed)
    with pytest.raises(Malformed):
        Route.decode(replace(way.route, route_bps=201).encode())


def test_same_owner_a_routed_lease_is_owned_by_its_own_key() -> None:
    """Threat 28: neither the consumer's wallet nor the router's is named to the provider."""
    way = journey("lease_1", LEASE_1)
    agreed = replace(way.terms, consumer_vkh=SESSION.key_hash)
    with pytest.raises(RouteRefused, match="own key"):
        check_route(signed(way.route), replace(way.routed, terms=agreed))


def test_a_route_that_another_signed_is_none() -> None:
    way = journey("lease_1", LEASE_1)
    forged = SignedRoute(way.route.encode(), SESSION.sign(way.route.encode()))
    with pytest.raises(RouteRefused, match="did not sign"):
        check_route(forged, way.routed)


def test_signed_terms_of_either_kind_are_verified_as_what_they_are() -> None:
    """Who serves or buys both asks for either; a direct reader takes no routed ones."""
    way = journey("lease_1", LEASE_1)
    for body in (way.routed.encode(), way.terms.encode()):
        plain = SignedTerms(body, ADAPTER.sign(body), LEASE_1.sign(body))
        assert isinstance(either(plain), SignedRoutedTerms) == is_routed(body)
        assert either(plain).verify() == way.terms
    routed = way.routed.encode()
    with pytest.raises(Malformed):
        SignedTerms(routed, ADAPTER.sign(routed), LEASE_1.sign(routed)).verify()
