"""From the tree of a job file to a :class:`JobSpec`: strict, pure, and all problems at once.

The vocabulary of the file is the keys below and nothing else; unknown ones are refused with the
nearest known name, because a misspelt limit that is ignored is a limit that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

from marketplace.domain.isolation import Isolation
from marketplace.domain.sold import nominal_least
from marketplace.domain.work.job import KINDS, JobKind, JobSpec
from marketplace.domain.work.jobfile import values
from marketplace.domain.work.jobfile.gangs import (
    NO_CLUSTER,
    cluster_of,
    gang_of,
    gang_rules,
    replacing,
    store_rules,
)
from marketplace.domain.work.jobfile.nodes import (
    BadValue,
    Items,
    Node,
    Notes,
    Scalar,
    Table,
    WrongType,
)
from marketplace.domain.work.jobfile.ports import ports, relay
from marketplace.domain.work.jobfile.values import (
    Section,
    choice,
    guarded,
    join,
    many,
    matching,
    whole,
)
from marketplace.domain.work.jobfile.volumes import mounts, volume_of
from marketplace.domain.work.lease import RETRY_ON
from marketplace.domain.work.parts import (
    FileIn,
    GpuNeed,
    Placement,
    Policy,
    Price,
    Range,
    Resources,
)
from marketplace.domain.work.workload import (
    MOST_TARGETS,
    NO_EGRESS,
    Egress,
    EgressMode,
    WorkloadSpec,
    workspace_path,
)

TOP: Final = (
    "version", "name", "kind", "image", "command", "resources", "any_of", "files", "env", "secrets",
    "ports", "egress", "outputs", "placement", "price", "policy", "gang", "relay", "volumes",
    "cluster",
)  # fmt: skip

_image: Final = matching(
    r"(?:[a-z0-9][a-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?)|(?:sha256:[0-9a-f]{64})",
    "an image such as python:3.11 or registry/name@sha256:…",
)
_name: Final = matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", "a name of letters, digits, . _ -")
_word: Final = matching(r"[^\s\x00-\x1f]{1,200}", "a word without spaces")
_model: Final = matching(r"[A-Za-z0-9][A-Za-z0-9 ._+/()-]{0,79}", "a GPU model such as H100")


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the consumer's machine that goes in: *src* as written, to *dst* in the
    workspace.
    """

    src: str
    dst: str
    mode: int
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job file that holds: the job without its files' contents, and which files it wants."""

    draft: JobSpec
    sources: tuple[Source, ...]

    def spec(self, files: Sequence[FileIn] = ()) -> JobSpec:
        """The job, once its files were read and hashed."""
        return replace(self.draft, files=tuple(files))


def parse(root: Node, name: str = "", also: Callable[[Section], None] | None = None) -> JobFile:
    """The job of a file's *root* node; :class:`JobFileRefused` lists everything that is wrong.

    *also* notes what whoever takes the file asks of it beyond this vocabulary.
    """
    notes = Notes()
    if not isinstance(root, Table):
        notes.add(WrongType, root, "", f"a job file is a map with {', '.join(TOP)}")
        notes.refuse(name)
    top = Section.read(notes, root, "", TOP)
    top.need("version", whole(1, 1), 1, "write: version: 1")
    kind = cast(JobKind, top.take("kind", choice(*KINDS), "job"))
    placement, asked = _placement(top), top.take("relay", relay, None)
    gang, as_one = top.take("gang", gang_of, None), top.take("cluster", cluster_of, NO_CLUSTER)
    reached = ports(top, asked)
    secrets = _secrets(top)
    draft = partial(
        JobSpec,
        name=top.take("name", _name, "job"),
        kind=kind,
        image=top.take("image", _image, ""),
        command=as_one.command(top.take("command", _command, ()), [one.port for one in reached]),
        resources=volume_of(top) if kind == "volume" else _blocks(top),
        env=_env(top),
        secrets=secrets,
        ports=reached,
        relay=asked,
        volumes=top.take("volumes", mounts, ()),
        outputs=top.take("outputs", many(_inside, 64), ()),
        placement=placement,
        price=_price(top),
        policy=_policy(top) if as_one.cluster is None else replacing(_policy(top)),
        gang=gang or as_one.gang,
        cluster=as_one.cluster,
        egress=top.take("egress", _egress, NO_EGRESS),
    )
    if kind != "volume":
        _isolation_rules(top, placement.isolation)
    gang_rules(top)
    if as_one.cluster is not None:
        store_rules(top, as_one.cluster.store, secrets)
    sources = top.take("files", many(_source, 256), ())
    _distinct(notes, top, "files", [s.dst for s in sources])
    if also is not None:
        also(top)
    notes.refuse(name)
    return JobFile(draft(), sources)


