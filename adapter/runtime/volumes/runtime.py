"""Volumes as what a lease runs: the disk is there, from its start to its end, whatever else does.

A lease of disk has everything that a lease has, so that it is priced, metered, paid and ended like
any other; where others have a container it has a file system (:mod:`.filesystem`) whose key this
adapter keeps, sealed to its own. Other leases of the same payer mount it. At its end the key is
destroyed before the blocks are given free.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from adapter.core.workload import (
    VOLUMES,
    ExecResult,
    Handle,
    LogChunk,
    Outputs,
    Progress,
    RuntimeFault,
    RuntimeRefused,
    Status,
    Terminal,
    Times,
    WorkloadGone,
)
from adapter.runtime.calls import in_thread
from adapter.runtime.volumes import moving, packed
from adapter.runtime.volumes.filesystem import FileSystem
from adapter.runtime.volumes.fscrypt import KEY_BYTES
from marketplace import disk
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer, seal_to, unseal
from marketplace.domain.work.volume_move import Move
from marketplace.domain.work.workload import ExitReason, WorkloadSpec, WorkloadState

T = TypeVar("T")
TRIAL_MIB: Final = 16
DEADLINE_S: Final = 120.0


def set_aside_mib(state: Path) -> int:
    """What the volumes below *state* take of its disk."""
    images = (state / "volumes").glob("*/image")
    return sum(image.stat().st_blocks for image in images) >> 11


def missing(state: Path) -> str:
    """What this host lacks for volumes below *state*, by making a small one; empty for nothing."""
    place = place_of(state, ".trial")
    try:
        place.destroy()
        place.folder.mkdir(parents=True)
        place.make(TRIAL_MIB)
        place.mount(os.urandom(KEY_BYTES))
        (place.files / "trial").write_bytes(b"written")
        return packed.lacks()
    except (OSError, RuntimeFault) as error:
        return str(error)
    finally:
        with contextlib.suppress(OSError, RuntimeFault):
            place.destroy()
            place.folder.parent.rmdir()  # unless there are others


def remove_all(state: Path) -> None:
    """All volumes below *state*, of an adapter that does not run."""
    for folder in (state / "volumes").glob("*"):
        FileSystem(folder).destroy()


def place_of(state: Path, lease: str) -> FileSystem:
    """Where the volume of *lease* is, below the adapter's folder of runtimes."""
    return FileSystem(state / "volumes" / lease)


