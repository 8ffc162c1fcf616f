"""Overwrite a GPU's memory through the CUDA driver API, and have the device read all of it back.

Run as ``python -m adapter.devices.wipe`` with CUDA_VISIBLE_DEVICES naming one device; prints one
JSON line. Uses ctypes on ``libcuda.so.1``, so the adapter needs no CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from adapter.devices.scrub import ScrubFailed, Wipe

_BLOCK: Final = 64 << 20
_SMALLEST: Final = 1 << 20
_WORD: Final = 0xA5C35A3C
_LANES: Final = (1024, 256)
"""Blocks and threads of the counting kernel: enough to keep the memory of a large device busy."""

_COUNT: Final = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry differing(.param .u64 at, .param .u64 words, .param .u32 wanted, .param .u64 count)
{
  .reg .pred %p<3>; .reg .u32 %r<7>; .reg .u64 %d<9>;
  ld.param.u64 %d1, [at];
  ld.param.u64 %d2, [words];
  ld.param.u32 %r1, [wanted];
  ld.param.u64 %d3, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %d4, %r2, %r3;
  cvt.u64.u32 %d5, %r4;
  add.u64 %d4, %d4, %d5;
  mul.wide.u32 %d6, %r5, %r3;
next:
  setp.ge.u64 %p1, %d4, %d2;
  @%p1 bra done;
  shl.b64 %d7, %d4, 2;
  add.u64 %d7, %d1, %d7;
  ld.global.u32 %r6, [%d7];
  setp.eq.u32 %p2, %r6, %r1;
  @%p2 bra step;
  mov.u64 %d8, 1;
  red.global.add.u64 [%d3], %d8;
step:
  add.u64 %d4, %d4, %d6;
  bra next;
done:
  ret;
}
\0"""
"""PTX: adds to *count* how many 32-bit words from *at* on are not *wanted*. The driver compiles it
for the device, so it runs on every one since Pascal (sm_60).
"""


def load() -> Any:
    """The CUDA driver library."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ScrubFailed(f"no CUDA driver: {error}") from error


def _check(code: int, what: str) -> None:
    if code:
        raise ScrubFailed(f"{what}: CUDA error {code}")


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
        count = ctypes.c_uint64()
        _check(cuda.cuMemAlloc_v2(ctypes.byref(count), ctypes.c_size_t(8)), "count")
        blocks = _allocate(cuda, free.value)
        differing = counter(cuda, count)
        residue = sum(differing(at, size, 0) > 0 for at, size in blocks)
        for at, size in blocks:
            words = ctypes.c_size_t(size // 4)
            _check(cuda.cuMemsetD32_v2(ctypes.c_uint64(at), ctypes.c_uint(_WORD), words), "write")
        _check(cuda.cuCtxSynchronize(), "write")
        bad = sum(differing(at, size, _WORD) > 0 for at, size in blocks)
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


def counter(cuda: Any, count: ctypes.c_uint64) -> Callable[[int, int, int], int]:
    """(address, bytes, word) -> how many words differ: counted on the device, which reads its own
    memory a hundred times as fast as it can be fetched, or fetched where the driver has no compiler
    (libnvidia-ptxjitcompiler); then all that is said is whether any differ.
    """
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    if cuda.cuModuleLoadData(ctypes.byref(module), _COUNT):
        return _fetcher(cuda)
    _check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"differing"), "compile")

    def differing(at: int, size: int, word: int) -> int:
        said = (
            ctypes.c_uint64(at), ctypes.c_uint64(size // 4), ctypes.c_uint32(word), count,
        )  # fmt: skip
        places = (ctypes.c_void_p * len(said))(*(ctypes.addressof(value) for value in said))
        _check(cuda.cuMemsetD32_v2(count, ctypes.c_uint(0), ctypes.c_size_t(2)), "count")
        blocks, threads = _LANES
        grid = (blocks, 1, 1, threads, 1, 1)
        _check(cuda.cuLaunchKernel(kernel, *grid, 0, None, places, None), "count")
        back = ctypes.c_uint64()
        _check(cuda.cuMemcpyDtoH_v2(ctypes.byref(back), count, ctypes.c_size_t(8)), "read")
        return back.value

    return differing


def _fetcher(cuda: Any) -> Callable[[int, int, int], int]:
    """Through page-locked memory, which the device writes by itself, and compared by the C library:
    bytes of Python's own would take a large device past the scrub's deadline.
    """
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    back = ctypes.c_void_p()
    _check(cuda.cuMemHostAlloc(ctypes.byref(back), ctypes.c_size_t(_BLOCK), 0), "host memory")
    wanted: dict[int, bytes] = {}

    def differing(at: int, size: int, word: int) -> int:
        if word not in wanted:
            wanted[word] = word.to_bytes(4, "little") * (_BLOCK // 4)
        _check(cuda.cuMemcpyDtoH_v2(back, ctypes.c_uint64(at), ctypes.c_size_t(size)), "read")
        return int(compare(back, wanted[word], size) != 0)

    return differing


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
