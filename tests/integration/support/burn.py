"""Keeps the first visible GPU busy: ``burn.py SECONDS MIB`` says ``busy`` when it begins and ``done``
at the end; exit code 2 where the device has not so much memory.

It needs the driver alone: CUDA's own library, and a kernel as text that the driver compiles.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any, Final

OUT_OF_MEMORY: Final = 2
SPIN: Final = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry spin(.param .u64 out, .param .u64 steps)
{
  .reg .pred %p; .reg .f32 %f<2>; .reg .u64 %d<5>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [steps];
  mov.u64 %d3, 0;
  mov.f32 %f1, 0f3F800001;
next:
  fma.rn.f32 %f1, %f1, %f1, 0f3F000000;
  add.u64 %d3, %d3, 1;
  setp.lt.u64 %p, %d3, %d2;
  @%p bra next;
  st.global.f32 [%d1], %f1;
  ret;
}
\0"""


def main(seconds: float, mib: int) -> int:
    cuda: Any = ctypes.CDLL("libcuda.so.1")

    def do(name: str, *arguments: Any) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            print(f"{name}: CUDA error {code}", flush=True)
            sys.exit(OUT_OF_MEMORY if code == OUT_OF_MEMORY else 1)

    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, kernel, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    do("cuInit", 0)
    do("cuDeviceGet", ctypes.byref(device), 0)
    do("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    do("cuModuleLoadData", ctypes.byref(module), SPIN)
    do("cuModuleGetFunction", ctypes.byref(kernel), module, b"spin")
    do("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(mib << 20))
    do("cuMemsetD32_v2", memory, ctypes.c_uint(0x5EC2E7), ctypes.c_size_t((mib << 20) // 4))
    steps = ctypes.c_uint64(2_000_000)
    said = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(steps))
    print("busy", flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        do("cuLaunchKernel", kernel, 1024, 1, 1, 256, 1, 1, 0, None, said, None)
        do("cuCtxSynchronize")
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
