"""The ``service`` section of a job file: what it means, and every word of it that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.client.jobs import jobfiles
from marketplace.domain.work.jobfile import JobFileRefused
from marketplace.domain.work.jobfile.service import parse_service
from marketplace.domain.work.service import Health, Scale, ServiceSpec
from marketplace.jobtext import tree

JOB = """
version: 1
name: web
image: python:local
ports: [9000, {port: 8000, auth: public}]
"""
FULL = """
service:
  port: 8000
  scale: {min: 0, max: 4, concurrency: 8, down_after: 2m, predict: 90}
  health: {path: /health, every: 1s, timeout: 500ms, failures: 2, start: 90s}
  surge: 2
  drain: 1m
  sticky: true
  hold: 10s
  spread: false
  max_per_hour: 3 ADA
"""


def read(text: str) -> tuple[jobfiles.JobFile, ServiceSpec]:
    return parse_service(tree(text.encode(), "web.yaml"), "web.yaml")


def test_all_of_it() -> None:
    file, service = read(JOB + FULL)
    assert service == ServiceSpec(
        name="web", port=8000, auth="public", scale=Scale(0, 4, 8, 120_000, 90),
        health=Health("/health", 1_000, 500, 2, 90_000), surge=2, drain_ms=60_000, sticky=True,
        hold_ms=10_000, spread=False, most_per_hour=3_000_000,
    )  # fmt: skip
    assert file.draft.kind == "service"
    assert file.draft == read(JOB)[0].draft, "what a replica runs does not depend on how many"


def test_little_of_it() -> None:
    service = read(JOB + "service: {replicas: 3}\n")[1]
    assert service == ServiceSpec("web", 9000, "token", Scale(3, 3))
    assert read(JOB)[1] == ServiceSpec("web", 9000, "token")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (JOB + "service: {replica: 3}", "JOB_UNKNOWN_KEY", "service.replica"),
        (JOB + "service: 3", "JOB_WRONG_TYPE", "service"),
        (JOB + "service: {replicas: 0}", "JOB_BAD_VALUE", "service.replicas"),
        (JOB + "service: {replicas: 65}", "JOB_BAD_VALUE", "service.replicas"),
        (JOB + "service: {replicas: 2, scale: {max: 2, concurrency: 1}}", "JOB_BAD_VALUE",
         "not both"),
        (JOB + "service: {scale: {concurrency: 1}}", "JOB_MISSING_KEY", "service.scale.max"),
        (JOB + "service: {scale: {max: 2}}", "JOB_MISSING_KEY", "service.scale.concurrency"),
        (JOB + "service: {scale: {min: 3, max: 2, concurrency: 1}}", "JOB_BAD_VALUE", "3 is more"),
        (JOB + "service: {port: 7000}", "JOB_MISSING_KEY", "no port 7000"),
        (JOB + "service: {hold: 6m}", "JOB_BAD_VALUE", "service.hold"),
        (JOB + "service: {health: {every: 10ms}}", "JOB_BAD_VALUE", "service.health.every"),
        (JOB + "service: {health: {path: health}}", "JOB_BAD_VALUE", "service.health.path"),
        (JOB + "service: {health: {path: '/a b'}}", "JOB_BAD_VALUE", "service.health.path"),
        (JOB + "kind: job\nservice: {}", "JOB_BAD_VALUE", "kind"),
        (JOB + "gang: {members: 2}\nservice: {}", "JOB_BAD_VALUE", "gang"),
        (JOB + "policy: {max_duration: 4m}\nservice: {}", "JOB_BAD_VALUE", "policy.max_duration"),
        (JOB.replace("web", "Web"), "JOB_BAD_VALUE", "name"),
        (JOB.replace("name: web", ""), "JOB_MISSING_KEY", "name"),
        (JOB.replace("ports: [9000, {port: 8000, auth: public}]", ""), "JOB_MISSING_KEY", "ports"),
        ("[]", "JOB_WRONG_TYPE", "map"),
    ],
)  # fmt: skip
def test_what_is_no_service(text: str, code: str, says: str) -> None:
    with pytest.raises(JobFileRefused) as refused:
        read(text)
    assert refused.value.code == code and says in refused.value.message, refused.value.line()


def test_a_job_has_no_such_section(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(JOB + "service: {replicas: 2}")
    with pytest.raises(jobfiles.ServiceFile, match=r"web\.yaml"):
        jobfiles.load(path)
    assert jobfiles.load_service(path)[1].scale == Scale(2, 2)
