"""Who may mount a volume: the key that pays for it, one lease at a time.  Pure.

A volume is opened by the session key of its own channel: the terms of a lease that mounts it are
signed by that very key, over the job that names the volume. No other account, no market and nobody
who read a job has it. A lease that a router pays has a key of its own, so volumes and routes do not
go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from adapter.core.state import Lease, Own, State
from marketplace.domain.errors import Refusal
from marketplace.domain.metering.kinds import DISK
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.volume_move import Move

Rule = tuple[bool, str, str]
_THERE: Final = (LeaseState.ACTIVE, LeaseState.PAUSED)
"""One that waits for money too: the voucher that pays for what mounts it pays for it first."""


class NotMovable(Refusal):
    """Its content cannot be had, or put there, now."""

    code = "VOLUME_NOT_MOVABLE"
    remedy = "end what mounts the volume, and see that it is paid for"


def rules(state: State, own: Own, terms: Terms, job: JobSpec, routed: bool) -> Iterator[Rule]:
    """What a job that is a volume, or that mounts some, has to meet here."""
    yield (
        not (routed and (job.is_volume or job.volumes)),
        "VOLUME_ROUTED",
        "a volume, and what mounts it, is paid over a channel of its consumer's own",
    )
    yield (
        job.is_volume is (terms.resource == DISK.name),
        "TERMS_DIFFER",  # or memory would be had for the price of disk
        "disk is what a volume is billed by, and nothing else is",
    )
    yield (
        not job.is_volume or own.offer.rate(DISK.name) > 0,
        "VOLUMES_REFUSED",
        "no volumes are rented here: take a provider whose offer has a disk_rate",
    )
    for mount in job.volumes:
        found = state.leases.get(mount.volume)
        yield (
            found is not None
            and found.job.is_volume
            and found.terms.session_vk == terms.session_vk,
            "VOLUME_UNKNOWN",  # of somebody else's and of none the same is said
            f"the channel that pays this job pays for no volume {mount.volume[:40]} here",
        )
        if found is None:
            return
        yield (
            found.runs and found.state in _THERE and found.reason is None,
            "VOLUME_AWAY",
            f"volume {mount.volume[:40]} is {found.state.name}",
        )
        holders = [one.id for one in mounting(state.leases.values(), mount.volume)]
        yield (
            not holders,
            "VOLUME_BUSY",
            f"volume {mount.volume[:40]} is mounted by {', '.join(holders)}: end that first",
        )


def require_movable(volume: Lease, leases: Iterable[Lease], command: Sequence[str]) -> None:
    """That *command* is its owner's and that its content stands still, before it is exported or
    imported. *leases*: all there are. MoveUnsigned, NotMovable, Malformed.
    """
    Move.of(volume.id, command).verify(volume.terms.session_vk)
    if volume.state is not LeaseState.ACTIVE or volume.reason is not None:
        raise NotMovable(f"the volume is {volume.state.name}, not ACTIVE")
    if holders := [one.id for one in mounting(leases, volume.id)]:
        raise NotMovable(f"it is mounted by {', '.join(holders)}: end that first")


def mounting(leases: Iterable[Lease], volume: str) -> list[Lease]:
    """Those of *leases* that hold it, from the quote to the last trace of the workload."""
    return [
        lease
        for lease in leases
        if lease.occupies and any(mount.volume == volume for mount in lease.job.volumes)
    ]
