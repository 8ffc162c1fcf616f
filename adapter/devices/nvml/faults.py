"""How NVML fails, and the one door through which pynvml's errors become ours.

* NvmlFault              NVML failed
  x NvmlAbsent             no library or no driver on this host
  x NvmlHung               a call outlived its deadline; nothing else is asked until it returns
  x NvmlDenied             the call needs root
  x NvmlUnsupported        this device or driver does not have it
  x NvmlBusy               in use: MIG cannot change under running processes
  x DeviceLost             the device fell off the bus
  x DeviceUnknown          no device with this UUID
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pynvml

from marketplace.domain.errors import Fault


class NvmlFault(Fault):
    """NVML failed."""

    code = "NVML_FAULT"
    remedy = "run `tally adapter doctor`; look at `nvidia-smi` and the kernel log on the host"


class NvmlAbsent(NvmlFault):
    """No library, or no driver loaded."""

    code = "NVML_ABSENT"
    remedy = "install the NVIDIA driver and load it; CPU leases need none"


class NvmlHung(NvmlFault):
    """A call outlived its deadline."""

    code = "NVML_HUNG"


class NvmlDenied(NvmlFault):
    """The call needs root."""

    code = "NVML_DENIED"
    remedy = "run the adapter as root, or leave MIG as it is"


class NvmlUnsupported(NvmlFault):
    """The device or the driver does not have this."""

    code = "NVML_UNSUPPORTED"


class NvmlBusy(NvmlFault):
    """In use by a process."""

    code = "NVML_BUSY"


class DeviceLost(NvmlFault):
    """The device fell off the bus."""

    code = "GPU_LOST"
    remedy = "reboot the host or reset the device; its leases end as the provider's fault"


class DeviceUnknown(NvmlFault):
    """No device answers to this UUID."""

    code = "GPU_UNKNOWN"


_CODES: Final[dict[int, type[NvmlFault]]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: NvmlAbsent,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NvmlAbsent,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NvmlAbsent,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NvmlAbsent,
    pynvml.NVML_ERROR_NO_PERMISSION: NvmlDenied,
    pynvml.NVML_ERROR_NOT_SUPPORTED: NvmlUnsupported,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: NvmlUnsupported,
    pynvml.NVML_ERROR_IN_USE: NvmlBusy,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: NvmlBusy,
    pynvml.NVML_ERROR_GPU_IS_LOST: DeviceLost,
    pynvml.NVML_ERROR_RESET_REQUIRED: DeviceLost,
    pynvml.NVML_ERROR_NOT_FOUND: DeviceUnknown,
    pynvml.NVML_ERROR_TIMEOUT: NvmlHung,
}


@contextmanager
def map_nvml(what: str) -> Generator[None]:
    """The one door through which pynvml's errors become ours."""
    try:
        yield
    except pynvml.NVMLError as error:
        value = int(getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN))
        kind = _CODES.get(value, NvmlFault)
        raise kind(f"{what}: {error}", nvml=value) from error
