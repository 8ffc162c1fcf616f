"""Between two tenants: overwrite a device's memory, check that it took, or quarantine the device.

No NVIDIA document promises that memory is zeroed across processes, so it is done here: wait until
no process holds the device, allocate nearly all of its memory, write a pattern, read all of it
back, then zero it.  A slice of MIG is destroyed and made again by the plan instead, and scrubbed as
well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from adapter.devices.nvml.faults import NvmlFault
from adapter.devices.nvml.nvml import GpuProcess
from marketplace import disk
from marketplace.disk import Files
from marketplace.domain.errors import Fault

COVER_PERMILLE: Final = 950
"""How much of the free memory must be written and read back: the driver keeps the rest."""
SETTLE_S: Final = 20.0


class ScrubFailed(Fault):
    """The device could not be shown to be clean; it is quarantined."""

    code = "SCRUB_FAILED"
    remedy = "reset the device (`nvidia-smi --gpu-reset`), then `tally adapter release DEVICE`"


class Processes(Protocol):
    """What the scrub needs of NVML."""

    def processes(self, uuid: str) -> list[GpuProcess]:
        """What runs on a device."""
        ...


@dataclass(frozen=True, slots=True)
class Wipe:
    """What one overwrite did: MiB free, MiB written and read back, and blocks that differed."""

    free_mib: int
    checked_mib: int
    bad_blocks: int
    residue_blocks: int = 0

    def complete(self) -> bool:
        """True when enough was covered and nothing differed."""
        return self.bad_blocks == 0 and self.checked_mib * 1000 >= self.free_mib * COVER_PERMILLE


Wiper = Callable[[str], Wipe]
"""Overwrites and checks the memory of the device with that UUID; blocks."""


class Quarantine:
    """Devices that failed, on disk until their owner releases them."""

    def __init__(self, path: Path, files: Files = disk.OS) -> None:
        self._path = path
        self._files = files

    def _read(self) -> dict[str, str]:
        try:
            return cast("dict[str, str]", json.loads(self._path.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError as error:
            raise ScrubFailed(f"{self._path} is damaged: {error}") from error

    def _write(self, table: dict[str, str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(table, indent=1, sort_keys=True).encode()
        disk.write_whole(self._path, data, self._files)

    def reason(self, uuid: str) -> str | None:
        """Why the device is quarantined, or None."""
        return self._read().get(uuid)

    def all(self) -> dict[str, str]:
        """Every quarantined device and its reason."""
        return self._read()

    def add(self, uuid: str, reason: str) -> None:
        """Keep *uuid* out of the market until :meth:`release`."""
        self._write({**self._read(), uuid: reason})

    def release(self, uuid: str) -> bool:
        """Let it back in; False when it was not held."""
        table = self._read()
        known = table.pop(uuid, None) is not None
        if known:
            self._write(table)
        return known


def scrub(
    uuid: str,
    nvml: Processes,
    wipe: Wiper,
    quarantine: Quarantine,
    settle_s: float = SETTLE_S,
    pause: Callable[[float], None] = time.sleep,
) -> Wipe:
    """Clean *uuid* for the next tenant; blocks for seconds.

    Raises :class:`ScrubFailed` after quarantining the device.  Idempotent.
    """
    try:
        _wait_until_idle(uuid, nvml, settle_s, pause)
        done = wipe(uuid)
    except (ScrubFailed, NvmlFault, OSError) as error:
        quarantine.add(uuid, f"scrub: {error}")
        if isinstance(error, ScrubFailed):
            raise
        raise ScrubFailed(f"{uuid}: {error}", device=uuid) from error
    if not done.complete():
        reason = f"scrub: {done.bad_blocks} bad blocks, {done.checked_mib} of {done.free_mib} MiB"
        quarantine.add(uuid, reason)
        raise ScrubFailed(f"{uuid}: {reason}", device=uuid)
    return done


def _wait_until_idle(
    uuid: str, nvml: Processes, settle_s: float, pause: Callable[[float], None]
) -> None:
    waited = 0.0
    while found := nvml.processes(uuid):
        if waited >= settle_s:
            pids = ", ".join(str(process.pid) for process in found)
            raise ScrubFailed(f"{uuid}: still used by {pids}", device=uuid)
        pause(0.5)
        waited += 0.5


def wipe_in_child(uuid: str, timeout_s: int = 300) -> Wipe:
    """Wipe with CUDA in a process of its own: its context must be gone before the next tenant."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "adapter.devices.wipe"],
            env=environment,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ScrubFailed(f"{uuid}: {last}", device=uuid)
        row = cast("dict[str, int]", json.loads(done.stdout))
        return Wipe(**row)
    except (subprocess.TimeoutExpired, ValueError, TypeError) as error:
        raise ScrubFailed(f"{uuid}: {error}", device=uuid) from error
