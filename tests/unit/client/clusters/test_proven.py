"""What was proven once is not proven again with every look; what differs in anything is."""

from __future__ import annotations

import pytest

from marketplace.client.clusters.proven import Known
from marketplace.client.net.cluster_answers import SignedAnswer
from marketplace.domain.keys import Signer
from marketplace.domain.work.cluster_order import ClusterOrder, OrderRefused, SignedOrder, Verb
from marketplace.domain.work.mesh import (
    Heard,
    MeshPlace,
    MeshSight,
    MeshUnproven,
    SignedMesh,
    public,
)

OWN, OTHER = Signer(b"\x01" * 32), Signer(b"\x02" * 32)
VK = OWN.verify_key


def place(port: int = 1) -> MeshPlace:
    return MeshPlace("l0", b"\x07" * 32, public("192.0.2.1", port))


def sight(number: int = 1) -> MeshSight:
    return MeshSight("l0", 1, number, (Heard(1, 900, 10, 20),))


def said(what: MeshPlace | MeshSight, by: Signer = OWN) -> SignedAnswer:
    made = SignedMesh.sign(by, what)
    return {"body": made.body.hex(), "signature": made.signature.hex()}


def test_the_same_bytes_are_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known, shown, seen = Known(), said(place()), said(sight())
    order = SignedOrder.sign(OWN, ClusterOrder("l0", 3, Verb.RUN))
    first = (known.place("l0", VK, shown), known.sight("l0", VK, seen))
    assert first == (place(), sight()) and known.order("l0", VK, order).version == 3

    def never(*_: object) -> None:
        raise AssertionError("proven again")

    monkeypatch.setattr(SignedMesh, "verify", never)
    monkeypatch.setattr(SignedOrder, "verify", never)
    assert known.place("l0", VK, shown) is first[0]
    assert known.sight("l0", VK, seen) is first[1]
    assert known.order("l0", VK, SignedOrder(order.body, order.signature)).version == 3


@pytest.mark.parametrize("lie", ["signer", "signature", "body", "key", "lease"])
def test_what_differs_in_anything_is_proven_anew_and_the_good_one_stays_known(lie: str) -> None:
    known, good = Known(), said(place())
    order = SignedOrder.sign(OWN, ClusterOrder("l0", 3, Verb.RUN))
    known.place("l0", VK, good)
    known.order("l0", VK, order)
    forged: SignedAnswer = good
    vk, lease = VK, "l0"
    bad = order
    match lie:
        case "signer":
            forged = said(place(2), OTHER)
            bad = SignedOrder.sign(OTHER, ClusterOrder("l0", 4, Verb.RUN))
        case "signature":
            forged = {"body": good["body"], "signature": "00" * 64}
            bad = SignedOrder(order.body, bytes(64))
        case "body":
            forged = {"body": said(place(2))["body"], "signature": good["signature"]}
            bad = SignedOrder(ClusterOrder("l0", 9, Verb.RUN).encode(), order.signature)
        case "key":
            vk = OTHER.verify_key
        case _:
            lease = "l1"
    with pytest.raises(MeshUnproven):
        known.place(lease, vk, forged)
    with pytest.raises(OrderRefused):
        known.order(lease, vk, bad)
    assert known.place("l0", VK, good) == place()
    newer = known.place("l0", VK, said(place(5)))
    assert newer == place(5), "a newer one takes its place"
    with pytest.raises(MeshUnproven):
        known.sight("l0", VK, good)  # a place is no sight
