"""Volumes as workloads get them: a folder of the host for each, owned by the workload's user."""

from __future__ import annotations

import os
from pathlib import Path

from adapter.core.workload import RuntimeFault
from adapter.runtime.volumes.filesystem import FileSystem
from adapter.runtime.volumes.moving import look_for_pool_keys
from adapter.runtime.volumes.runtime import place_of
from adapter.runtime.workspace import owner_ids
from marketplace.domain.work.volume import Mount
from marketplace.domain.work.workload import WorkloadSpec


def mounts(state: Path, spec: WorkloadSpec) -> list[tuple[FileSystem, Mount]]:
    """Where each of the volumes of *spec* is below *state*; RuntimeFault for one that is not
    there.
    """
    found: list[tuple[FileSystem, Mount]] = []
    for mount in spec.volumes:
        place = place_of(state, mount.volume)
        if place.device() is None or not place.files.is_dir():
            raise RuntimeFault(f"volume {mount.volume} is not mounted on this host")
        if place.moving.exists():
            raise RuntimeFault(f"volume {mount.volume} is exported or imported just now")
        found.append((place, mount))
    return found


def hand_over(state: Path, spec: WorkloadSpec) -> None:
    """Make the workload's user their owner; what lies in them stays whose it was.
    PoolKeyRefused.
    """
    for place, mount in mounts(state, spec):
        look_for_pool_keys(place.files)
        if not mount.read_only:
            os.chown(place.files, *owner_ids(spec.user))
