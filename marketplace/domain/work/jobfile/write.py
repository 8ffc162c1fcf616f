"""A job in the words of a job file: what :func:`parse` reads as the same job again.

Keys that say nothing are left out. Files are named by their hash, ``src: sha256:…``, as the market
takes them. A job that was posted by its compact form may say what no file can (a name with spaces,
a range of device memory within the 7 % that drivers keep): it is written as near as words allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from marketplace.domain.units import LOVELACE_PER_ADA, MICRO
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import UNLIMITED, GpuNeed, Placement, Policy, Range, Resources
from marketplace.domain.work.relay import RelayNeed
from marketplace.domain.work.roles import Part
from marketplace.domain.work.workload import EgressMode

SHA256: Final = "sha256:"
_DURATIONS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_SIZES: Final = (("TB", 1 << 20), ("GB", 1 << 10), ("MB", 1))


def write(spec: JobSpec) -> dict[str, Any]:
    """The file as JSON holds it."""
    shown = _disk if spec.is_volume else _resources
    first, *others = [shown(one) for one in spec.resources] or [{}]
    egress: Any = list(spec.egress.allow) or str(spec.egress.mode)
    told: dict[str, Any] = {
        "version": 1,
        "name": spec.name,
        "kind": spec.kind,
        "image": spec.image,
        "command": list(spec.command),
        "resources": first,
        "any_of": others,
        "files": [
            {"src": SHA256 + one.sha256, "dst": one.dst, "mode": f"{one.mode:04o}"}
            for one in spec.files
        ],
        "env": dict(spec.env),
        "secrets": list(spec.secrets),
        "ports": [one.to_wire() for one in spec.ports],
        "egress": "" if spec.egress.mode is EgressMode.NONE else egress,
        "outputs": list(spec.outputs),
        "placement": _placement(spec.placement),
        "price": _said(
            max_per_gpu_second=_rate(spec.price.max_gpu_rate),
            max_per_core_second=_rate(spec.price.max_core_rate),
            max_per_gb_second=_rate(spec.price.max_disk_rate),
            budget=_money(spec.price.budget),
            wait_per_second=_wait(spec.price.wait_rate),
        ),
        "policy": _policy(spec.policy),
        "gang": None if spec.gang is None or spec.cluster is not None else spec.gang.to_wire(),
        "cluster": _cluster(spec),
        "relay": None if spec.relay is None else _relay(spec.relay),
        "volumes": [
            _said(**(one.to_wire() | {"read_only": one.read_only or None})) for one in spec.volumes
        ],
    }
    return _said(**told)


def _said(**told: Any) -> dict[str, Any]:
    return {key: value for key, value in told.items() if value not in (None, "", [], {})}


def _resources(block: Resources) -> dict[str, Any]:
    return _said(
        gpu=None if block.gpu is None else _gpu(block.gpu),
        cpu=_range(block.cpu, _cores),
        memory=_range(block.memory, _size),
        disk="" if block.disk == Range(0) else _range(block.disk, _size),
    )


def _disk(block: Resources) -> dict[str, Any]:
    return {"disk": _range(block.disk, _size)}


def _gpu(need: GpuNeed) -> dict[str, Any]:
    # The smallest size of which drivers leave so much: the reverse of ``nominal_least``.
    least = -(-need.vram.least * 100 // 93)
    sold = Range(least, max(need.vram.most, least))
    return _said(
        model=list(need.models),
        count=_range(need.count, str),
        vram="" if need.vram == Range(0) else _range(sold, _size),
        share=need.share,
    )


def _placement(where: Placement) -> dict[str, Any]:
    return _said(
        regions=list(where.regions),
        isolation=str(where.isolation),
        min_trust=where.min_trust or None,
        labels=dict(where.labels),
        providers=list(where.providers),
        not_providers=list(where.not_providers),
    )


def _relay(need: RelayNeed) -> dict[str, Any]:
    return {"network": need.network, "port": need.port, "lag": _duration(need.lag_ms)}


def _cluster(spec: JobSpec) -> dict[str, Any] | None:
    if spec.gang is None or spec.cluster is None:
        return None
    told, gang = spec.cluster, spec.gang.to_wire()
    roles = {one.name: _role(one.members, one.part) for one in spec.roles if one.part is not None}
    if roles:  # of a member's job they are hashes, which no file can say
        del gang["members"]
    return {
        **gang,
        **({"roles": roles} if roles else {}),
        "min": told.least,
        "stall": str(told.stall),
        "assemble": _duration(told.assemble_ms),
        "hold": _duration(told.hold_ms),
        "network": "mesh" if told.mesh else "none",
        **({"store": told.store.to_wire()} if told.store is not None else {}),
    }


def _role(members: int, part: Part) -> dict[str, Any]:
    first, *others = [_resources(one) for one in part.resources] or [{}]
    return {
        "members": members,
        **_said(resources=first, any_of=others, env=dict(part.env)),
        "command": list(part.command),
        "budget": _money(part.budget * members),
    }


def _policy(policy: Policy) -> dict[str, Any]:
    retry = {"on": [reason.lower() for reason in policy.retry_on], "max": policy.retry_max}
    idle = {"gpu_below": policy.idle_gpu_below, "for": _duration(policy.idle_for_ms)}
    return _said(
        max_duration=_duration(policy.max_duration_ms),
        retry=retry if policy.retry_max else None,
        idle_stop=idle if policy.idle_gpu_below else None,
        queue=policy.queue or None,
        priority=policy.priority or None,
    )


def _range(found: Range, shown: Callable[[int], str]) -> str:
    if found.most == UNLIMITED:
        return f"{shown(found.least)}.."
    exact = found.least == found.most
    return shown(found.least) if exact else f"{shown(found.least)}..{shown(found.most)}"


def _cores(milli: int) -> str:
    return f"{milli // 1000}.{milli % 1000:03d}".rstrip("0").rstrip(".")


def _size(mib: int) -> str:
    return _largest(mib, _SIZES)


def _duration(ms: int) -> str:
    return _largest(ms, _DURATIONS)


def _largest(amount: int, units: tuple[tuple[str, int], ...]) -> str:
    """In the largest unit of which it is a whole number."""
    name, size = next((n, s) for n, s in units if amount % s == 0 and (amount >= s or s == 1))
    return f"{amount // size}{name}"


def _money(lovelace: int) -> str:
    if lovelace < LOVELACE_PER_ADA:
        return f"{lovelace} lovelace"
    return f"{_decimals(lovelace)} ADA"


def _rate(micro: int) -> str:
    """Per second; nothing for no cap."""
    if not micro:
        return ""
    if micro % (MICRO * LOVELACE_PER_ADA) == 0:
        return f"{micro // MICRO // LOVELACE_PER_ADA} ADA"
    return f"{_decimals(micro)} lovelace"


def _wait(micro: int | None) -> str:
    """Per second; nothing where the job does not say."""
    return "0 lovelace" if micro == 0 else _rate(micro or 0)


def _decimals(millionths: int) -> str:
    return f"{millionths // MICRO}.{millionths % MICRO:06d}".rstrip("0").rstrip(".")
