"""``tally job mesh``: what is shown of a cluster is what its own key and its adapters signed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest

from marketplace.cli.commands import job_mesh
from marketplace.client.net.http import MarketRefused
from marketplace.client.sdk.cluster import ClusterStanding, NoCluster, standing
from marketplace.domain.keys import Signer
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh import Heard, MeshSight, PathKind, SignedMesh
from marketplace.domain.work.mesh_net import FIRST_GUEST
from tests.unit.support.payer import ADAPTER, CONSUMER, SESSION, signed_terms, terms


def hexed(said: Any) -> dict[str, str]:
    return {"body": said.body.hex(), "signature": said.signature.hex()}


def ordered(by: Signer = SESSION, lease: str = "lease_1") -> dict[str, str]:
    return hexed(SignedOrder.sign(by, ClusterOrder(lease, 3, Verb.RUN)))


def seen(by: Signer = ADAPTER, lease: str = "lease_1") -> dict[str, str]:
    guest = Heard(FIRST_GUEST, 0, 148, 92, PathKind.SEEN)
    sight = MeshSight(lease, 3, 7, (Heard(1, 1530, 4096, 2048, PathKind.RELAY), guest))
    return hexed(SignedMesh.sign(by, sight))


@dataclass
class Place:
    """A market with a cluster of two: one member runs, the other is being placed."""

    order: dict[str, str] = field(default_factory=ordered)
    sight: dict[str, str] = field(default_factory=seen)
    role: str = ""
    job: str = "job_1"
    keys: frozenset[bytes] = frozenset({SESSION.verify_key})

    @property
    def http(self) -> Any:
        return self

    def session_keys(self) -> frozenset[bytes]:
        return self.keys

    async def get(self, path: str) -> Any:
        if path == "/v1/leases/lease_1":
            signed = signed_terms(terms(job="job_1"))
            assert signed.session_signature is not None
            return {
                "terms": signed.body.hex(), "adapter_signature": signed.adapter_signature.hex(),
                "session_signature": signed.session_signature.hex(),
            }  # fmt: skip
        if path != "/v1/gangs/gang_1/cluster":
            raise type("Gone", (MarketRefused,), {"code": "NOT_FOUND"})("no cluster")
        waits = {"lease": None, "state": None, "order": None, "sight": None, "started": False}
        runs = {
            "lease": "lease_1", "state": "ACTIVE", "order": self.order, "sight": self.sight,
            "started": True,
        }  # fmt: skip
        every = {"stage": "", "needs": "", "lost": False, "place": None}
        return {
            "id": "gang_1", "least": 1, "stall": "pause", "mesh": True, "over": False,
            "members": [{**every, **runs, "member": 0, "role": self.role, "job": self.job},
                        {**every, **waits, "member": 1, "job": "job_2"}],
        }  # fmt: skip


def test_members_that_differ_are_shown_with_their_roles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And equal ones without; a market of before says none."""
    anyio.run(job_mesh.mesh, cast(Any, Place(role="head")), "gang_1", False)
    told = capsys.readouterr().out
    assert "role" in told and "head" in told
    anyio.run(job_mesh.mesh, cast(Any, Place()), "gang_1", False)
    assert "role" not in capsys.readouterr().out
    anyio.run(job_mesh.mesh, cast(Any, Place(role="head")), "gang_1", True)
    assert [one["role"] for one in json.loads(capsys.readouterr().out)["members"]] == ["head", ""]


def look(place: Place, name: str = "gang_1") -> ClusterStanding:
    return anyio.run(standing, cast(Any, place), name)


def test_a_member_is_shown_with_its_order_and_whom_it_hears(
    capsys: pytest.CaptureFixture[str],
) -> None:
    anyio.run(job_mesh.mesh, cast(Any, Place()), "gang_1", False)
    told = capsys.readouterr().out
    for part in ("RUN (version 3)", "ACTIVE", "being placed", "1.5 ms", "relay", "4096", "2048"):
        assert part in told, told
    assert "guest-0" in told and "0.0 ms" not in told, "a machine that answers no echo"
    anyio.run(job_mesh.mesh, cast(Any, Place()), "gang_1", True)
    [first, second] = json.loads(capsys.readouterr().out)["members"]
    assert first["order"] == {"verb": "RUN", "version": 3, "peers": []} and first["follows"] == 3
    assert first["hears"] == [
        {"member": 1, "rtt_us": 1530, "path": "relay", "sent": 4096, "received": 2048,
         "guest": False},
        {"member": FIRST_GUEST, "rtt_us": 0, "path": "seen", "sent": 148, "received": 92,
         "guest": True},
    ]  # fmt: skip
    assert (second["lease"], second["order"], second["hears"]) == (None, None, [])


@pytest.mark.parametrize(
    ("place", "code", "order"),
    [
        (Place(order=ordered(by=CONSUMER)), "ORDER_REFUSED", False),
        (Place(order=ordered(lease="lease_2")), "ORDER_REFUSED", False),
        (Place(sight=seen(by=CONSUMER)), "MESH_UNPROVEN", True),
        (Place(sight=seen(lease="lease_2")), "MESH_UNPROVEN", True),
        (Place(sight={"body": "zz", "signature": ""}), "MESH_UNPROVEN", True),
        (Place(job="job_9"), "MESH_UNPROVEN", False),  # terms of another job's lease
        (Place(keys=frozenset()), "MESH_UNPROVEN", False),  # terms that this purse did not sign
    ],
)
def test_what_nobody_of_its_terms_signed_is_left_out_and_said(
    place: Place, code: str, order: bool
) -> None:
    first = look(place).members[0]
    assert first.unproven.startswith(code) and first.hears == ()
    assert (first.order is not None) == order


def test_what_is_no_cluster_is_refused_by_name() -> None:
    with pytest.raises(NoCluster) as caught:
        look(Place(), "gang_2")
    assert "gang_2" in caught.value.message
