"""Machines to simulate, by name: ``h100x2``, ``a100x8``, ``rtx4090x1`` …

Every model's name begins with SIMULATED, so that no list can mistake it for hardware.  Memory and
MIG figures follow NVIDIA's data sheets and MIG user guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from marketplace.domain.errors import NotFound

PREFIX: Final = "SIMULATED "


@dataclass(frozen=True, slots=True)
class SliceProfile:
    """One MIG profile: NVML's enum number and id, compute and memory slices, and placements."""

    number: int
    id: int
    name: str
    slices: int
    memory_mib: int
    starts: tuple[int, ...]
    size: int


_MIG_80: Final = (
    SliceProfile(0, 19, "1g.10gb", 1, 9728, (0, 1, 2, 3, 4, 5, 6), 1),
    SliceProfile(1, 14, "2g.20gb", 2, 19968, (0, 2, 4), 2),
    SliceProfile(2, 9, "3g.40gb", 3, 40192, (0, 4), 4),
    SliceProfile(3, 5, "4g.40gb", 4, 40192, (0,), 4),
    SliceProfile(4, 0, "7g.80gb", 7, 80896, (0,), 8),
)


@dataclass(frozen=True, slots=True)
class Model:
    """What every GPU of one model is."""

    name: str
    vram_mib: int
    compute: tuple[int, int]
    idle_w: int
    full_w: int
    clock_mhz: int
    pcie: tuple[int, int]
    gpm: bool = False
    mig: tuple[SliceProfile, ...] = ()
    nvlink: bool = False


MODELS: Final = {
    "h100": Model(
        "NVIDIA H100 80GB HBM3", 81559, (9, 0), 70, 700, 1980, (5, 16), True, _MIG_80, True
    ),
    "h200": Model("NVIDIA H200", 143771, (9, 0), 75, 700, 1980, (5, 16), True, (), True),
    "a100": Model(
        "NVIDIA A100-SXM4-80GB", 81920, (8, 0), 60, 400, 1410, (4, 16), False, _MIG_80, True
    ),
    "rtx4090": Model("NVIDIA GeForce RTX 4090", 24564, (8, 9), 20, 450, 2520, (4, 16)),
    "l4": Model("NVIDIA L4", 23034, (8, 9), 16, 72, 2040, (4, 8)),
    "t4": Model("Tesla T4", 15360, (7, 5), 10, 70, 1590, (3, 16)),
}


def parse_profile(text: str) -> tuple[Model, ...]:
    """The GPUs of ``h100x2``, or of several joined by ``+``; NotFound for an unknown model."""
    models: list[Model] = []
    for part in text.split("+"):
        match = re.fullmatch(r"([a-z0-9]+?)(?:x(\d{1,2}))?", part.strip())
        if match is None or match[1] not in MODELS or match[2] == "0":
            known = ", ".join(MODELS)
            raise NotFound(f"no profile {part!r}; write MODELxCOUNT with one of {known}")
        models += [MODELS[match[1]]] * int(match[2] or 1)
    return tuple(models)