@dataclass(frozen=True)
class VolumeRuntime:
    """The disk's side of :class:`adapter.core.workload.Runtime`; *signer*: its keys are sealed to
    it.
    """

    state: Path
    adapter: str
    signer: Signer
    _moving: dict[str, moving.Moving] = field(
        default_factory=dict[str, moving.Moving], init=False, repr=False
    )

    @property
    def name(self) -> str:
        """The runtime's name in handles."""
        return VOLUMES

    async def prepare(
        self, image: str, progress: Callable[[Progress], None], lease: str = ""
    ) -> str:
        """Nothing to fetch."""
        if image:
            raise RuntimeRefused("a volume runs no image")
        progress(Progress(1, 1, "ready"))
        return ""

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Make it, or find what this lease has."""
        return await self._run(f"make {spec.lease}", lambda: self._start(spec))

    async def adopt(self) -> list[Handle]:
        """All that are there, mounted again where the host was started anew."""
        return await self._run("adopt", self._adopt)

    async def status(self, handle: Handle) -> Status:
        """Running while it is mounted."""
        return await self._run(f"status {handle.lease}", lambda: self._status(handle.lease))

    async def pause(self, handle: Handle) -> None:
        """Kept, unbilled, and mounted by nobody new: the core sees to that."""

    async def resume(self, handle: Handle) -> None:
        """As it was."""

    async def stop(self, handle: Handle, grace_ms: int) -> Status:
        """Unmount it; RuntimeFault while the host uses it."""
        await self._give_up(handle.lease)
        return await self._run(f"stop {handle.lease}", lambda: self._stop(handle.lease))

    async def logs(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        """It says nothing."""
        return LogChunk(offset, b"", offset)

    async def exec(
        self, handle: Handle, command: tuple[str, ...], timeout_ms: int, limit: int
    ) -> ExecResult:
        """Refused."""
        raise RuntimeRefused("nothing runs in a volume: run a job that mounts it")

    async def terminal(
        self, handle: Handle, command: tuple[str, ...], rows: int, columns: int
    ) -> Terminal:
        """Its content out of it, or into it (:class:`Move`, which is its owner's): one at a time,
        while nobody mounts it.
        """
        lease = handle.lease
        move, place = Move.of(lease, command), place_of(self.state, lease)
        await self._run(f"mark {lease}", lambda: self._mark(place))
        try:
            begun = await moving.begin(place, move, self.signer, lambda: self._let_go(lease))
        except BaseException:
            moving.clear(place)
            raise
        self._moving[lease] = begun
        return begun

    async def _give_up(self, lease: str) -> None:
        """What moves, when the volume ends: nobody holds it up by reading slowly."""
        if begun := self._moving.get(lease):
            await begun.end()

    def _let_go(self, lease: str) -> None:
        self._moving.pop(lease, None)

    def _mark(self, place: FileSystem) -> None:
        if self._status(place.folder.name).state is not WorkloadState.RUNNING:
            raise WorkloadGone("the volume has ended")
        try:
            place.moving.touch(exist_ok=False)
        except FileExistsError:
            raise RuntimeRefused("it is exported or imported just now: one at a time") from None

    async def outputs(self, handle: Handle, paths: tuple[str, ...], limit_mib: int) -> Outputs:
        """Destroy its key, and say so: a record of when that was, which the adapter signs as it
        signs what any job gives back.
        """
        await self._give_up(handle.lease)
        return await self._run(f"destroy {handle.lease}", lambda: self._destroyed(handle.lease))

    async def pids(self, handle: Handle) -> frozenset[int]:
        """None."""
        return frozenset()

    async def remove(self, handle: Handle) -> None:
        """Destroy its key, then all of it."""
        await self._give_up(handle.lease)
        await self._run(f"remove {handle.lease}", lambda: self._remove(handle.lease))

    # ---- on the disk -------------------------------------------------------------------------

    async def _run(self, what: str, action: Callable[[], T]) -> T:
        return await in_thread(what, action, DEADLINE_S)

    def _start(self, spec: WorkloadSpec) -> Handle:
        place = place_of(self.state, spec.lease)
        if self._about(place) is None:  # what a crash left half done was nobody's yet
            self._remove(spec.lease)
            try:
                self._make(place, spec)
            except BaseException:
                self._remove(spec.lease)  # it may have taken all that the disk had
                raise
        self._mount(place)
        return self._handle(place)

    def _make(self, place: FileSystem, spec: WorkloadSpec) -> None:
        """Its record comes last: without one it was never there."""
        place.folder.mkdir(parents=True, mode=0o700)
        key = os.urandom(KEY_BYTES)
        disk.write_whole(place.folder / "key", seal_to(self.signer.verify_key, key))
        place.make(spec.disk_mib)
        place.mount(key)
        about = {"started_ms": time.time_ns() // 1_000_000, "labels": spec.all_labels()}
        disk.write_whole(place.folder / "about.json", json.dumps(about).encode())

    def _about(self, place: FileSystem) -> dict[str, Any] | None:
        try:
            return cast("dict[str, Any]", json.loads((place.folder / "about.json").read_text()))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise RuntimeFault(f"{place.folder.name}: its record cannot be read") from error

    def _handle(self, place: FileSystem) -> Handle:
        about, lease = self._about(place), place.folder.name
        if about is None:
            raise WorkloadGone(f"there is no volume of {lease}")
        labels = cast("dict[str, str]", about["labels"])
        started = int(about["started_ms"])
        return Handle(VOLUMES, lease, f"{self.adapter}-{lease}", started, labels=labels)

    def _mount(self, place: FileSystem) -> None:
        if place.device() is not None and place.files.exists():
            return
        try:
            key = unseal(self.signer, (place.folder / "key").read_bytes())
        except Malformed as error:
            raise RuntimeFault(f"{place.folder.name}: its key does not open") from error
        place.mount(key)

    def _adopt(self) -> list[Handle]:
        found: list[Handle] = []
        for about in sorted((self.state / "volumes").glob("*/about.json")):
            place = FileSystem(about.parent)
            if not (place.folder / "stopped").exists():
                with contextlib.suppress(RuntimeFault):  # its status says so; the others are well
                    self._mount(place)
                moving.clear(place)  # with the adapter that moved it
            found.append(self._handle(place))
        return found

    def _status(self, lease: str) -> Status:
        place = place_of(self.state, lease)
        handle = self._handle(place)
        times = Times(handle.started_ms)
        if (place.folder / "stopped").exists():
            at_ms = int((place.folder / "stopped").read_text())
            ended = Times(handle.started_ms, at_ms)
            return Status(WorkloadState.EXITED, ended, ExitReason.STOPPED)
        if place.device() is None:
            raise RuntimeFault(f"the volume of {lease} is not mounted")
        return Status(
            WorkloadState.RUNNING, times, disk_mib=place.used_mib(), written_kib=place.written_kib()
        )

    def _stop(self, lease: str) -> Status:
        place = place_of(self.state, lease)
        self._handle(place)
        place.unmount()
        stopped = place.folder / "stopped"
        if not stopped.exists():
            disk.write_whole(stopped, str(time.time_ns() // 1_000_000).encode())
        return self._status(lease)

    def _destroyed(self, lease: str) -> Outputs:
        place = place_of(self.state, lease)
        self._destroy_key(place)
        record = place.folder / "destroyed"
        if not record.exists():
            said = {
                "volume": lease,
                "size_mib": place.size_mib,
                "key_destroyed_ms": time.time_ns() // 1_000_000,
            }
            disk.write_whole(record, json.dumps(said).encode())
        data = record.read_bytes()  # asked again: the same
        digest = hashlib.sha256(data).hexdigest()
        kept = self.state / "outputs"
        kept.mkdir(parents=True, exist_ok=True)
        disk.write_whole(kept / f"{digest}.tar", data)  # by the name that what is given back has
        return Outputs(kept / f"{digest}.tar", f"sha256:{digest}", len(data), 1)

    def _destroy_key(self, place: FileSystem) -> None:
        key = place.folder / "key"
        if key.exists():
            place.unmount()  # first: one that is in use keeps its key
            with key.open("r+b") as file:
                file.write(bytes(key.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            key.unlink()

    def _remove(self, lease: str) -> None:
        place = place_of(self.state, lease)
        self._destroy_key(place)
        place.destroy()
