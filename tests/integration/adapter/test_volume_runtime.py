"""A real file system in a file: its size is a wall, its content is its key's, and it outlives everything but its end."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from adapter.core.workload import RuntimeFault, RuntimeRefused, WorkloadGone
from adapter.runtime.volumes.handed import hand_over, mounts
from adapter.runtime.volumes.runtime import (
    VolumeRuntime,
    missing,
    place_of,
    remove_all,
    set_aside_mib,
)
from marketplace.domain.keys import Signer
from marketplace.domain.work.volume import DESTROYED, Mount
from marketplace.domain.work.workload import ExitReason, WorkloadSpec, WorkloadState
from tests.requires import need_volumes

pytestmark = pytest.mark.anyio
OWN, OTHER = Signer(b"\x07" * 32), Signer(b"\x08" * 32)
SPEC = WorkloadSpec("lease_1", "", (), cpu_milli=1, memory_mib=6, disk_mib=64)
SECRET = b"what nobody else is to read " * 64


@pytest.fixture
def state(tmp_path: Path) -> Generator[Path]:
    """A folder of runtimes, with a space in its name."""
    folder = tmp_path / "the state"
    need_volumes(folder)
    yield folder
    remove_all(folder)


def runtime(state: Path, signer: Signer = OWN) -> VolumeRuntime:
    return VolumeRuntime(state, "adapter", signer)


async def test_it_is_as_large_as_was_rented_and_no_larger(state: Path) -> None:
    await runtime(state).start(SPEC)
    place = place_of(state, "lease_1")
    assert set_aside_mib(state) >= 64 and place.size_mib == 64
    before = place.image.stat().st_blocks
    assert before >= 64 << 11  # in 512 bytes each, before anything is written
    with pytest.raises(OSError) as full, (place.files / "filler").open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()
    assert full.value.errno == errno.ENOSPC
    assert place.image.stat().st_blocks - before < 1 << 11  # the host's disk is as it was


async def test_it_outlives_its_adapter_and_a_start_of_the_host(state: Path) -> None:
    made = await runtime(state).start(SPEC)
    place = place_of(state, "lease_1")
    (place.files / "note").write_bytes(SECRET)
    written = (await runtime(state).status(made)).written_kib
    assert await runtime(state).start(SPEC) == made  # asked again: the same
    assert await runtime(state).adopt() == [made]
    place.unmount()  # as after a start of the host
    assert not place.files.exists()  # nobody writes below the mount point by mistake
    with pytest.raises(RuntimeFault):
        await runtime(state).status(made)
    assert await runtime(state).adopt() == [made]
    assert (place.files / "note").read_bytes() == SECRET
    status = await runtime(state).status(made)
    assert status.state is WorkloadState.RUNNING
    assert written is not None and (status.written_kib or 0) >= written


async def test_its_content_is_its_keys_and_goes_with_it(state: Path) -> None:
    made = await runtime(state).start(SPEC)
    place = place_of(state, "lease_1")
    (place.files / "note").write_bytes(SECRET)
    place.unmount()
    assert SECRET[:28] not in place.image.read_bytes()
    sealed = (place.folder / "key").read_bytes()
    assert await runtime(state, OTHER).adopt() == [made]  # one that is lost hides no other
    with pytest.raises(RuntimeFault, match="is not mounted"):
        await runtime(state, OTHER).status(made)
    assert len(sealed) > 64
    await runtime(state).remove(made)
    assert not place.folder.exists() and await runtime(state).adopt() == []
    with pytest.raises(WorkloadGone):
        await runtime(state).status(made)
    await runtime(state).remove(made)  # once more is no harm


async def test_an_end_is_remembered_until_it_is_removed(state: Path) -> None:
    made = await runtime(state).start(SPEC)
    ended = await runtime(state).stop(made, 0)
    assert (ended.state, ended.reason) == (WorkloadState.EXITED, ExitReason.STOPPED)
    assert await runtime(state).adopt() == [made]
    assert place_of(state, "lease_1").device() is None  # it is not mounted again
    assert (await runtime(state).stop(made, 0)).times == ended.times


@pytest.mark.parametrize("left", ["key", "image", "mounted"])
async def test_a_start_that_was_cut_off_begins_again(state: Path, left: str) -> None:
    """A record is the last thing that is written: without one nothing was anybody's yet."""
    place = place_of(state, "lease_1")
    place.folder.mkdir(parents=True)
    if left == "key":
        (place.folder / "key").write_bytes(b"half")
    else:
        place.make(64)
    if left == "mounted":
        place.mount(os.urandom(64))
    await runtime(state).start(SPEC)
    (place.files / "note").write_bytes(SECRET)


