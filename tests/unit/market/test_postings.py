"""A job's posting is read once, and only so many are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain.work import jobfile
from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.records import Job
from marketplace.market.state import postings
from marketplace.market.state.postings import Postings
from tests.fakes import spec


def job(name: str) -> Job:
    wanted = replace(spec(), name=name)
    return Job(
        id=f"job_{name}", account="a", api_key="", name=name, kind="job", spec=wanted.to_wire(),
        consumer_vkh=b"", channels=[], state=JobState.POSTED, created_ms=0, updated_ms=0, session_vk=b"",
    )  # fmt: skip


def test_it_is_what_was_posted_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "MOST", 2)
    read: list[str] = []
    write = jobfile.write
    monkeypatch.setattr(jobfile, "write", lambda one: read.append(one.name) or write(one))
    kept = Postings()
    for name in ("a", "b", "a", "a", "c", "a", "b"):  # b was looked at longest ago when c came
        found = kept.of(job(name))
        assert (found.file["name"], found.budget) == (name, spec().price.budget)
    assert read == ["a", "b", "c", "b"]
