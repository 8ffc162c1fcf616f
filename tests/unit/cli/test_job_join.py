"""``tally job mesh --join``: whom the file names is what this purse and its adapters signed, at a
market that lies; and its private key goes nowhere.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from marketplace.cli.commands import job_join
from marketplace.cli.commands.job_join import Asked
from marketplace.client.clusters.guests import Guests
from marketplace.client.sdk import joining
from marketplace.client.sdk.joining import GuestUnsigned, NoMesh
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import (
    Candidate,
    MeshPeer,
    MeshPlace,
    MeshSight,
    MeshUnproven,
    PathKind,
    SignedMesh,
)
from tests.unit.support.adapter import member_job
from tests.unit.support.payer import ADAPTER, SESSION, signed_terms, terms

STRANGER = Signer(b"\x0e" * 32)
KEY = b"\x07" * 32
PUBLIC = Candidate(PathKind.PUBLIC, "203.0.113.9", 41_000)
RELAY = Candidate(PathKind.RELAY, "203.0.113.5", 42_000)


def hexed(said: Any) -> dict[str, str]:
    return {"body": said.body.hex(), "signature": said.signature.hex()}


@dataclass
class Place:
    """A market with one living member of two; who keeps it signs whoever is in *home*'s list."""

    home: Path
    ways: tuple[Candidate, ...] = (PUBLIC,)
    by: Signer = ADAPTER
    shown: JobSpec = field(default_factory=lambda: member_job(0, mesh=True))
    signs: bool = True
    says_key: bytes = KEY
    over: bool = False
    stuck: tuple[MeshPeer, ...] = ()
    asked: list[str] = field(default_factory=list[str])

    @property
    def http(self) -> Any:
        return self

    @property
    def purse(self) -> Any:
        return SimpleNamespace(home=self.home)

    def session_keys(self) -> frozenset[bytes]:
        return frozenset({SESSION.verify_key})

    def job(self, name: str) -> Any:
        async def refresh() -> dict[str, Any]:
            return {"spec": self.shown.to_wire(), "gang": "gang_1"}

        return SimpleNamespace(refresh=refresh)

    async def get(self, path: str) -> Any:
        self.asked.append(path)
        if path == "/v1/leases/lease_1":
            work = member_job(0, mesh=True).hash
            signed = signed_terms(terms(job="job_1", work=work))
            assert signed.session_signature is not None
            return {
                "terms": signed.body.hex(), "adapter_signature": signed.adapter_signature.hex(),
                "session_signature": signed.session_signature.hex(),
            }  # fmt: skip
        guests = [one.peer for one in Guests(self.home, "gang_1").read(0)] if self.signs else []
        order = SignedOrder.sign(
            SESSION, ClusterOrder("lease_1", 2, Verb.RUN, self.stuck or tuple(guests))
        )
        sight = SignedMesh.sign(ADAPTER, MeshSight("lease_1", 2, 1, ()))
        place = SignedMesh.sign(self.by, MeshPlace("lease_1", self.says_key, self.ways))
        row = {
            "member": 0, "job": "job_1", "lease": "lease_1", "state": "ACTIVE", "stage": "",
            "needs": "", "started": True, "lost": False, "order": hexed(order),
            "place": hexed(place), "sight": hexed(sight),
        }  # fmt: skip
        nobody = dict.fromkeys(("lease", "state", "order", "place", "sight"))
        return {
            "id": "gang_1", "least": 1, "stall": "pause", "mesh": True, "over": self.over,
            "members": [row, {**row, **nobody, "member": 1, "job": "job_2", "started": False}],
        }  # fmt: skip


def joins(place: Place, file: Path, endpoint: str = "") -> str:
    asked = Asked(file, 3_600_000, endpoint, False)
    anyio.run(job_join.join, cast(Any, place), "gang_1", asked, True)
    return file.read_text()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SIGNED_S", 0.05)
    monkeypatch.setattr(joining, "LOOK_S", 0.01)


