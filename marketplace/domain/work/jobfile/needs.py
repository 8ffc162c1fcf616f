"""What a workload needs and runs, of a job and of each role of a cluster: resources, command,
environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from marketplace.domain.sold import nominal_least
from marketplace.domain.work.jobfile import values
from marketplace.domain.work.jobfile.nodes import (
    BadValue,
    Items,
    Node,
    Notes,
    Scalar,
    Table,
    WrongType,
)
from marketplace.domain.work.jobfile.values import Section, guarded, join, many, matching, whole
from marketplace.domain.work.parts import GpuNeed, Range, Resources
from marketplace.domain.work.workload import WorkloadSpec

_model: Final = matching(r"[A-Za-z0-9][A-Za-z0-9 ._+/()-]{0,79}", "a GPU model such as H100")


def command(notes: Notes, node: Node, path: str) -> tuple[str, ...]:
    """A list is run as it stands; one line of text is a shell's."""
    if isinstance(node, Scalar):
        line = values.text(notes, node, path)
        return ("sh", "-c", line) if line else ()
    return many(values.text, 1024)(notes, node, path)


def blocks(s: Section) -> tuple[Resources, ...]:
    """``resources`` first, then each of ``any_of``, in order of preference."""
    own = s.get("resources")
    alternatives = s.get("any_of")
    found = [] if own is None else [_resources(s.notes, own, s.at("resources"))]
    if isinstance(alternatives, Items):
        found += many(_resources, 16)(s.notes, alternatives, s.at("any_of"))
    elif alternatives is not None:
        why = "a list of resource blocks is expected"
        s.notes.add(WrongType, alternatives, s.at("any_of"), why)
    return tuple(found) or (Resources(),)


def _resources(notes: Notes, node: Node, path: str) -> Resources:
    s = Section.read(notes, node, path, ("gpu", "cpu", "memory", "disk"))
    gpu = s.take("gpu", _gpu, None)
    return Resources(
        cpu=s.take("cpu", _at_least(values.cpu, 10, "0.01"), Range(1000)),
        memory=s.take("memory", _at_least(values.size, 16, "16MB"), Range(512)),
        disk=s.take("disk", values.size, Range(0)),
        gpu=gpu,
    )


def _gpu(notes: Notes, node: Node, path: str) -> GpuNeed | None:
    if isinstance(node, Scalar):  # gpu: H100 and gpu: 2 mean what they say
        if node.kind == "int":
            return GpuNeed(count=_at_least(values.counted, 1, "1")(notes, node, path))
        return GpuNeed(models=(_model(notes, node, path),))
    s = Section.read(notes, node, path, ("model", "count", "vram", "share"))
    vram = s.take("vram", values.size, Range(0))
    return GpuNeed(
        models=s.take("model", many(_model, 32), ()),
        count=s.take("count", _at_least(values.counted, 1, "1"), Range(1, 1)),
        vram=Range(nominal_least(vram.least), vram.most),
        share=s.take("share", whole(1, 1000), 1000),
    )


def _at_least(
    read: Callable[[Notes, Node, str], Range], least: int, shown: str
) -> Callable[[Notes, Node, str], Range]:
    def bounded(notes: Notes, node: Node, path: str) -> Range:
        before = len(notes.problems)
        found = read(notes, node, path)
        if found.least < least and len(notes.problems) == before:
            notes.add(BadValue, node, path, f"starts at {shown} or more")
        return found

    return bounded


def env_of(s: Section) -> dict[str, str]:
    """``env``: text by name."""
    node = s.get("env")
    pairs = text_map(s.notes, node, s.at("env"), 256)
    if isinstance(node, Table):
        for key, _ in node.entries:
            where = join(s.at("env"), key.text[:60])
            guarded(s.notes, key, where, partial(env_rule, key.text))
    return pairs


def env_rule(name: str) -> None:
    """The adapter's own rule for names of the environment."""
    WorkloadSpec(lease="job", image="", command=(), env={name: ""})


def text_map(notes: Notes, node: Node | None, path: str, most: int) -> dict[str, str]:
    """A map of at most *most* names to text."""
    if node is None:
        return {}
    if not isinstance(node, Table):
        notes.add(WrongType, node, path, "a map of names to text is expected")
        return {}
    if len(node.entries) > most:
        notes.add(BadValue, node, path, f"{len(node.entries)} entries; at most {most}")
        return {}
    known = [key.text for key, _ in node.entries]
    read = Section.read(notes, node, path, known)
    return {key: values.text(notes, value, join(path, key)) for key, value in read.entries.items()}
