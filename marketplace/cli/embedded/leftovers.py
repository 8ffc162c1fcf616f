"""What an embedded market's adapters leave on the host beside containers."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread

from adapter.mesh.host import remove_all as remove_meshes
from adapter.runtime.confinement import ProcessConfig
from adapter.runtime.process import ProcessRuntime
from adapter.runtime.stores.mounts import remove_all as remove_stores
from adapter.runtime.volumes.runtime import remove_all as remove_volumes


async def remove_of(adapter: str, runtime: Path) -> None:
    """End the plain processes, and take away the meshes, mounted stores and volumes, of the adapter
    with that name, whose runtimes keep what they know below *runtime*. RuntimeFault for what cannot
    be removed.
    """
    # First: what waits for a store that is away does not end before.
    await anyio.to_thread.run_sync(remove_stores, runtime)
    processes = ProcessRuntime(ProcessConfig(runtime, adapter))
    for handle in await processes.adopt():
        await processes.remove(handle)
    await anyio.to_thread.run_sync(remove_meshes, runtime, adapter)
    await anyio.to_thread.run_sync(remove_volumes, runtime)