def _command(notes: Notes, node: Node, path: str) -> tuple[str, ...]:
    """A list is run as it stands; one line of text is a shell's."""
    if isinstance(node, Scalar):
        line = values.text(notes, node, path)
        return ("sh", "-c", line) if line else ()
    return many(values.text, 1024)(notes, node, path)


def _blocks(top: Section) -> tuple[Resources, ...]:
    """``resources`` first, then each of ``any_of``, in order of preference."""
    own = top.get("resources")
    alternatives = top.get("any_of")
    blocks = [] if own is None else [_resources(top.notes, own, "resources")]
    if isinstance(alternatives, Items):
        blocks += many(_resources, 16)(top.notes, alternatives, "any_of")
    elif alternatives is not None:
        top.notes.add(WrongType, alternatives, "any_of", "a list of resource blocks is expected")
    return tuple(blocks) or (Resources(),)


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


def _source(notes: Notes, node: Node, path: str) -> Source:
    s = Section.read(notes, node, path, ("src", "dst", "mode"))
    src = s.need("src", values.text, "", "name the file on this machine")
    dst = s.need("dst", _inside, "", "name its place, e.g. /workspace/train.py")
    mode = s.take("mode", _mode, 0o644)
    return Source(src, dst, mode, node.line, node.column)


def _mode(notes: Notes, node: Node, path: str) -> int:
    written = values.matching(r"0?[0-7]{3}", 'file permissions such as "755"')(notes, node, path)
    return int(written, 8) if written.isdecimal() and set(written) <= set("01234567") else 0o644


def _inside(notes: Notes, node: Node, path: str) -> str:
    """A path of the workspace: the adapter's own rule, before anything is paid."""
    written = values.text(notes, node, path)
    if written or not isinstance(node, Scalar) or node.kind == "text":
        guarded(notes, node, path, lambda: workspace_path(written))
    return written


def _distinct(notes: Notes, top: Section, key: str, written: Sequence[str]) -> None:
    node = top.get(key)
    if node is not None and len(set(written)) != len(written):
        notes.add(BadValue, node, key, "two entries have the same place")


def _env(top: Section) -> dict[str, str]:
    node = top.get("env")
    pairs = _text_map(top.notes, node, "env", 256)
    if isinstance(node, Table):
        for key, _ in node.entries:
            guarded(top.notes, key, join("env", key.text[:60]), partial(_env_rule, key.text))
    return pairs


def _secrets(top: Section) -> tuple[str, ...]:
    def read(notes: Notes, node: Node, path: str) -> str:
        name = values.text(notes, node, path)
        guarded(notes, node, path, partial(_env_rule, name))
        return name

    names = top.take("secrets", many(read, 64), ())
    _distinct(top.notes, top, "secrets", names)
    return names


def _env_rule(name: str) -> None:
    """The adapter's own rule for names of the environment."""
    WorkloadSpec(lease="job", image="", command=(), env={name: ""})


def _text_map(notes: Notes, node: Node | None, path: str, most: int) -> dict[str, str]:
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


