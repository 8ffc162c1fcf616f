"""Asks the scrub's own check about a device's memory: ``python -m …device_memory count|wipe WAY``, WAY being
``counted there`` or ``fetched`` (a driver without a compiler). One JSON line.
"""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import asdict
from typing import Any

from adapter.devices import wipe

BYTES = 8 << 20
WORD, OTHER = 0xA5C35A3C, 0x5EC2E7


class NoCompiler:
    """The driver's library, but for a compiler."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cuda, name)

    def cuModuleLoadData(self, *_arguments: Any) -> int:
        return 221  # CUDA_ERROR_JIT_COMPILER_NOT_FOUND


def count(cuda: Any) -> dict[str, int]:
    """What the check says of eight MiB with so many words of another kind in them."""

    def do(code: int) -> None:
        if code:
            raise SystemExit(f"CUDA error {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    memory, counter = ctypes.c_uint64(), ctypes.c_uint64()
    do(cuda.cuInit(0))
    do(cuda.cuDeviceGet(ctypes.byref(device), 0))
    do(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
    do(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(BYTES)))
    do(cuda.cuMemAlloc_v2(ctypes.byref(counter), ctypes.c_size_t(8)))
    differing = wipe.counter(cuda, counter)
    words = BYTES // 4

    def said(*odd: int) -> int:
        do(cuda.cuMemsetD32_v2(memory, ctypes.c_uint(WORD), ctypes.c_size_t(words)))
        for word in odd:
            at = ctypes.c_uint64(memory.value + 4 * word)
            do(cuda.cuMemsetD32_v2(at, ctypes.c_uint(OTHER), ctypes.c_size_t(1)))
        return differing(memory.value, BYTES, WORD)

    return {
        "same": said(), "first": said(0), "middle": said(words // 2 + 1), "last": said(words - 1),
        "three": said(0, 1, words - 1), "none": differing(memory.value, BYTES, OTHER + 1),
    }  # fmt: skip


def main(what: str, way: str) -> None:
    cuda = wipe.load() if way == "counted there" else NoCompiler(wipe.load())
    print(json.dumps(count(cuda) if what == "count" else asdict(wipe.wipe(cuda))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
