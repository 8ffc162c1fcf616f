"""Orders to a cluster's member: what only its lease's session key can say, and only once."""

from __future__ import annotations

from typing import Any

import pytest

from marketplace.domain.canonical import encode
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.work.cluster_order import ClusterOrder, OrderRefused, SignedOrder, Verb
from marketplace.domain.work.mesh import (
    MOST_CANDIDATES,
    Candidate,
    Heard,
    MeshPeer,
    MeshPlace,
    MeshSight,
    MeshUnproven,
    PathKind,
    SignedMesh,
    public,
)
from marketplace.domain.work.mesh_net import (
    FIRST_GUEST,
    MOST_GUESTS,
    Seat,
    address,
    host_name,
    network,
)
from marketplace.domain.work.parts import MOST_MEMBERS

SESSION, MARKET, ADAPTER = Signer(b"\x01" * 32), Signer(b"\x02" * 32), Signer(b"\x03" * 32)
PEERS = (
    MeshPeer(0, b"\x0a" * 32, public("203.0.113.7", 51820)),
    MeshPeer(2, b"\x0b" * 32, public("10.0.0.2", 9)),
)
ORDER = ClusterOrder("lease_1", 7, Verb.RUN, PEERS)


def test_an_order_says_what_was_signed() -> None:
    """There and back, over a message's form."""
    signed = SignedOrder.from_wire(SignedOrder.sign(SESSION, ORDER).to_wire())
    assert signed.verify("lease_1", SESSION.verify_key) == ORDER


def test_a_market_can_neither_make_an_order_nor_give_it_to_another_lease() -> None:
    """By a key of its own, with a peer put in, and of another lease on the same channel."""
    signed = SignedOrder.sign(SESSION, ORDER)
    more = ClusterOrder(
        "lease_1", 7, Verb.RUN, (*PEERS, MeshPeer(3, bytes(32), public("10.0.0.3", 9)))
    )
    for forged in (
        SignedOrder.sign(MARKET, ORDER),
        SignedOrder(more.encode(), signed.signature),
        SignedOrder(signed.body, bytes(64)),
    ):
        with pytest.raises(OrderRefused):
            forged.verify("lease_1", SESSION.verify_key)
    with pytest.raises(OrderRefused, match="for lease lease_1"):
        signed.verify("lease_2", SESSION.verify_key)


@pytest.mark.parametrize(
    "body",
    [
        ["tally/cluster-order/v1", "lease_1", 0, "RUN", []],
        ["tally/cluster-order/v1", "lease_1", 1, "GO", []],
        ["tally/cluster-order/v1", "lease_1", 1, "RUN", [PEERS[1].to_wire(), PEERS[0].to_wire()]],
        ["tally/cluster-order/v1", "lease_1", 1, "RUN", [PEERS[0].to_wire(), PEERS[0].to_wire()]],
        ["tally/cluster-order/v1", "lease_1", 1, "RUN", [[64, bytes(32), "10.0.0.1", 1]]],
        ["tally/cluster-order/v1", "lease_1", 1, "RUN", [[0, bytes(31), "10.0.0.1", 1]]],
        ["tally/cluster-order/v1", "lease_1", 1, "RUN", [[0, bytes(32), "10.0.0.1", 0]]],
        ["tally/keep/v1", "lease_1", 1, "RUN", []],
    ],
)
def test_what_is_no_order_is_refused(body: list[Any]) -> None:
    """Versions, verbs, peers out of order or twice, keys and ports."""
    with pytest.raises(Malformed):
        SignedOrder.from_wire([encode(body), bytes(64)])


def test_two_peers_have_two_keys() -> None:
    """WireGuard knows a peer by its key alone: the second would take the first one's place."""
    same = MeshPeer(2, PEERS[0].key, public("10.0.0.2", 9))
    with pytest.raises(Malformed, match="one key"):
        ClusterOrder.decode(ClusterOrder("lease_1", 1, Verb.MEET, (PEERS[0], same)).encode())


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "169.254.169.254", "::1"]
)
def test_nobody_is_sent_where_no_member_is(endpoint: str) -> None:
    """Whoever signs a place chooses where the others send packets to."""
    with pytest.raises(Malformed):
        MeshPlace.decode(MeshPlace("lease_1", bytes(32), public(endpoint, 5)).encode())
    with pytest.raises(Malformed):
        MeshPeer.from_wire([0, bytes(32), [["public", endpoint, 5]]])


