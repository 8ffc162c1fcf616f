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
_NO_COMPILER: Final = 221  # CUDA_ERROR_JIT_COMPILER_NOT_FOUND
MEMORY: Final = 8 << 20
_OWN: Final = 4096
"""Bytes beside it for small allocations, as a driver packs them into a page that it holds."""


def _value(argument: Any) -> int:
    return argument if isinstance(argument, int) else int(argument.value)


class SimulatedCuda:
    """One device's memory behind CUDA's C interface.  *stuck* bytes keep what they hold; without
    *compiler* no kernel runs.
    """

    def __init__(
        self,
        host: SimHost,
        index: int,
        stuck: frozenset[int] = frozenset(),
        compiler: bool = True,
    ) -> None:
        self._host = host
        self._compiler = compiler
        self._gpu = host.gpus[index]
        self._stuck = stuck
        self._taken = self._small = 0
        self.memory = bytearray(self._gpu.residue.ljust(MEMORY, b"\x00")[:MEMORY])
        self.memory += bytes(_OWN)

    def cuInit(self, _flags: Any) -> int:
        return _LOST if self._host.active(FaultKind.GPU_LOST, self._gpu.index) else 0

    def cuDeviceGet(self, device: Any, _place: Any) -> int:
        device._obj.value = 0
        return 0

    def cuCtxCreate_v2(self, context: Any, _flags: Any, _device: Any) -> int:
        context._obj.value = 1
        return 0

    def cuCtxDestroy_v2(self, _context: Any) -> int:
        self._gpu.residue = bytes(self.memory[:MEMORY]).rstrip(b"\x00")
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free._obj.value = MEMORY - self._taken
        total._obj.value = MEMORY
        return 0

    def cuMemAlloc_v2(self, at: Any, size: Any) -> int:
        if _value(size) <= _OWN - self._small:
            at._obj.value = _BASE + MEMORY + self._small
            self._small += _value(size)
            return 0
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

    def cuMemHostAlloc(self, at: Any, size: Any, _flags: Any) -> int:
        self._host_memory = ctypes.create_string_buffer(_value(size))
        at._obj.value = ctypes.addressof(self._host_memory)
        return 0

    def cuModuleLoadData(self, module: Any, _ptx: Any) -> int:
        module._obj.value = 1
        return 0 if self._compiler else _NO_COMPILER

    def cuModuleGetFunction(self, kernel: Any, _module: Any, _name: Any) -> int:
        kernel._obj.value = 1
        return 0

    def cuLaunchKernel(self, _kernel: Any, *said: Any) -> int:
        """What the wipe's one kernel does: counts the words that differ."""
        at, words, wanted, count = (
            ctypes.cast(place, ctypes.POINTER(ctypes.c_uint32 if n == 2 else ctypes.c_uint64))[0]
            for n, place in enumerate(said[-2])
        )
        start = at - _BASE
        there = memoryview(self.memory)[start : start + 4 * words].cast("I")
        into = count - _BASE
        before = int.from_bytes(self.memory[into : into + 8], "little")
        same = bytes(there) == wanted.to_bytes(4, "little") * words
        found = 0 if same else _differing(there, wanted)
        there.release()
        self.memory[into : into + 8] = (before + found).to_bytes(8, "little")
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0


def _differing(there: memoryview, wanted: int) -> int:
    return sum(word != wanted for word in there)


def simulated_wiper(host: SimHost) -> Callable[[str], Wipe]:
    """The scrub's wiper over *host*: the real wipe, on the simulated driver."""

    def run(uuid: str) -> Wipe:
        for index, gpu in enumerate(host.gpus):
            if uuid in (gpu.uuid, *(part.uuid for part in gpu.slices)):
                return wipe(SimulatedCuda(host, index))
        raise ScrubFailed(f"{uuid}: no such device", device=uuid)

    return run
