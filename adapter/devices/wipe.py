"""Overwrite a GPU's memory through the CUDA driver API, and read all of it back.

Run as ``python -m adapter.devices.wipe`` with CUDA_VISIBLE_DEVICES naming one device; prints one
JSON line. Uses ctypes on ``libcuda.so.1``, so the adapter needs no CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import asdict
from typing import Any, Final

from adapter.devices.scrub import ScrubFailed, Wipe

_BLOCK: Final = 64 << 20
_SMALLEST: Final = 1 << 20
_WORD: Final = 0xA5C35A3C


def load() -> Any:
    """The CUDA driver library."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ScrubFailed(f"no CUDA driver: {error}") from error


def _check(code: int, what: str) -> None:
    if code:
        raise ScrubFailed(f"{what}: CUDA error {code}")


def _pattern(size: int) -> bytes:
    """What *size* bytes must read as; made where it is used, so that importing costs no memory."""
    return _WORD.to_bytes(4, "little") * (size // 4)


def wipe(cuda: Any) -> Wipe:
    """Fill, check and zero the first visible device.

    Blocks that already hold this scrub's neighbours' data are counted as residue before they are
    overwritten: evidence that the scrub was needed.
    """
    _check(cuda.cuInit(0), "init")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(cuda.cuDeviceGet(ctypes.byref(device), 0), "device")
    _check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "context")
    try:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "memory")
        blocks = _allocate(cuda, free.value)
        residue = sum(_differs(cuda, at, size, bytes(size)) for at, size in blocks)
        for at, size in blocks:
            words = ctypes.c_size_t(size // 4)
            _check(cuda.cuMemsetD32_v2(ctypes.c_uint64(at), ctypes.c_uint(_WORD), words), "write")
        _check(cuda.cuCtxSynchronize(), "write")
        bad = sum(_differs(cuda, at, size, _pattern(size)) for at, size in blocks)
        for at, size in blocks:
            words = ctypes.c_size_t(size // 4)
            _check(cuda.cuMemsetD32_v2(ctypes.c_uint64(at), ctypes.c_uint(0), words), "zero")
        _check(cuda.cuCtxSynchronize(), "zero")
        return Wipe(free.value >> 20, sum(size for _at, size in blocks) >> 20, bad, residue)
    finally:
        cuda.cuCtxDestroy_v2(context)


def _allocate(cuda: Any, free: int) -> list[tuple[int, int]]:
    """As many blocks as fit, halving the size when one does not."""
    blocks: list[tuple[int, int]] = []
    size, left = _BLOCK, free
    while size >= _SMALLEST and left >= _SMALLEST:
        at = ctypes.c_uint64()
        if size <= left and not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)):
            blocks.append((at.value, size))
            left -= size
        else:
            size //= 2
    return blocks


def _differs(cuda: Any, at: int, size: int, wanted: bytes) -> int:
    back = ctypes.create_string_buffer(size)
    _check(cuda.cuMemcpyDtoH_v2(back, ctypes.c_uint64(at), ctypes.c_size_t(size)), "read")
    return int(back.raw != wanted)


def main() -> int:
    """Wipe, and say what was done."""
    try:
        done = wipe(load())
    except ScrubFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(done)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
