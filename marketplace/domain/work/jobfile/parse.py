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
from marketplace.domain.work.job import KINDS, JobKind, JobSpec
from marketplace.domain.work.jobfile import needs, values
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
from marketplace.domain.work.jobfile.roles import JobSays
from marketplace.domain.work.jobfile.values import (
    Section,
    choice,
    guarded,
    many,
    matching,
    whole,
)
from marketplace.domain.work.jobfile.volumes import mounts, volume_of
from marketplace.domain.work.lease import RETRY_ON
from marketplace.domain.work.parts import (
    FileIn,
    Placement,
    Policy,
    Price,
)
from marketplace.domain.work.workload import (
    MOST_TARGETS,
    NO_EGRESS,
    Egress,
    EgressMode,
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
    said, price = top.take("command", needs.command, ()), _price(top)
    says = JobSays(
        volume_of(top) if kind == "volume" else needs.blocks(top),
        said,
        needs.env_of(top),
        price.budget,
    )
    reach = [one.port for one in reached]
    draft = partial(
        JobSpec,
        name=top.take("name", _name, "job"),
        kind=kind,
        image=top.take("image", _image, ""),
        command=as_one.command(said, reach),
        resources=says.resources,
        env=says.env,
        secrets=secrets,
        ports=reached,
        relay=asked,
        volumes=top.take("volumes", mounts, ()),
        outputs=top.take("outputs", many(_inside, 64), ()),
        placement=placement,
        price=price,
        policy=_policy(top) if as_one.cluster is None else replacing(_policy(top)),
        gang=gang or as_one.gang,
        cluster=as_one.cluster,
        roles=as_one.roles(notes, says, reach),
        egress=top.take("egress", _egress, NO_EGRESS),
    )
    if kind != "volume":
        _isolation_rules(top, placement.isolation, as_one.commanded)
    gang_rules(top, as_one)
    if as_one.cluster is not None:
        store_rules(top, as_one.cluster.store, secrets)
    sources = top.take("files", many(_source, 256), ())
    _distinct(notes, top, "files", [s.dst for s in sources])
    if also is not None:
        also(top)
    notes.refuse(name)
    return JobFile(draft(), sources)


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


def _secrets(top: Section) -> tuple[str, ...]:
    def read(notes: Notes, node: Node, path: str) -> str:
        name = values.text(notes, node, path)
        guarded(notes, node, path, partial(needs.env_rule, name))
        return name

    names = top.take("secrets", many(read, 64), ())
    _distinct(top.notes, top, "secrets", names)
    return names


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
        labels=needs.text_map(top.notes, s.get("labels"), "placement.labels", 32),
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


def _isolation_rules(top: Section, wanted: Isolation, commanded: bool) -> None:
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
    if top.get("command") is None and not commanded:
        top.lacks("command", "isolation: process has no image whose own would run")


def _wanted(
    s: Section, key: str, read: Callable[[Notes, Node, str], values.T], absent: values.T
) -> values.T:
    """Both keys of a small section are needed once the section is there."""
    if s.table is None:
        return absent
    return s.need(key, read, absent, "the section needs it")
