"""A job: what a consumer wants run, with its limits, and the lifecycle that it goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import Any, Final, Literal, cast

from marketplace.domain import canonical
from marketplace.domain.canonical import want_int, want_list, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.isolation import Isolation, want_isolation
from marketplace.domain.machine import Machine
from marketplace.domain.work.workload import MOST_TARGETS, NO_EGRESS, Egress, EgressMode

UNLIMITED: Final = 2**53


@dataclass(frozen=True)
class Range:
    """``least..most``, both included; *most* is :data:`UNLIMITED` when open."""

    least: int
    most: int = UNLIMITED

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise Malformed(f"{self.least}..{self.most} is an empty range")


@dataclass(frozen=True)
class GpuNeed:
    """*count* devices of any of *models* (empty = any), each with *vram* MiB and *share*
    per-mille.
    """

    models: tuple[str, ...] = ()
    count: Range = Range(1, 1)
    vram: Range = Range(0)
    share: int = 1000


@dataclass(frozen=True)
class Resources:
    """One acceptable set: CPU in milli-cores, memory and disk in MiB."""

    cpu: Range = Range(1000)
    memory: Range = Range(512)
    disk: Range = Range(0)
    gpu: GpuNeed | None = None


@dataclass(frozen=True)
class FileIn:
    """A file to be put at *dst* before the start; *sha256* is its content's hash, *size* in
    bytes.
    """

    dst: str
    sha256: str
    size: int
    mode: int = 0o644


@dataclass(frozen=True)
class Port:
    """A port of a service, reachable at one URL through the market; *auth* is token or public."""

    port: int
    auth: str = "token"


@dataclass(frozen=True)
class Placement:
    """Where the job may run."""

    regions: tuple[str, ...] = ()
    isolation: Isolation = Isolation.CONTAINER
    min_trust: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    providers: tuple[str, ...] = ()
    not_providers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Price:
    """Caps: micro-lovelace per GPU- and core-second (0 = no cap), and the job's hard *budget*."""

    max_gpu_rate: int = 0
    max_core_rate: int = 0
    budget: int = 10_000_000


@dataclass(frozen=True)
class Policy:
    """Limits and what to do on failure; durations in ms; *idle_gpu_below* is per cent, 0 = off."""

    max_duration_ms: int = 3_600_000
    retry_on: tuple[str, ...] = ()
    retry_max: int = 0
    idle_gpu_below: int = 0
    idle_for_ms: int = 0
    queue: bool = False
    priority: int = 0


@dataclass(frozen=True)
class Gang:
    """Equal *members*, placed all together or not at all: *spread* on one host each, *same_region*
    in one.
    """

    members: int
    spread: bool = False
    same_region: bool = False


MOST_MEMBERS: Final = 64
_TOLD: Final = frozenset({"TALLY_MEMBER", "TALLY_MEMBERS"})  # to each member, beside the job's own
JobKind = Literal["job", "service"]


