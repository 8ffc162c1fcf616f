"""``cluster:`` in a job file: a gang that works as one, and is read again as it was written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from marketplace.client.jobs import jobfiles
from marketplace.domain.errors import Malformed
from marketplace.domain.work.cluster import ASSEMBLE_MS, HOLD_MS, Cluster, Stall
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import BadValue, JobFileRefused, MissingKey, UnknownKey, write
from marketplace.domain.work.parts import Gang

FILE = "version: 1\nimage: python:3.11\n"


def _read(more: str) -> JobSpec:
    return jobfiles.loads(FILE + more).spec()


def test_a_cluster_is_a_gang_whose_members_have_a_network_and_are_replaced() -> None:
    """What is not said is: all members, a mesh, a pause when they are too few, three times each."""
    spec = _read("cluster: {members: 3}\n")
    assert spec.gang == Gang(3)
    assert spec.cluster == Cluster(3, True, Stall.PAUSE, ASSEMBLE_MS, HOLD_MS)
    assert spec.policy.retry_max == 3 and "provider_lost" in spec.policy.retry_on
    assert JobSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec


@pytest.mark.parametrize(
    "more",
    [
        "cluster: {members: 4, min: 2, spread: true, same_region: true, stall: run, "
        "assemble: 30s, hold: 90s, network: none}\n",
        "cluster: {members: 2}\npolicy:\n  retry: {on: [provider_lost], max: 1}\n",
    ],
)
def test_what_is_written_is_read_as_the_same_cluster(more: str) -> None:
    """All that a file can say."""
    spec = _read(more)
    assert jobfiles.loads(json.dumps(write(spec))).spec() == spec
    assert "gang" not in write(spec)


def test_members_know_which_they_are_and_where() -> None:
    """One group, and an address each; another job is another group; without a mesh none."""
    spec = _read("cluster: {members: 3}\n")
    members = [JobSpec.from_wire(one.to_wire()) for one in spec.members()]
    assert [one.member for one in members] == [0, 1, 2]
    assert len({one.group for one in members}) == 1
    assert len({one.mesh_address for one in members}) == 3
    assert replace(spec, name="other").members()[0].group != members[0].group
    assert {one.mesh_address for one in _read("gang: {members: 2}\n").members()} == {""}
    assert {
        one.mesh_address for one in _read("cluster: {members: 2, network: none}\n").members()
    } == {""}


@pytest.mark.parametrize(
    ("more", "kind", "path"),
    [
        ("cluster: {min: 2}\n", MissingKey, "cluster.members"),
        ("cluster: {members: 3, min: 4}\n", BadValue, "cluster.min"),
        ("cluster: {members: 3, min: 0}\n", BadValue, "cluster.min"),
        ("cluster: {members: 3, stall: wait}\n", BadValue, "cluster.stall"),
        ("cluster: {members: 3, network: vpn}\n", BadValue, "cluster.network"),
        ("cluster: {members: 3, hold: 2h}\n", BadValue, "cluster.hold"),
        ("cluster: {members: 3, framework: mpi}\ncommand: [a]\n", BadValue, "cluster.framework"),
        (
            "cluster: {members: 3, framework: torchrun, network: none}\ncommand: [a]\n",
            BadValue,
            "cluster.framework",
        ),
        ("cluster: {members: 3, framework: torchrun}\n", MissingKey, "command"),
        ("cluster: {members: 3, mim: 2}\n", UnknownKey, "cluster.mim"),
        ("cluster: {members: 3}\ngang: {members: 3}\n", BadValue, "gang"),
    ],
)
def test_each_mistake_of_a_cluster_is_named(
    more: str, kind: type[JobFileRefused], path: str
) -> None:
    """With the place where it stands."""
    with pytest.raises(kind) as refused:
        _read(more)
    assert refused.value.fields["path"] == path


@pytest.mark.parametrize(
    "broken",
    [
        {"gang": None},
        {"cluster": {"least": 4}},
        {"cluster": {"least": 0}},
        {"cluster": {"stall": "wait"}},
        {"cluster": {"hold_ms": 0}},
        {"cluster": {"hold_ms": 3_600_001}},
        {"cluster": {"mesh": 1}},
        {"cluster": {"more": 1}},
        {"env": {"TALLY_MEMBER": "3"}},
        {"env": {"TALLY_MEMBER": "01"}},
        {"env": {"TALLY_MEMBER": "-1"}},
    ],
)
def test_a_cluster_that_is_none_is_refused_on_the_wire(broken: dict[str, Any]) -> None:
    """A member that is none too: its address would be somebody else's."""
    wire = _read("cluster: {members: 3}\n").to_wire()
    for key, said in broken.items():
        wire[key] = {**wire[key], **said} if isinstance(said, dict) else said
    if wire["gang"] is None:
        del wire["gang"]
    with pytest.raises(Malformed):
        JobSpec.from_wire(wire)