def test_the_file_names_members_by_what_their_adapters_signed_and_the_list_has_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, file = Place(tmp_path), tmp_path / "mesh.conf"
    text = joins(place, file)
    assert f"PublicKey = {base64.b64encode(KEY).decode()}" in text
    assert "Endpoint = 203.0.113.9:41000" in text and "[Peer]" in text
    said = json.loads(capsys.readouterr().out)
    assert (said["members"], said["left_out"], said["guest"]) == ([0], {}, 190)
    private = next(x for x in text.splitlines() if x.startswith("PrivateKey = "))[13:]
    kept = (tmp_path / "guests" / "gang_1.json").read_text()
    assert private not in kept and base64.b64decode(private).hex() not in kept
    assert not any("key" in path for path in place.asked)
    assert joins(place, file) == text, "the same machine comes again"
    assert len(Guests(tmp_path, "gang_1").read(0)) == 1


def test_a_hidden_member_is_left_out_by_words_unless_it_is_told_where_to_send_first(
    tmp_path: Path,
) -> None:
    place, file = Place(tmp_path, ways=(RELAY,)), tmp_path / "mesh.conf"
    text = joins(place, file)
    assert "# member-0: no address of the world leads to its host" in text
    assert "\n[Peer]" not in text
    text = joins(place, file, "198.51.100.7:51820")
    assert "\n[Peer]" in text and "Endpoint" not in text and "ListenPort = 51820" in text
    [guest] = Guests(tmp_path, "gang_1").read(0)
    assert guest.candidates == (Candidate(PathKind.PUBLIC, "198.51.100.7", 51_820),)


def test_a_market_that_swaps_a_members_key_has_it_left_out(tmp_path: Path) -> None:
    place = Place(tmp_path, by=STRANGER, says_key=b"\x66" * 32)
    with pytest.raises(MeshUnproven):
        joins(place, tmp_path / "mesh.conf")
    assert not (tmp_path / "mesh.conf").exists()
    assert Guests(tmp_path, "gang_1").read(0) == ()


def test_a_market_that_gives_a_member_anothers_address_is_refused(tmp_path: Path) -> None:
    """The number is in the job, and the job is in the terms."""
    other = replace(member_job(0, mesh=True), env={"X": "1"})
    for shown in (member_job(1, mesh=True), other):
        with pytest.raises(MeshUnproven):
            joins(Place(tmp_path, shown=shown), tmp_path / "mesh.conf")


def test_where_nobody_signs_it_is_said_and_the_same_machine_may_come_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mesh.conf"
    with pytest.raises(GuestUnsigned, match="0 of 1"):
        joins(Place(tmp_path, signs=False), file)
    before = file.read_text()
    assert joins(Place(tmp_path), file) == before
    assert len(Guests(tmp_path, "gang_1").read(0)) == 1


def test_what_is_over_is_joined_by_nobody_and_left_all_the_same(tmp_path: Path) -> None:
    place = Place(tmp_path)
    joins(place, tmp_path / "mesh.conf")
    place.over = True
    with pytest.raises(NoMesh):
        joins(place, tmp_path / "mesh.conf")
    anyio.run(job_join.leave, cast(Any, place), "gang_1", True)
    assert Guests(tmp_path, "gang_1").read(0) == ()


def test_who_leaves_is_signed_out_or_it_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path)
    joins(place, tmp_path / "mesh.conf")
    place.stuck = tuple(one.peer for one in Guests(tmp_path, "gang_1").read(0))
    with pytest.raises(GuestUnsigned):
        anyio.run(job_join.leave, cast(Any, place), "gang_1", True)
    assert Guests(tmp_path, "gang_1").read(0) == (), "whoever keeps the cluster signs it out"
    place.stuck = ()
    anyio.run(job_join.leave, cast(Any, place), "gang_1", True)


@pytest.mark.parametrize("endpoint", ["x", "203.0.113.7", "127.0.0.1:9", "203.0.113.7:0", "::1:9"])
def test_an_endpoint_that_is_none_is_refused(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(Malformed):
        joins(Place(tmp_path), tmp_path / "mesh.conf", endpoint)
    assert Guests(tmp_path, "gang_1").read(0) == ()


@pytest.mark.parametrize("for_ms", [59_999, 31 * 86_400_000])
def test_a_guest_is_in_for_a_minute_to_a_month(for_ms: int) -> None:
    with pytest.raises(Malformed):
        Asked(Path("mesh.conf"), for_ms, "", False)
