"""Volumes by the names that their owner gave them: a job that is posted names their leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from marketplace.client.net.answers import JobAnswer
from marketplace.domain.errors import Refusal
from marketplace.domain.work.job import JobSpec

LEASE: Final = "lease_"
"""Begins what a lease is called."""


class VolumeUnknown(Refusal):
    """A job mounts a volume that this account has not, or has twice."""

    code = "VOLUME_UNKNOWN"
    remedy = "`tally job list` shows yours: name one that runs, or its lease"


def wants_names(spec: JobSpec) -> bool:
    """Whether *spec* names a volume otherwise than by its lease."""
    return any(not mount.volume.startswith(LEASE) for mount in spec.volumes)


def by_lease(spec: JobSpec, jobs: Sequence[JobAnswer]) -> JobSpec:
    """*spec* with each volume named by its lease; *jobs* are the account's. VolumeUnknown."""
    own = [one for one in jobs if one["kind"] == "volume" and one["state"] == "RUNNING"]
    mounts = list(spec.volumes)
    for at, mount in enumerate(mounts):
        if mount.volume.startswith(LEASE):
            continue
        found = [one["lease"] for one in own if one["name"] == mount.volume]
        if len(found) != 1:
            count = f"{len(found)} volumes" if found else "no volume"
            raise VolumeUnknown(f"{count} of yours: {mount.volume}", volume=mount.volume)
        mounts[at] = replace(mount, volume=found[0])
    return replace(spec, volumes=tuple(mounts))
