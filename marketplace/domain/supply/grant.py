"""A grant: what exactly a lease holds on its host, so that ``Terms.devices`` names it beyond doubt.

The market chooses one of the job's resource blocks and the devices; the terms carry only the
grant's hash. The adapter finds the grant again from the job and its own hardware (:func:`find`), so
neither side can mean other devices, another share or less memory than the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.metering.kinds import CORE, DISK, GPU, Resource
from marketplace.domain.money.terms import Terms, TermsRefused
from marketplace.domain.sold import model_matches
from marketplace.domain.supply.hardware import Gpu, HostHardware
from marketplace.domain.units import WHOLE
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import GpuNeed
from marketplace.domain.work.volume import units_milli

MOST_CHOICES: Final = 15_000  # eight of sixteen devices are 12,870


@dataclass(frozen=True)
class Grant:
    """*gpus*: sorted UUIDs; *share*: per-mille of each; CPU in milli-cores, memory and disk in
    MiB.
    """

    gpus: tuple[str, ...]
    share: int
    cpu_milli: int
    memory_mib: int
    disk_mib: int

    @property
    def resource(self) -> Resource:
        """What is billed: the devices if there are any, else the cores; of what has neither, a
        volume, its disk.
        """
        if self.gpus:
            return GPU.name
        return CORE.name if self.cpu_milli else DISK.name

    @property
    def units_milli(self) -> int:
        """Devices x share, milli-cores, or thousandths of a GB: ``Terms.units_milli``."""
        if self.gpus:
            return len(self.gpus) * self.share
        return self.cpu_milli or units_milli(self.disk_mib)

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the canonical grant: ``Terms.devices`` and ``Receipt.device``."""
        return canonical.blake2b_256(canonical.encode(self.parts))

    @property
    def parts(self) -> list[object]:
        """What is hashed."""
        return [
            "tally/grant/v1", list(self.gpus), self.share, self.cpu_milli, self.memory_mib,
            self.disk_mib,
        ]  # fmt: skip


def of_block(job: JobSpec, block: int, gpus: tuple[str, ...]) -> Grant:
    """The grant of the job's resource *block* on devices *gpus*: the least of each range."""
    r = job.resources[block]
    share = r.gpu.share if r.gpu is not None and gpus else WHOLE
    return Grant(tuple(sorted(gpus)), share, r.cpu.least, r.memory.least, r.disk.least)


def find(job: JobSpec, host: HostHardware, terms: Terms) -> Grant:
    """The one grant that *terms* mean on *host*; TermsRefused when there is none, or when there are
    more ways to choose its devices than an adapter can look at between two ticks."""
    left = MOST_CHOICES
    for block in range(len(job.resources)):
        devices = _fitting(job, block, host, terms.units_milli)
        if devices is None:
            continue
        uuids, count = devices
        like = of_block(job, block, uuids[:count])  # as large as every choice of this block
        if (like.resource, like.units_milli) != (terms.resource, terms.units_milli):
            continue
        chosen = _named(like, uuids, count, terms.devices, left)
        if chosen is not None:
            return of_block(job, block, chosen)
        left -= min(left, comb(len(uuids), count))
    raise TermsRefused("the terms name devices or sizes that this host and job do not give")


def _named(
    like: Grant, uuids: tuple[str, ...], count: int, wanted: bytes, most: int
) -> tuple[str, ...] | None:
    """The choice of *count* among *uuids* whose grant has the hash *wanted*, among the first
    *most*.

    Only the devices differ from one choice to the next, so the rest is encoded once: thousands of
    choices are to cost an adapter no tick.
    """
    head, middle = canonical.encode(list(like.gpus)), canonical.encode(like.parts)
    start, end = middle.split(head, 1)
    head = canonical.encode([0] * count)[: -count or None]
    start += head
    coded = [(canonical.encode(uuid), uuid) for uuid in uuids]
    for choice in islice(combinations(coded, count), most):
        if canonical.blake2b_256(start + b"".join(c for c, _ in choice) + end) == wanted:
            return tuple(uuid for _, uuid in choice)
    return None


def _fitting(
    job: JobSpec, block: int, host: HostHardware, units_milli: int
) -> tuple[tuple[str, ...], int] | None:
    """(the devices that fit the block, sorted; how many of them it takes), or None if it takes
    others.
    """
    need = job.resources[block].gpu
    if need is None or need.count.most == 0:
        return (), 0
    count, rest = divmod(units_milli, need.share)
    if rest or not need.count.least <= count <= need.count.most:
        return None
    uuids = tuple(sorted(gpu.uuid for gpu in host.gpus if _fits(gpu, need)))
    return (uuids, count) if count <= len(uuids) else None


def _fits(gpu: Gpu, need: GpuNeed) -> bool:
    model = not need.models or any(model_matches(asked, gpu.model) for asked in need.models)
    return model and need.vram.least <= gpu.vram_mib <= need.vram.most
