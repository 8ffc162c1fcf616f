"""The simulated CUDA driver library: the few calls that the scrub makes, over a GPU's own bytes.

Memory is small (the simulated device's *vram_mib* is only a figure) and real: what one tenant
writes, the next could read, unless the scrub did its work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from adapter.devices.scrub import ScrubFailed, Wipe
from adapter.devices.wipe import wipe
from adapter.simulate.host import FaultKind, SimHost

_LOST: Final = 214
_OUT_OF_MEMORY: Final = 2
_BASE: Final = 0x7000_0000_0000
MEMORY: Final = 8 << 20


def _value(argument: Any) -> int:
    return argument if isinstance(argument, int) else int(argument.value)


class SimulatedCuda:
    """One device's memory behind CUDA's C interface.  *stuck* bytes keep what they hold."""

    def __init__(self, host: SimHost, index: int, stuck: frozenset[int] = frozenset()) -> None:
        self._host = host
        self._gpu = host.gpus[index]
        self._stuck = stuck
        self._taken = 0
        self.memory = bytearray(self._gpu.residue.ljust(MEMORY, b"\x00")[:MEMORY])

    def cuInit(self, _flags: Any) -> int:
        return _LOST if self._host.active(FaultKind.GPU_LOST, self._gpu.index) else 0

    def cuDeviceGet(self, device: Any, _place: Any) -> int:
        device._obj.value = 0
        return 0

    def cuCtxCreate_v2(self, context: Any, _flags: Any, _device: Any) -> int:
        context._obj.value = 1
        return 0

    def cuCtxDestroy_v2(self, _context: Any) -> int:
        self._gpu.residue = bytes(self.memory).rstrip(b"\x00")
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free._obj.value = MEMORY - self._taken
        total._obj.value = MEMORY
        return 0

    def cuMemAlloc_v2(self, at: Any, size: Any) -> int:
        if self._taken + _value(size) > MEMORY:
            return _OUT_OF_MEMORY
        at._obj.value = _BASE + self._taken
        self._taken += _value(size)
        return 0

    def cuMemsetD32_v2(self, at: Any, word: Any, words: Any) -> int:
        start, size = _value(at) - _BASE, 4 * _value(words)
        kept = {place: self.memory[place] for place in self._stuck}
        self.memory[start : start + size] = _value(word).to_bytes(4, "little") * _value(words)
        for place, byte in kept.items():
            self.memory[place] = byte
        return 0

    def cuMemcpyDtoH_v2(self, into: Any, at: Any, size: Any) -> int:
        start = _value(at) - _BASE
        ctypes.memmove(into, bytes(self.memory[start : start + _value(size)]), _value(size))
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0


def simulated_wiper(host: SimHost) -> Callable[[str], Wipe]:
    """The scrub's wiper over *host*: the real wipe, on the simulated driver."""

    def run(uuid: str) -> Wipe:
        for index, gpu in enumerate(host.gpus):
            if uuid in (gpu.uuid, *(part.uuid for part in gpu.slices)):
                return wipe(SimulatedCuda(host, index))
        raise ScrubFailed(f"{uuid}: no such device", device=uuid)

    return run