def _egress(notes: Notes, node: Node, path: str) -> Egress:
    """``none``, ``open``, or a list of ``host:port``."""
    if not isinstance(node, Items):
        return Egress(EgressMode(choice("none", "open")(notes, node, path)))
    before = len(notes.problems)
    allow = many(values.text, MOST_TARGETS)(notes, node, path)
    if len(notes.problems) > before:
        return NO_EGRESS
    return guarded(notes, node, path, lambda: Egress(EgressMode.LIST, allow)) or NO_EGRESS


def _placement(top: Section) -> Placement:
    known = ("regions", "isolation", "min_trust", "labels", "providers", "not_providers")
    s = Section.read(top.notes, top.get("placement"), "placement", known)
    provider = matching(r"[0-9a-f]{64}", "a provider's id: 64 hex digits")
    return Placement(
        regions=s.take("regions", many(_word, 64), ()),
        isolation=Isolation(s.take("isolation", choice(*reversed(Isolation)), Isolation.CONTAINER)),
        min_trust=s.take("min_trust", whole(0, 100), 0),
        labels=_text_map(top.notes, s.get("labels"), "placement.labels", 32),
        providers=s.take("providers", many(provider, 256), ()),
        not_providers=s.take("not_providers", many(provider, 256), ()),
    )


def _price(top: Section) -> Price:
    known = (
        "max_per_gpu_second", "max_per_core_second", "max_per_gb_second", "budget",
        "wait_per_second",
    )  # fmt: skip
    s = Section.read(top.notes, top.get("price"), "price", known)
    return Price(
        max_gpu_rate=s.take("max_per_gpu_second", values.rate, 0),
        max_core_rate=s.take("max_per_core_second", values.rate, 0),
        max_disk_rate=s.take("max_per_gb_second", values.rate, 0),
        budget=s.take("budget", values.money, Price().budget),
        wait_rate=s.take("wait_per_second", values.worth, None),
    )


def _policy(top: Section) -> Policy:
    known = ("max_duration", "retry", "idle_stop", "queue", "priority")
    s = Section.read(top.notes, top.get("policy"), "policy", known)
    retry = Section.read(top.notes, s.get("retry"), "policy.retry", ("on", "max"))
    idle = Section.read(top.notes, s.get("idle_stop"), "policy.idle_stop", ("gpu_below", "for"))
    reasons = choice(*(reason.value.lower() for reason in RETRY_ON))
    no_reasons: tuple[str, ...] = ()
    return Policy(
        max_duration_ms=s.take("max_duration", values.duration, Policy().max_duration_ms),
        retry_on=_wanted(retry, "on", many(reasons, 16), no_reasons),
        retry_max=_wanted(retry, "max", whole(1, 10), 0),
        idle_gpu_below=_wanted(idle, "gpu_below", whole(1, 100), 0),
        idle_for_ms=_wanted(idle, "for", values.duration, 0),
        queue=s.take("queue", values.flag, False),
        priority=s.take("priority", whole(0, 100), 0),
    )


def _isolation_rules(top: Section, wanted: Isolation) -> None:
    """An image, or the host's own programs: a file that says both, or neither, leaves open what
    runs.
    """
    image = top.get("image")
    if wanted.takes_image:
        if image is None:
            top.lacks("image", "write e.g. image: python:3.11, or placement: {isolation: process}")
        return
    if image is not None:
        why = (
            "isolation: process runs the host's own programs and no image: leave out one of the two"
        )
        top.notes.add(BadValue, image, "image", why)
    if top.get("command") is None:
        top.lacks("command", "isolation: process has no image whose own would run")


def _wanted(
    s: Section, key: str, read: Callable[[Notes, Node, str], values.T], absent: values.T
) -> values.T:
    """Both keys of a small section are needed once the section is there."""
    if s.table is None:
        return absent
    return s.need(key, read, absent, "the section needs it")
