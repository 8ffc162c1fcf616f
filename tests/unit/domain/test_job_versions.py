"""A job's form says its version; every version is read, and what nobody knows is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from marketplace.domain.errors import Malformed
from marketplace.domain.work.job import VERSION, JobSpec, JobVersionUnknown
from tests.unit.golden.test_signed import jobs, versions


def test_what_is_made_now_is_written_by_names() -> None:
    for job in jobs().values():
        wire = job.to_wire()
        assert wire["version"] == VERSION
        assert all(isinstance(one, dict) for one in wire["resources"])
        rare = {"wait_rate", "max_disk_rate"} if job.price.max_disk_rate else set[str]()
        assert set(wire["price"]) == {"max_gpu_rate", "max_core_rate", "budget"} | rare


def test_a_job_of_the_version_before_is_the_same_job_with_the_hash_that_it_had() -> None:
    for job in jobs().values():
        price = replace(job.price, wait_rate=None, max_disk_rate=0)
        ports = tuple(replace(one, direct=False) for one in job.ports)
        plain = replace(job, price=price, relay=None, volumes=(), ports=ports)
        plain = replace(plain, cluster=None, roles=())
        now, before = versions(plain).values()
        read = JobSpec.from_wire(json.loads(json.dumps(before.to_wire())))
        assert read == before and read.hash == before.hash != now.hash
        assert "version" not in before.to_wire()
        differ = [n for n in vars(now) if not n.startswith("_") and vars(now)[n] != vars(read)[n]]
        assert [name for name in differ if name not in ("hash",)] == ["version"]


def test_its_members_are_of_its_version() -> None:
    gang = versions(jobs()["gang"])[", version 1"]
    assert {one.version for one in gang.members()} == {1}


@pytest.mark.parametrize("version", [0, 3, "2", None, True, 2.0])
def test_a_version_that_came_later_is_refused_with_what_to_do(version: object) -> None:
    wire = {**jobs()["least"].to_wire(), "version": version}
    with pytest.raises(JobVersionUnknown) as refused:
        JobSpec.from_wire(wire)
    assert refused.value.code == "JOB_VERSION_UNKNOWN" and "update" in refused.value.remedy


def places(wire: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Every map of *wire* with a name of ours, and where it is."""
    found: list[tuple[dict[str, Any], str]] = []
    todo: list[tuple[Any, str]] = [(wire, "job")]
    while todo:
        value, at = todo.pop()
        if isinstance(value, dict):
            found.append((value, at))
            todo += [(v, k) for k, v in value.items() if k not in ("env", "labels")]
        elif isinstance(value, list):
            todo += [(one, at) for one in value]
    return found


def test_a_field_that_nobody_knows_is_refused_wherever_it_stands() -> None:
    """Whoever skipped it would run something else than was asked for, under the same hash or not."""
    count = len(places(jobs()["all"].to_wire()))
    assert count > 15
    for at in range(count):
        wire = json.loads(json.dumps(jobs()["all"].to_wire()))
        places(wire)[at][0]["later"] = 1
        with pytest.raises(Malformed, match="later"):
            JobSpec.from_wire(wire)


def test_a_field_that_is_missing_is_named() -> None:
    for at in range(len(places(jobs()["all"].to_wire()))):
        for name in places(jobs()["all"].to_wire())[at][0]:
            wire = json.loads(json.dumps(jobs()["all"].to_wire()))
            places(wire)[at][0].pop(name)
            if name == "gang":  # a cluster is one
                with pytest.raises(Malformed, match="say gang as well"):
                    JobSpec.from_wire(wire)
                del wire["cluster"]
            if name in ("gang", "cluster"):
                with pytest.raises(Malformed, match="roles"):
                    JobSpec.from_wire(wire)
                del wire["roles"]
            if name in (
                "gang",
                "cluster",
                "roles",
                "egress",
                "relay",
                "gpu",
                "most",
                "wait_rate",
                "volumes",
                "max_disk_rate",
                "direct",
                "store",
                "endpoint",
            ):
                JobSpec.from_wire(wire)
                continue
            if name == "url":  # of a store: it has a name otherwise
                with pytest.raises(Malformed, match="a store has"):
                    JobSpec.from_wire(wire)
                continue
            if name == "version":  # then it is read as one of before there were any
                with pytest.raises(Malformed):
                    JobSpec.from_wire(wire)
                continue
            with pytest.raises(Malformed, match=f"lacks {name}"):
                JobSpec.from_wire(wire)


def test_one_job_has_one_form() -> None:
    """An upper end that is none is not written: the same job would have two hashes."""
    wire = json.loads(json.dumps(jobs()["least"].to_wire()))
    wire["resources"][0]["cpu"]["most"] = 2**53
    with pytest.raises(Malformed, match="leave `most` out"):
        JobSpec.from_wire(wire)