async def test_a_disk_without_room_makes_none_and_leaves_nothing(state: Path) -> None:
    large = WorkloadSpec("lease_1", "", (), cpu_milli=1, memory_mib=6, disk_mib=1 << 30)
    with pytest.raises(RuntimeFault):
        await runtime(state).start(large)
    assert not place_of(state, "lease_1").folder.exists()
    assert set_aside_mib(state) == 0


async def test_it_is_handed_to_the_workloads_own_user(state: Path) -> None:
    await runtime(state).start(SPEC)
    job = WorkloadSpec("lease_2", "", ("a",), volumes=(Mount("lease_1", "/data"),))
    hand_over(state, job)
    [(place, mount)] = mounts(state, job)
    assert (mount.path, place.files.stat().st_uid) == ("/data", 10001)
    gone = WorkloadSpec("lease_2", "", ("a",), volumes=(Mount("lease_9", "/data"),))
    with pytest.raises(RuntimeFault, match="lease_9 is not mounted"):
        hand_over(state, gone)


async def test_its_provider_says_when_its_key_was_destroyed(state: Path) -> None:
    made = await runtime(state).start(SPEC)
    place, before_ms = place_of(state, "lease_1"), time.time_ns() // 1_000_000
    await runtime(state).stop(made, 0)
    said = await runtime(state).outputs(made, (DESTROYED,), 1)
    assert not (place.folder / "key").exists() and place.image.exists()
    data = said.path.read_bytes()
    assert said.digest == "sha256:" + hashlib.sha256(data).hexdigest() and said.size == len(data)
    record = json.loads(data)
    at_ms = record.pop("key_destroyed_ms")
    assert record == {"volume": "lease_1", "size_mib": 64}
    assert before_ms <= at_ms <= time.time_ns() // 1_000_000
    assert await runtime(state).adopt() == [made]  # the adapter came back before it was removed
    assert await runtime(state).outputs(made, (DESTROYED,), 1) == said
    await runtime(state).remove(made)
    assert said.path.read_bytes() == data and not place.folder.exists()


async def test_nothing_runs_in_it(state: Path) -> None:
    made = await runtime(state).start(SPEC)
    with pytest.raises(RuntimeRefused):
        await runtime(state).exec(made, ("id",), 1000, 100)
    with pytest.raises(RuntimeRefused):
        await runtime(state).prepare("sha256:" + "ab" * 32, lambda _: None)


def test_a_host_that_has_none_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "mkfs.ext4" in missing(tmp_path / "state")


def test_a_host_that_cannot_move_their_content_rents_none(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = state / "programs"
    programs.mkdir(parents=True)
    for name in ("mkfs.ext4", "mount", "umount", "tar"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(programs))
    assert missing(state) == "bwrap is not installed"
    assert not (state / "volumes").exists()


MADE_APART = """
import anyio, sys
from pathlib import Path
from adapter.runtime.volumes import filesystem
from tests.integration.adapter.test_volume_runtime import SPEC, place_of, runtime
state, filesystem.HOST = Path(sys.argv[1]), int(sys.argv[2])
anyio.run(runtime(state).start, SPEC)
(place_of(state, "lease_1").files / "note").write_text("seen by the host")
"""


def test_a_service_with_mounts_of_its_own_mounts_it_where_docker_sees_it(state: Path) -> None:
    """As systemd runs the unit: its mounts are its own, the host's come to it as they are made. Here
    this process is the host's.
    """
    state.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", state, state], check=True)
    try:
        subprocess.run(["mount", "--make-shared", state], check=True)
        apart = ("unshare", "--mount", "--propagation", "slave")
        subprocess.run(
            [*apart, sys.executable, "-c", MADE_APART, str(state), str(os.getpid())], check=True
        )
        place = place_of(state, "lease_1")
        assert (place.files / "note").read_text() == "seen by the host"
        remove_all(state)
        assert place.device() is None
    finally:
        subprocess.run(["umount", "--recursive", state], check=True)
