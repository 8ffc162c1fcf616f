"""The market's supply as arrays: one row per host, one column per device, kept by addition and
subtraction only.

Rows of removed hosts are reused. ``log`` remembers which rows changed, so that a cached score
vector knows what to look at again; it is a bounded window, never a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.model import MIB_A_GB, WHOLE, Host, Request

Ints: TypeAlias = NDArray[np.int64]
Small: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.signedinteger[Any]]


class Names:
    """Names to small numbers and back; number 0 is the empty name."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {"": 0}

    def __len__(self) -> int:
        return len(self._number)

    def number(self, name: str) -> int:
        """The number of *name*, new if it was never seen."""
        return self._number.setdefault(name, len(self._number))

    def known(self, names: frozenset[str]) -> list[int]:
        """Numbers of those *names* that were ever seen."""
        return [self._number[name] for name in names if name in self._number]

    def all(self) -> Sequence[str]:
        """Every name, by number."""
        return list(self._number)


class ChangeLog:
    """A sliding window over the rows that changed."""

    def __init__(self, window: int = 1 << 16) -> None:
        self._rows: Rows = np.zeros(2 * window, np.intp)  # what arrays are looked up with
        self._window = window
        self._base = 0
        self.end = 0

    def add(self, row: int) -> None:
        """Note that *row* changed."""
        at = self.end - self._base
        if at == len(self._rows):
            self._rows[: self._window] = self._rows[self._window :]
            self._base += self._window
            at = self._window
        self._rows[at] = row
        self.end += 1

    def since(self, mark: int) -> Rows | None:
        """The rows changed after *mark*; None when that is further back than the window."""
        if mark < self._base:
            return None
        rows = self._rows[mark - self._base : self.end - self._base]
        # Looking at a row twice is harmless, so few rows are not worth sorting.
        return np.unique(rows) if len(rows) > 96 else rows