@dataclass(frozen=True)
class JobSpec:
    """A job as its file says, all ranges and units resolved; *resources* in order of preference.

    *image* is "" where the isolation is a process's.
    """

    name: str
    image: str
    command: tuple[str, ...]
    resources: tuple[Resources, ...]
    kind: JobKind = "job"
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[str, ...] = ()
    files: tuple[FileIn, ...] = ()
    ports: tuple[Port, ...] = ()
    outputs: tuple[str, ...] = ()
    placement: Placement = Placement()
    price: Price = Price()
    policy: Policy = Policy()
    gang: Gang | None = None
    egress: Egress = NO_EGRESS

    def check_isolation(self) -> None:
        """:class:`IsolationRefused` where image and isolation contradict each other."""
        self.placement.isolation.check(self.image, self.command)

    def members(self) -> tuple[JobSpec, ...]:
        """What each member of the gang runs: the same job, told apart by ``TALLY_MEMBER`` (from 0),
        with an equal part of the budget. A job without a gang is its only member.
        """
        if self.gang is None:
            return (self,)
        count = self.gang.members
        price = replace(self.price, budget=self.price.budget // count)
        return tuple(
            replace(
                self,
                price=price,
                env={**self.env, "TALLY_MEMBER": str(at), "TALLY_MEMBERS": str(count)},  # _TOLD
            )
            for at in range(count)
        )

    @cached_property
    def hash(self) -> bytes:
        """blake2b_256 of the canonical job: ``Terms.work``."""
        return canonical.blake2b_256(canonical.encode(self._wire))

    def to_wire(self) -> dict[str, Any]:
        """Plain values, for a message, a store or JSON; what is inside is not to be changed."""
        return dict(self._wire)

    @cached_property
    def _wire(self) -> dict[str, Any]:
        """Made once: a posted job is hashed, stored and sent."""
        place, price, policy, gang = self.placement, self.price, self.policy, self.gang
        # Only where there is one, so that other jobs keep their hash.
        group = {"gang": [gang.members, gang.spread, gang.same_region]} if gang else {}
        return {
            **group,
            **_egress_to_wire(self.egress),
            "name": self.name,
            "kind": self.kind,
            "image": self.image,
            "command": list(self.command),
            "resources": [_resources_to_wire(r) for r in self.resources],
            "env": dict(self.env),
            "secrets": list(self.secrets),
            "files": [[f.dst, f.sha256, f.size, f.mode] for f in self.files],
            "ports": [[p.port, p.auth] for p in self.ports],
            "outputs": list(self.outputs),
            "placement": {
                "regions": list(place.regions),
                "isolation": place.isolation.value,
                "min_trust": place.min_trust,
                "labels": dict(place.labels),
                "providers": list(place.providers),
                "not_providers": list(place.not_providers),
            },
            "price": [price.max_gpu_rate, price.max_core_rate, price.budget],
            "policy": {
                "max_duration_ms": policy.max_duration_ms,
                "retry_on": list(policy.retry_on),
                "retry_max": policy.retry_max,
                "idle_gpu_below": policy.idle_gpu_below,
                "idle_for_ms": policy.idle_for_ms,
                "queue": policy.queue,
                "priority": policy.priority,
            },
        }

    @staticmethod
    def from_wire(value: object) -> JobSpec:
        """The reverse; :class:`Malformed` for anything else.

        Its counts are those of a job file: whatever a market takes fits the frame that an adapter
        takes (``cbor.FRAME``).
        """
        w = _map(value, "job")
        try:
            place, policy = _map(w["placement"], "placement"), _map(w["policy"], "policy")
            price = [want_int(x, "price") for x in want_list(w["price"], 3, "price")]
            kind = want_text(w["kind"], "kind", 10)
            if kind not in ("job", "service"):
                raise Malformed(f"kind {kind!r} is neither job nor service")
            return JobSpec(
                name=want_text(w["name"], "name", 80),
                kind=kind,
                image=want_text(w["image"], "image", 300),
                command=_texts(w["command"], "command", 1024),
                resources=tuple(_resources(x) for x in _list(w["resources"], "resources", 17)),
                env=_text_map(w["env"], "env", 256, _TOLD),
                secrets=_texts(w["secrets"], "secrets", 64),
                files=tuple(_file(x) for x in _list(w["files"], "files", 256)),
                ports=tuple(_port(x) for x in _list(w["ports"], "ports", 16)),
                outputs=_texts(w["outputs"], "outputs", 64),
                placement=Placement(
                    regions=_texts(place["regions"], "regions", 64),
                    isolation=want_isolation(place["isolation"]),
                    min_trust=want_int(place["min_trust"], "min_trust", 0, 100),
                    labels=_text_map(place["labels"], "labels", 32),
                    providers=_texts(place["providers"], "providers", 256),
                    not_providers=_texts(place["not_providers"], "not_providers", 256),
                ),
                price=Price(*price),
                gang=_gang(w["gang"]) if "gang" in w else None,
                egress=_egress(w["egress"]) if "egress" in w else NO_EGRESS,
                policy=Policy(
                    max_duration_ms=want_int(policy["max_duration_ms"], "max_duration_ms", 1),
                    retry_on=_texts(policy["retry_on"], "retry_on", 16),
                    retry_max=want_int(policy["retry_max"], "retry_max", 0, 100),
                    idle_gpu_below=want_int(policy["idle_gpu_below"], "idle_gpu_below", 0, 100),
                    idle_for_ms=want_int(policy["idle_for_ms"], "idle_for_ms"),
                    queue=policy["queue"] is True,
                    priority=want_int(policy["priority"], "priority", 0, 100),
                ),
            )
        except KeyError as error:
            raise Malformed(f"the job lacks {error}") from None


class JobState(Enum):
    """Where a job stands; why it ended is ``EndReason``, data beside it."""

    POSTED = auto()  # accepted; not matched yet
    QUEUED = auto()  # nothing fits now; it waits
    QUOTED = auto()  # a provider signed terms; the consumer decides
    STARTING = auto()  # both signed: channel, image, start
    RUNNING = auto()
    PAUSED = auto()
    ENDING = auto()
    ENDED = auto()


class JobEvent(Enum):
    """What can happen to one."""

    WAIT = auto()
    QUOTE = auto()
    REMATCH = auto()  # a declined or lapsed quote, or a retry after the provider was lost
    SIGN = auto()
    START = auto()
    PAUSE = auto()
    RESUME = auto()
    STOP = auto()
    END = auto()


_S, _E = JobState, JobEvent

JOB: Final = Machine(
    "job",
    _S.POSTED,
    {
        (_S.POSTED, _E.WAIT): _S.QUEUED,
        (_S.POSTED, _E.QUOTE): _S.QUOTED,
        (_S.POSTED, _E.REMATCH): _S.POSTED,
        (_S.POSTED, _E.END): _S.ENDED,
        (_S.QUEUED, _E.WAIT): _S.QUEUED,
        (_S.QUEUED, _E.REMATCH): _S.POSTED,
        (_S.QUEUED, _E.END): _S.ENDED,
        (_S.QUOTED, _E.SIGN): _S.STARTING,
        (_S.QUOTED, _E.REMATCH): _S.POSTED,
        (_S.QUOTED, _E.END): _S.ENDED,
        (_S.STARTING, _E.START): _S.RUNNING,
        (_S.STARTING, _E.STOP): _S.ENDING,
        (_S.STARTING, _E.REMATCH): _S.POSTED,
        (_S.STARTING, _E.END): _S.ENDED,
        (_S.RUNNING, _E.PAUSE): _S.PAUSED,
        (_S.RUNNING, _E.STOP): _S.ENDING,
        (_S.RUNNING, _E.REMATCH): _S.POSTED,
        (_S.RUNNING, _E.END): _S.ENDED,
        (_S.PAUSED, _E.RESUME): _S.RUNNING,
        (_S.PAUSED, _E.STOP): _S.ENDING,
        (_S.PAUSED, _E.REMATCH): _S.POSTED,
        (_S.PAUSED, _E.END): _S.ENDED,
        (_S.ENDING, _E.REMATCH): _S.POSTED,
        (_S.ENDING, _E.END): _S.ENDED,
    },
)


def _resources_to_wire(r: Resources) -> list[object]:
    def pair(x: Range) -> list[int]:
        return [x.least, x.most]

    gpu = r.gpu
    need = None if gpu is None else [list(gpu.models), pair(gpu.count), pair(gpu.vram), gpu.share]
    return [pair(r.cpu), pair(r.memory), pair(r.disk), need]


def _range(value: object, name: str) -> Range:
    least, most = want_list(value, 2, name)
    return Range(want_int(least, name), want_int(most, name))


def _resources(value: object) -> Resources:
    cpu, memory, disk, gpu = want_list(value, 4, "resources")
    need = None
    if gpu is not None:
        models, count, vram, share = want_list(gpu, 4, "gpu")
        need = GpuNeed(
            _texts(models, "models", 32), _range(count, "count"), _range(vram, "vram"),
            want_int(share, "share", 1, 1000),
        )  # fmt: skip
    return Resources(_range(cpu, "cpu"), _range(memory, "memory"), _range(disk, "disk"), need)


def _file(value: object) -> FileIn:
    dst, sha256, size, mode = want_list(value, 4, "file")
    return FileIn(
        want_text(dst, "dst", 1000), want_text(sha256, "sha256", 64), want_int(size, "size"),
        want_int(mode, "mode", 0, 0o7777),
    )  # fmt: skip


def _port(value: object) -> Port:
    port, auth = want_list(value, 2, "port")
    return Port(want_int(port, "port", 1, 65535), want_text(auth, "auth", 10))


def _gang(value: object) -> Gang:
    members, spread, same_region = want_list(value, 3, "gang")
    if not isinstance(spread, bool) or not isinstance(same_region, bool):
        raise Malformed("gang is [members, spread, same_region]")
    return Gang(want_int(members, "members", 2, MOST_MEMBERS), spread, same_region)


def _egress_to_wire(egress: Egress) -> dict[str, object]:
    """``open``, or the list; a job that asks for nothing has no such key, as before there was
    one.
    """
    if egress.mode is EgressMode.NONE:
        return {}
    return {"egress": list(egress.allow) or str(egress.mode)}


def _egress(value: object) -> Egress:
    if value == str(EgressMode.OPEN):
        return Egress(EgressMode.OPEN)
    if isinstance(value, str):
        raise Malformed("egress is open, or a list of host:port; without it there is none")
    return Egress(EgressMode.LIST, _texts(value, "egress", MOST_TARGETS))


def _map(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{name} is not a map")
    return cast(dict[str, Any], value)


def _list(value: object, name: str, most: int) -> list[object]:
    if not isinstance(value, list):
        raise Malformed(f"{name} is not a list")
    items = cast(list[object], value)
    if len(items) > most:
        raise Malformed(f"{name} has {len(items)} entries; at most {most}")
    return items


def _texts(value: object, name: str, most: int) -> tuple[str, ...]:
    return tuple(want_text(x, name, 32_768) for x in _list(value, name, most))


def _text_map(
    value: object, name: str, most: int, beside: frozenset[str] = frozenset()
) -> dict[str, str]:
    found = _map(value, name)
    if len(found.keys() - beside) > most:
        raise Malformed(f"{name} has {len(found)} entries; at most {most}")
    return {want_text(k, name, 256): want_text(v, name, 32_768) for k, v in found.items()}