def test_places_and_sights_are_their_adapters_word() -> None:
    """What is signed is what is read; another key's is not taken; one is not read as the other."""
    place = MeshPlace("lease_1", b"\x0a" * 32, public("203.0.113.7", 51820))
    sight = MeshSight("lease_1", 3, 9, (Heard(0, 1200, 5, 6), Heard(2, 900, 7, 8)))
    for said in (place, sight):
        signed = SignedMesh.from_wire(SignedMesh.sign(ADAPTER, said).to_wire())
        signed.verify(ADAPTER.verify_key)
        with pytest.raises(MeshUnproven):
            signed.verify(MARKET.verify_key)
    assert SignedMesh.sign(ADAPTER, place).place == place
    assert SignedMesh.sign(ADAPTER, sight).sight == sight
    assert sight.members == {0, 2}
    with pytest.raises(Malformed):
        _ = SignedMesh.sign(ADAPTER, place).sight
    with pytest.raises(Malformed, match="sorted"):
        MeshSight.decode(MeshSight("lease_1", 3, 9, sight.heard[::-1]).encode())


@pytest.mark.parametrize("number", [0, 23, 2**63 - 1])
def test_the_largest_cluster_hears_and_is_ordered(number: int) -> None:
    """Of 64 members each of the others, by the shortest and by the longest numbers: bytes that are
    few for so many values are no attack where they are numbers.
    """
    heard = tuple(Heard(at, number, number, number) for at in range(1, MOST_MEMBERS))
    sight = MeshSight("lease_1", 1, 1, heard)
    assert SignedMesh.from_wire(SignedMesh.sign(ADAPTER, sight).to_wire()).sight == sight
    port = 1 + number % 60_000
    ways = tuple(
        Candidate(PathKind.SEEN, "203.0.113.7", port + at) for at in range(MOST_CANDIDATES)
    )
    guests = range(FIRST_GUEST, FIRST_GUEST + MOST_GUESTS)
    known = tuple(Heard(at, number, number, number) for at in guests)
    seen = MeshSight("lease_1", 1, 1, (*heard, *known))
    assert SignedMesh.from_wire(SignedMesh.sign(ADAPTER, seen).to_wire()).sight == seen
    peers = tuple(MeshPeer(at, bytes([at]) * 32, ways) for at in range(1, MOST_MEMBERS))
    peers += tuple(MeshPeer(at, bytes([at]) * 32, ways[:2]) for at in guests)
    order = ClusterOrder("lease_1", 1, Verb.RUN, peers)
    assert SignedOrder.from_wire(SignedOrder.sign(SESSION, order).to_wire()).order == order


@pytest.mark.parametrize(
    "ways",
    [
        [["seen", "203.0.113.7", 9], ["public", "203.0.113.7", 9]],
        [["seen", "203.0.113.7", 9]] * 2,
        [["relay", "203.0.113.7", port] for port in range(1, MOST_CANDIDATES + 2)],
        [["lan", "203.0.113.7", 9]],
        [["seen", "127.0.0.1", 9]],
        [["seen", "203.0.113.7", 0]],
        "seen",
    ],
)
def test_where_a_member_is_reached_is_said_in_one_way(ways: object) -> None:
    with pytest.raises(Malformed):
        MeshPlace.decode(encode(["tally/mesh-place/v1", "lease_1", bytes(32), ways]))
    assert MeshPlace.decode(MeshPlace("lease_1", bytes(32), ()).encode()).candidates == ()


def test_a_sight_holds_no_more_than_it_may() -> None:
    body = ["tally/mesh-sight/v1", "lease_1", 1, 1, [[0, 0, 0, 0]] * 200]
    with pytest.raises(Malformed, match="more than 512 items"):
        MeshSight.decode(encode(body))


@pytest.mark.parametrize("number", [MOST_MEMBERS, FIRST_GUEST - 1, FIRST_GUEST + MOST_GUESTS])
def test_who_is_neither_member_nor_guest_is_nobodys_peer(number: int) -> None:
    with pytest.raises(Malformed):
        MeshPeer.from_wire([number, b"k" * 32, []])
    with pytest.raises(Malformed):
        address(b"g" * 32, number)


def test_a_guest_is_far_from_every_member() -> None:
    base = address(b"g" * 32, 0).rpartition(".")[0]
    last = address(b"g" * 32, FIRST_GUEST + MOST_GUESTS - 1)
    assert (address(b"g" * 32, FIRST_GUEST), last) == (f"{base}.200", f"{base}.207")
    assert (host_name(FIRST_GUEST), host_name(3)) == ("guest-0", "member-3")
    seat = Seat(1, (address(b"g" * 32, 0), address(b"g" * 32, 1)))
    assert [seat.at(one) for one in (0, 1, FIRST_GUEST)] == [
        f"{base}.10", f"{base}.11", f"{base}.200",
    ]  # fmt: skip


def test_a_group_has_addresses_that_no_public_host_has() -> None:
    """A /24 of the carriers' own range, and as many hosts in it as a gang may have members."""
    found = {address(b"group", member) for member in range(64)}
    assert len(found) == 64
    assert all(one.startswith(str(network(b"group"))[:-4]) for one in found)
    assert network(b"group").subnet_of(type(network(b"group"))("100.64.0.0/10"))
    assert network(b"group") != network(b"other")
