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
    mounts = tuple(
        mount
        if mount.volume.startswith(LEASE)
        else replace(mount, volume=one_of(mount.volume, jobs)["lease"])
        for mount in spec.volumes
    )
    return replace(spec, volumes=mounts)


def is_volume(job: JobAnswer) -> bool:
    """Whether *job* rents disk, and has it."""
    return job["kind"] == "volume" and job["state"] == "RUNNING"


def one_of(name: str, jobs: Sequence[JobAnswer]) -> JobAnswer:
    """The volume among *jobs* that has *name*, or is the job of that id; VolumeUnknown."""
    found = [one for one in jobs if is_volume(one) and name in (one["name"], one["id"])]
    if len(found) != 1:
        count = f"{len(found)} volumes" if found else "no volume"
        raise VolumeUnknown(f"{count} of yours: {name}", volume=name)
    return found[0]
