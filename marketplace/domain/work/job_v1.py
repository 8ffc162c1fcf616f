"""Version 1 of a job's form, in which ranges, needs, files, ports and prices were lists by place.

Terms name a job by the hash of its form, so one that was posted in this form keeps it. Both ways
are between the two forms: what a field means is said once, in :mod:`.parts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from marketplace.domain.canonical import want_items, want_list, want_map
from marketplace.domain.errors import Malformed

_OPEN: Final = 2**53
_RANGE: Final = ("least", "most")
_GPU: Final = ("models", "count", "vram", "share")
_RESOURCES: Final = ("cpu", "memory", "disk", "gpu")
_FILE: Final = ("dst", "sha256", "size", "mode")
_PORT: Final = ("port", "auth")
_PRICE: Final = ("max_gpu_rate", "max_core_rate", "budget")
_GANG: Final = ("members", "spread", "same_region")
_FIELDS: Final = (
    "name", "kind", "image", "command", "resources", "env", "secrets", "files", "ports", "outputs",
    "placement", "price", "policy", "gang", "egress",
)  # fmt: skip


def read(value: object) -> dict[str, Any]:
    """The named form of a job in places, to be read as such; :class:`Malformed`. Keys that are
    unknown are left out, as they always were in this version.
    """
    old = want_map(value, "job")
    try:
        policy = want_map(old["policy"], "policy")
        new = {name: old[name] for name in _FIELDS if name in old}
        new |= {
            "version": 1,
            "resources": [_resources(one) for one in want_items(old["resources"], "resources", 17)],
            "files": [_named(one, _FILE) for one in want_items(old["files"], "files", 256)],
            "ports": [_named(one, _PORT) for one in want_items(old["ports"], "ports", 16)],
            "price": _named(old["price"], _PRICE),
            "placement": _known(old["placement"], "placement", _PLACEMENT),
            "policy": {**_known(policy, "policy", _POLICY), "queue": policy["queue"] is True},
        }
        return new | ({"gang": _named(old["gang"], _GANG)} if "gang" in old else {})
    except KeyError as error:
        raise Malformed(f"the job lacks {error}") from None


def write(named: dict[str, Any]) -> dict[str, Any]:
    """The reverse: *named*, a job's own form, in places. What came later it has no place for."""
    old = {name: value for name, value in named.items() if name in _FIELDS}
    old |= {
        "resources": [_places_of_resources(one) for one in named["resources"]],
        "files": [_places(one, _FILE) for one in named["files"]],
        "ports": [_places(one, _PORT) for one in named["ports"]],
        "price": _places(named["price"], _PRICE),
    }
    return old | ({"gang": _places(named["gang"], _GANG)} if "gang" in named else {})


_PLACEMENT: Final = (
    "regions", "isolation", "min_trust", "labels", "providers", "not_providers",
)  # fmt: skip
_POLICY: Final = (
    "max_duration_ms", "retry_on", "retry_max", "idle_gpu_below", "idle_for_ms", "priority",
)  # fmt: skip


def _known(value: object, name: str, names: Sequence[str]) -> dict[str, Any]:
    found = want_map(value, name)
    return {one: found[one] for one in names}


def _named(value: object, names: Sequence[str]) -> dict[str, Any]:
    return dict(zip(names, want_list(value, len(names), f"[{', '.join(names)}]"), strict=True))


def _range(value: object) -> dict[str, Any]:
    found = _named(value, _RANGE)
    if found["most"] == _OPEN:
        found.pop("most")
    return found


def _resources(value: object) -> dict[str, Any]:
    found = _named(value, _RESOURCES)
    gpu = found.pop("gpu")
    found = {name: _range(one) for name, one in found.items()}
    if gpu is not None:
        need = _named(gpu, _GPU)
        found["gpu"] = {**need, "count": _range(need["count"]), "vram": _range(need["vram"])}
    return found


def _places(named: dict[str, Any], names: Sequence[str]) -> list[Any]:
    return [named[name] for name in names]


def _span(named: dict[str, int]) -> list[int]:
    return [named["least"], named.get("most", _OPEN)]


def _places_of_resources(named: dict[str, Any]) -> list[Any]:
    gpu = named.get("gpu")
    need = gpu and [gpu["models"], _span(gpu["count"]), _span(gpu["vram"]), gpu["share"]]
    return [_span(named["cpu"]), _span(named["memory"]), _span(named["disk"]), need]