class Fleet:
    """Hosts, their free resources, and who is on each device."""

    def __init__(self) -> None:
        self.models, self.regions, self.owners = Names(), Names(), Names()
        self._isolations = Names()  # few: each is a bit
        self.hosts: list[Host | None] = []
        self.row_of: dict[str, int] = {}
        self.log, self.terms_log = ChangeLog(), ChangeLog(1 << 14)
        self.used = 0
        self.priced = False
        self.partial = False
        self.named = 0
        self.free_of_model = np.zeros(8, np.float64)
        self._free_rows: list[int] = []
        self._allot(64, 1)

    def _allot(self, rows: int, slots: int) -> None:
        """Arrays of at least *rows* by *slots*, keeping what is there."""

        def grown(name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
            fresh = np.zeros(shape, dtype)
            old = getattr(self, name, None)
            if old is not None:
                fresh[tuple(slice(0, n) for n in old.shape)] = old
            setattr(self, name, fresh)

        for name in (
            "cpu",
            "mem",
            "disk",
            "core_rate",
            "disk_rate",
            "cpu_total",
            "mem_total",
            "disk_total",
            "minimum",
            "cluster_free",
        ):
            grown(name, (rows,), np.int64)
        for name in (
            "region",
            "isolation",
            "trust",
            "upload",
            "download",
            "count",
            "count1",
            "model0",
        ):
            grown(name, (rows,), np.int32)
        for name in ("alive", "draining", "egress", "mesh", "store"):
            grown(name, (rows,), np.bool_)
        for name in ("free", "gpu_rate", "offered"):
            grown(name, (rows, slots), np.int64)
        grown("gpu_dear", (rows, slots), np.float64)
        for name in ("model", "vram", "owner", "owners_jobs"):
            grown(name, (rows, slots), np.int32)
        grown("present", (rows, slots), np.bool_)
        self.count1[self.count1 == 0] = 1
        self.rows, self.slots = rows, slots

    cpu: Ints
    mem: Ints
    disk: Ints
    cpu_total: Ints
    mem_total: Ints
    disk_total: Ints
    core_rate: Ints
    disk_rate: Ints
    minimum: Ints
    cluster_free: Ints
    region: Small
    isolation: Small
    trust: Small
    upload: Small
    download: Small
    count: Small
    count1: Small
    model0: Small
    alive: Bools
    draining: Bools
    egress: Bools
    mesh: Bools
    store: Bools
    free: Ints
    gpu_rate: Ints
    gpu_dear: NDArray[np.float64]
    offered: Ints
    model: Small
    vram: Small
    owner: Small
    owners_jobs: Small
    present: Bools

    def unit_rates(self, request: Request) -> Ints:
        """Micro-lovelace per second of a core, or of a GB, whichever a *request* without devices
        pays for; by row.
        """
        return self.disk_rate if request.rents_disk else self.core_rate

    def plain_rates(self, rows: Rows, request: Request) -> Ints:
        """Micro-lovelace per second on each row, of a *request* without devices: its cores', or its
        disk's.
        """
        unit = self.unit_rates(request)[rows]
        if request.rents_disk:
            return unit * request.disk_mib // MIB_A_GB
        return unit * request.cpu_milli // 1000

    def add(self, host: Host) -> int:
        """A new, empty host; its row. ValueError when the id is taken."""
        if host.id in self.row_of:
            raise ValueError(f"host {host.id} is already in the market")
        if len(host.gpus) > self.slots:
            self._allot(self.rows, len(host.gpus))
        if self._free_rows:
            row = self._free_rows.pop()
        else:
            row = self.used
            if row == self.rows:
                self._allot(2 * self.rows, self.slots)
            self.used += 1
            self.hosts.append(None)
        self.row_of[host.id] = row
        self.cpu[row], self.mem[row], self.disk[row] = (
            host.cpu_milli,
            host.memory_mib,
            host.disk_mib,
        )
        self.free[row] = 0
        self.free[row, : len(host.gpus)] = [gpu.offered for gpu in host.gpus]
        self.owner[row] = 0
        self.owners_jobs[row] = 0
        self.draining[row] = False
        self._describe(row, host)
        self._count_free(row, 1)
        return row

    def _count_free(self, row: int, sign: int) -> None:
        """Add a row's free devices to, or take them from, what is free of each model."""
        host = self.at(row)
        if len(self.models) > len(self.free_of_model):
            self.free_of_model = np.concatenate([self.free_of_model, np.zeros(len(self.models))])
        for slot in range(len(host.gpus)):
            self.free_of_model[self.model[row, slot]] += sign * int(self.free[row, slot])

    def _isolates(self, host: Host) -> int:
        return sum(1 << self._isolations.number(name) for name in host.isolation)

    def isolations(self, names: frozenset[str]) -> int:
        """Those of *names* that any host ever offered, as bits of ``isolation``."""
        return sum(1 << number for number in self._isolations.known(names))

    def _describe(self, row: int, host: Host) -> None:
        """Write what does not depend on who is there."""
        self.hosts[row] = host
        plain = host.core_rate > 0 or host.disk_rate > 0
        self.priced = self.priced or plain or any(gpu.rate for gpu in host.gpus)
        self.partial = self.partial or any(gpu.offered < WHOLE for gpu in host.gpus)
        self.alive[row] = True
        self.core_rate[row], self.disk_rate[row] = host.core_rate, host.disk_rate
        self.minimum[row] = host.minimum
        self.region[row] = self.regions.number(host.region)
        self.isolation[row], self.trust[row] = self._isolates(host), host.trust
        self.upload[row], self.download[row] = host.upload_mbps, host.download_mbps
        self.egress[row] = host.egress
        self.cluster_free[row], self.mesh[row] = host.cluster_free_ms, host.mesh
        self.store[row] = host.store
        self.count[row] = len(host.gpus)
        self.count1[row] = max(len(host.gpus), 1)
        self.cpu_total[row], self.mem_total[row] = host.cpu_milli, host.memory_mib
        self.disk_total[row] = host.disk_mib
        for array in (self.model, self.vram, self.gpu_rate, self.offered):
            array[row] = 0
        self.present[row] = False
        for slot, gpu in enumerate(host.gpus):
            self.model[row, slot] = self.models.number(gpu.model)
            self.vram[row, slot] = gpu.vram_mib
            self.gpu_rate[row, slot] = gpu.rate
            self.offered[row, slot] = gpu.offered
            self.present[row, slot] = True
        self.gpu_dear[row] = np.log2(1.0 + self.gpu_rate[row])
        self.model0[row] = self.model[row, 0] if host.gpus else 0
        self.log.add(row)
        self.terms_log.add(row)

    def remove(self, host_id: str) -> int:
        """Take a host out of the market; its row goes back to the pool."""
        row = self.row_of.pop(host_id)
        self._count_free(row, -1)
        self.hosts[row] = None
        self.alive[row] = False
        self.count[row] = 0
        self.cpu[row] = self.mem[row] = self.disk[row] = 0
        self.present[row] = False
        self.free[row] = 0
        self._free_rows.append(row)
        self.log.add(row)
        self.terms_log.add(row)
        return row

    def at(self, row: int) -> Host:
        """The host of a living row."""
        host = self.hosts[row]
        if host is None:
            raise KeyError(row)
        return host

    def take(
        self, row: int, slots: tuple[int, ...], milli: int, need: tuple[int, int, int], owner: int
    ) -> None:
        """Subtract a placement. The caller has checked that it fits."""
        self.cpu[row] -= need[0]
        self.mem[row] -= need[1]
        self.disk[row] -= need[2]
        for slot in slots:
            self.free[row, slot] -= milli
            self.free_of_model[self.model[row, slot]] -= milli
            if owner:
                self.owner[row, slot] = owner
                self.named += 1
            self.owners_jobs[row, slot] += 1
        self.log.add(row)

    def give(
        self, row: int, slots: tuple[int, ...], milli: int, need: tuple[int, int, int]
    ) -> None:
        """Add a placement back; a device that nobody is on belongs to nobody again."""
        self.cpu[row] += need[0]
        self.mem[row] += need[1]
        self.disk[row] += need[2]
        for slot in slots:
            self.free[row, slot] += milli
            self.free_of_model[self.model[row, slot]] += milli
            self.owners_jobs[row, slot] -= 1
            self.named -= int(self.owner[row, slot] > 0)
            if self.owners_jobs[row, slot] == 0:
                self.owner[row, slot] = 0
        self.log.add(row)
