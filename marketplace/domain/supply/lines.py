"""An offer as people read it: a line for each model of its devices, and one for its cores.

A price cap is compared with the price of the line that is shown, never with another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from marketplace.domain.sold import model_matches
from marketplace.domain.supply.hardware import Gpu
from marketplace.domain.supply.offer import Offer

CORES: Final = "cores"
"""The model of cores that are rented alone."""


@dataclass(frozen=True)
class Line:
    """*rate_micro*: micro-lovelace a second of one device or one core; *devices*: none of cores."""

    model: str
    vram_mib: int
    rate_micro: int
    devices: tuple[Gpu, ...] = ()


def lines(offer: Offer) -> list[Line]:
    """Models in the order of the host's devices, cores last where they are rented alone."""
    found: dict[str, list[Gpu]] = {}
    for device in offer.host.gpus:
        found.setdefault(device.model, []).append(device)
    gpus = [
        Line(name, same[0].vram_mib, offer.gpu_rates[name], tuple(same))
        for name, same in found.items()
        if offer.gpu_rates.get(name)
    ]
    return gpus + ([Line(CORES, 0, offer.core_rate)] if offer.core_rate else [])


def fitting(
    offer: Offer, model: str = "", vram_mib: int = 0, rate_micro: int = 0
) -> Sequence[Line]:
    """The lines that a filter is about, 0 and "" for any: cores where they are named or where the
    offer has no device, else devices.
    """
    all_lines = lines(offer)
    devices = [line for line in all_lines if line.devices]
    cores = [line for line in all_lines if not line.devices]
    asked = model.strip().lower() == CORES
    shown = cores if asked or (not devices and not model) else devices
    return [
        line
        for line in shown
        if (asked or not model or model_matches(model, line.model))
        and line.vram_mib >= vram_mib
        and (not rate_micro or line.rate_micro <= rate_micro)
    ]
