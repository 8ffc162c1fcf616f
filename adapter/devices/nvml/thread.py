"""The thread that owns NVML, and the deadline on everything that is asked of it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Final, TypeVar

import pynvml

from adapter.devices.nvml.faults import NvmlFault, NvmlHung, map_nvml

T = TypeVar("T")
DEADLINE_S: Final = 2.0
SLOW_DEADLINE_S: Final = 15.0  # MIG changes may reset the device


def use_library(library: object | None) -> None:
    """Replace the loaded NVML library (None: the system's own, loaded at the next init).

    Touches pynvml's module state, and nothing of its code: ``nvmlLib`` is what it dlopens once.
    """
    module: Any = pynvml
    module.nvmlLib = library
    module._nvmlGetFunctionPointer_cache.clear()


class NvmlThread:
    """NVML's own thread.  Every public method blocks at most its deadline."""

    def __init__(self, library: object | None, deadline_s: float) -> None:
        self._library = library
        self._deadline_s = deadline_s
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stuck: Future[Any] | None = None
        self._ready = False
        self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def call(self, what: str, action: Callable[[], T], deadline_s: float | None = None) -> T:
        """Run *action* in the thread; :class:`NvmlHung` when it takes longer than the deadline."""
        if self._stuck is not None and not self._stuck.done():
            raise NvmlHung(f"{what}: an earlier NVML call has not returned")
        self._stuck = None
        future: Future[T] = Future()

        def job() -> None:
            try:
                with map_nvml(what):
                    future.set_result(action())
            except BaseException as error:  # noqa: BLE001  handed to the caller by the future
                future.set_exception(error)

        self._jobs.put(job)
        try:
            return future.result(deadline_s or self._deadline_s)
        except FutureTimeout:
            self._stuck = future
            raise NvmlHung(f"{what}: no answer within the deadline") from None

    def load(self) -> str:
        """Within the thread: load the library and begin; the driver's version."""
        if self._library is not None or not self._ready:
            use_library(self._library)
        pynvml.nvmlInit()
        self._ready = True
        return pynvml.nvmlSystemGetDriverVersion()

    def close(self) -> None:
        """End the thread; a hung one is left behind, as nothing can end it."""
        if self._ready and (self._stuck is None or self._stuck.done()):
            try:
                self.call("shutdown", pynvml.nvmlShutdown)
            except NvmlFault:
                pass  # the driver may be gone already; there is nothing left to release
        self._jobs.put(None)
