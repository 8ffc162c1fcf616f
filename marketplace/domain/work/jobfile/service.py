"""A service's file: a job file with a ``service`` section beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from marketplace.domain.app_origin import SERVICE_NAME
from marketplace.domain.units import show_duration
from marketplace.domain.work.jobfile import values
from marketplace.domain.work.jobfile.nodes import (
    BadValue,
    MissingKey,
    Node,
    Notes,
    Scalar,
    Table,
)
from marketplace.domain.work.jobfile.parse import JobFile, parse
from marketplace.domain.work.jobfile.values import Section, matching, whole
from marketplace.domain.work.service import MOST_REPLICAS, Health, Scale, ServiceSpec

KEY: Final = "service"
_KEYS: Final = (
    "port", "replicas", "scale", "health", "surge", "drain", "sticky", "hold", "spread",
    "max_per_hour",
)  # fmt: skip
HOLD_MOST_MS: Final = 300_000
HOUR_MS: Final = 3_600_000
_path: Final = matching(r"/[!-~]{0,500}", "a path such as /health")


def section_of(root: Node) -> Node | None:
    """The ``service`` section of a file; None: it is a job's."""
    if not isinstance(root, Table):
        return None
    return next((value for key, value in root.entries if key.text == KEY), None)


def parse_service(root: Node, name: str = "") -> tuple[JobFile, ServiceSpec]:
    """The job that each replica runs, and what the service is; :class:`JobFileRefused` lists
    everything that is wrong. A job without the section is a service of one replica.
    """
    section, rest = section_of(root), root
    if isinstance(root, Table):
        rest = replace(root, entries=tuple(e for e in root.entries if e[0].text != KEY))
    made: list[ServiceSpec] = []

    def also(top: Section) -> None:
        _fits(top)
        made.append(_service(Section.read(top.notes, section, KEY, _KEYS)))

    file = parse(rest, name, also=also)
    spec, draft, notes = made[0], file.draft, Notes()
    port = next((one for one in draft.ports if one.port == spec.port or not spec.port), None)
    if port is None:
        said = f"the job has no port {spec.port}" if spec.port else "the job has no port"
        notes.add(MissingKey, section or root, "ports", f"{said}: write e.g. ports: [8000]")
        notes.refuse(name)
    assert port is not None
    least = 2 * (spec.health.start_ms + spec.drain_ms)
    if draft.policy.max_duration_ms < least:
        why = f"a replica has to run for {show_duration(least)} at least, twice its start and drain"
        notes.add(BadValue, section or root, "policy.max_duration", why)
        notes.refuse(name)
    spec = replace(spec, name=draft.name, port=port.port, auth=port.auth)
    return JobFile(replace(draft, kind="service"), file.sources), spec


def _fits(top: Section) -> None:
    kind, gang, name = top.get("kind"), top.get("gang"), top.get("name")
    if isinstance(kind, Scalar) and kind.text == "job":
        top.notes.add(BadValue, kind, "kind", "a service's jobs are of kind `service`")
    if gang is not None:
        top.notes.add(BadValue, gang, "gang", "the members of a gang are no replicas")
    if name is None:
        top.lacks("name", "a service is known by its name: write e.g. name: web")
    elif not isinstance(name, Scalar) or SERVICE_NAME.fullmatch(name.text) is None:
        why = "a service's name is of small letters, digits and -, at most 36"
        top.notes.add(BadValue, name, "name", why)


def _service(s: Section) -> ServiceSpec:
    return ServiceSpec(
        name="",
        port=s.take("port", whole(1, 65_535), 0),
        auth="",
        scale=_scale(s),
        health=_health(Section.read(s.notes, s.get("health"), s.at("health"), _HEALTH)),
        surge=s.take("surge", whole(1, MOST_REPLICAS), 1),
        drain_ms=s.take("drain", _between(0, HOUR_MS), 30_000),
        sticky=s.take("sticky", values.flag, False),
        hold_ms=s.take("hold", _between(0, HOLD_MOST_MS), 60_000),
        spread=s.take("spread", values.flag, True),
        most_per_hour=s.take("max_per_hour", values.money, 0),
    )


def _between(least_ms: int, most_ms: int) -> Callable[[Notes, Node, str], int]:
    def bounded(notes: Notes, node: Node, path: str) -> int:
        before = len(notes.problems)
        found = values.duration(notes, node, path)
        if not least_ms <= found <= most_ms and len(notes.problems) == before:
            between = f"{show_duration(least_ms)} to {show_duration(most_ms)}"
            notes.add(BadValue, node, path, f"{between} are possible")
        return found

    return bounded


_HEALTH: Final = ("path", "every", "timeout", "failures", "start")


def _health(s: Section) -> Health:
    usual = Health()
    return Health(
        path=s.take("path", _path, usual.path),
        every_ms=s.take("every", _between(500, HOUR_MS), usual.every_ms),
        timeout_ms=s.take("timeout", _between(100, 60_000), usual.timeout_ms),
        failures=s.take("failures", whole(1, 100), usual.failures),
        start_ms=s.take("start", _between(1_000, 24 * HOUR_MS), usual.start_ms),
    )


_SCALE: Final = ("min", "max", "concurrency", "down_after", "predict")


def _scale(top: Section) -> Scale:
    said, count = top.get("scale"), top.get("replicas")
    if said is None:
        fixed = top.take("replicas", whole(1, MOST_REPLICAS), 1)
        return Scale(fixed, fixed)
    if count is not None:
        top.notes.add(BadValue, count, top.at("replicas"), "say replicas, or scale: not both")
    s = Section.read(top.notes, said, top.at("scale"), _SCALE)
    least = s.take("min", whole(0, MOST_REPLICAS), 1)
    most = s.need("max", whole(1, MOST_REPLICAS), 1, "say at most how many, e.g. max: 4")
    if least > most:
        top.notes.add(BadValue, said, s.at("min"), f"{least} is more than max: {most}")
    return Scale(
        least,
        most,
        s.need("concurrency", whole(1, 10_000), 1, "say how many requests one is meant for"),
        s.take("down_after", _between(1_000, 24 * HOUR_MS), Scale().down_after_ms),
        s.take("predict", whole(50, 99), 0),
    )
