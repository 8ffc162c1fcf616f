"""How much of what is listed is held just now: devices and cores, as one process's view has it."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.market.state.directory import Directory


@dataclass(frozen=True)
class InUse:
    """Thousandths of a device or of a core; *gpus*: how many devices are listed."""

    offers: int = 0
    gpus: int = 0
    gpu_milli: int = 0
    gpu_milli_held: int = 0
    core_milli: int = 0
    core_milli_held: int = 0


def in_use(directory: Directory) -> InUse:
    """Of listed offers alone; a device that is not rentable is not listed."""
    gpus = gpu_milli = gpu_held = cores = cores_held = 0
    offers = directory.offers()
    for record, offer in offers:
        free = directory.free(record.id)
        listed = [g for g in offer.host.gpus if g.uuid in free]
        gpus += len(listed)
        gpu_milli += sum(g.share for g in listed)
        gpu_held += sum(g.share - free[g.uuid] for g in listed)
        cores += offer.host.cpu.milli
        cores_held += offer.host.cpu.milli - directory.free_cores_milli(record.id)
    return InUse(len(offers), gpus, gpu_milli, gpu_held, cores, cores_held)
