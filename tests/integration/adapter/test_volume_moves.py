"""A volume's content goes out sealed and comes in whole, at its owner's word alone, and whatever an archive says stays in
its volume.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pyrage
import pytest

from adapter.core.state import Lease
from adapter.core.volumes import NotMovable
from adapter.core.workload import RuntimeFault, RuntimeRefused, Terminal
from adapter.daemon.moves import begin
from adapter.runtime.volumes.handed import hand_over, mounts
from adapter.runtime.volumes.runtime import VolumeRuntime, place_of, remove_all
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, seal_to
from marketplace.domain.work.pool_keys import PoolKeyRefused
from marketplace.domain.work.volume import Mount
from marketplace.domain.work.volume_move import Move, Way
from marketplace.domain.work.workload import WorkloadSpec
from tests.requires import need_volumes
from tests.unit.adapter.test_volumes import mounting, rented
from tests.unit.support.adapter import SESSION as PAYER

pytestmark = pytest.mark.anyio
OWN, OTHER, SESSION = Signer(b"\x07" * 32), Signer(b"\x08" * 32), Signer(b"\x09" * 32)
IDENTITY = pyrage.x25519.Identity.generate()
COLD_KEY = b'{"type": "KesSigningKey_ed25519_kes_2^6", "cborHex": "590260' + b"ab" * 608 + b'"}'


def spec(lease: str, size_mib: int = 64) -> WorkloadSpec:
    return WorkloadSpec(lease, "", (), cpu_milli=1, memory_mib=6, disk_mib=size_mib)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncGenerator[VolumeRuntime]:
    """Two volumes, of 64 and 32 MB."""
    need_volumes(tmp_path / "state")
    made = VolumeRuntime(tmp_path / "state", "adapter", OWN)
    await made.start(spec("lease_1"))
    await made.start(spec("lease_2", 32))
    yield made
    for name in ("state", "other"):
        remove_all(tmp_path / name)


def files(runtime: VolumeRuntime, lease: str) -> Path:
    return place_of(runtime.state, lease).files


async def opened(runtime: VolumeRuntime, lease: str, move: Move) -> Terminal:
    handle = await runtime.start(spec(lease))  # asked again: the same
    return await runtime.terminal(handle, tuple(move.words()), 0, 0)


async def exported(runtime: VolumeRuntime, lease: str) -> bytes:
    recipient = str(IDENTITY.to_public()).encode()
    far, got = await opened(runtime, lease, Move.sign(SESSION, lease, Way.EXPORT, recipient)), b""
    try:
        while data := await far.read():
            got += data
    finally:
        await far.end()
    return got


def for_import(lease: str, archive: bytes, provider: Signer = OWN) -> tuple[Move, bytes]:
    """The word for it, and *archive* sealed as it asks."""
    once = pyrage.x25519.Identity.generate()
    sealed, box = io.BytesIO(), seal_to(provider.verify_key, str(once).encode())
    pyrage.encrypt_io(io.BytesIO(archive), sealed, [once.to_public()])
    return Move.sign(SESSION, lease, Way.IMPORT, box), sealed.getvalue()


async def fed(far: Terminal, sealed: bytes, step: int = 50_000) -> None:
    """As pieces, which a connection cuts as it likes."""
    pieces = b"".join(
        len(part).to_bytes(4, "big") + part
        for at in range(0, len(sealed), step)
        for part in (sealed[at : at + step],)
    )
    pieces += bytes(4)
    for at in range(0, len(pieces), 33_333):
        await far.write(pieces[at : at + 33_333])


async def imported(runtime: VolumeRuntime, lease: str, archive: bytes) -> None:
    await taken(runtime, lease, *for_import(lease, archive))


async def taken(runtime: VolumeRuntime, lease: str, move: Move, sealed: bytes) -> None:
    far, refused = await opened(runtime, lease, move), None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fed, far, sealed)
            try:
                assert await far.read() == b""
            except Refusal as error:
                refused = error  # as it is, and not in a group of errors
    finally:
        await far.end()
    if refused is not None:
        raise refused


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for about, data in members:
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return made.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b""):
    about = tarfile.TarInfo(name)
    about.type, about.linkname, about.mode = kind, link, 0o644
    return about, data


async def test_what_goes_out_comes_in_elsewhere_as_it_was(runtime: VolumeRuntime) -> None:
    there = files(runtime, "lease_1")
    (there / "chain" / "immutable").mkdir(parents=True)
    (there / "chain" / "immutable" / "00001.chunk").write_bytes(os.urandom(3_000_000))
    (there / "note").write_bytes(b"kept")
    (there / "empty").mkdir()
    (there / "to").symlink_to("note")
    os.link(there / "note", there / "same")
    os.chown(there / "note", 10001, 10001)
    os.chmod(there / "note", 0o640)
    with (there / "sparse").open("wb") as file:
        file.truncate(1 << 30)  # larger than either volume
        file.write(b"begins")
    sealed = await exported(runtime, "lease_1")
    assert b"kept" not in sealed and b"00001.chunk" not in sealed and len(sealed) < 4_000_000
    opened_here = io.BytesIO()
    pyrage.decrypt_io(io.BytesIO(sealed), opened_here, [IDENTITY])

    other = VolumeRuntime(runtime.state.parent / "other", "another", OTHER)
    await other.start(spec("lease_2", 32))
    await taken(other, "lease_2", *for_import("lease_2", opened_here.getvalue(), OTHER))
    here = files(other, "lease_2")
    chunk = Path("chain/immutable/00001.chunk")
    assert (here / chunk).read_bytes() == (there / chunk).read_bytes()
    assert os.readlink(here / "to") == "note" and (here / "empty").is_dir()
    about = (here / "note").stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode), about.st_nlink) == (10001, 0o640, 2)
    assert (here / "sparse").stat().st_size == 1 << 30
    place = place_of(other.state, "lease_2")
    assert not place.incoming.exists()
    # It is encrypted by the volume's own key, as what was written there.
    (here / "more").write_bytes(b"more")
    place.unmount()
    begins = (there / chunk).read_bytes()[:64]
    assert begins not in place.image.read_bytes()
    await other.adopt()
    assert (here / "more").read_bytes() == b"more"


OUTSIDE = {
    "a path that leaves": [member("../../outside", data=b"x")],
    "a path from the root": [member("/files/../outside", data=b"x")],
    "a link to the host, and a file through it": [
        member("out", tarfile.SYMTYPE, "/tmp"), member("out/outside", data=b"x"),
    ],
    "a hard link to the host": [member("shadow", tarfile.LNKTYPE, "/etc/shadow")],
    "a device": [member("disk", tarfile.BLKTYPE)],
}  # fmt: skip


@pytest.mark.parametrize("what", OUTSIDE)
async def test_an_archive_reaches_nothing_but_its_volume(runtime: VolumeRuntime, what: str) -> None:
    with pytest.raises(RuntimeRefused):
        await imported(runtime, "lease_1", tar(*OUTSIDE[what]))
    assert not list(files(runtime, "lease_1").iterdir())  # all of it or nothing
    assert not list(runtime.state.rglob("outside")) and "outside" not in os.listdir("/tmp")
    assert not place_of(runtime.state, "lease_1").moving.exists()
    await imported(runtime, "lease_1", tar(member("note", data=b"good")))  # it is as before
    assert (files(runtime, "lease_1") / "note").read_bytes() == b"good"


async def test_an_import_that_is_cut_off_or_another_s_leaves_nothing(
    runtime: VolumeRuntime,
) -> None:
    """A market passes it on, and has the end of it in its hand."""
    move, sealed = for_import("lease_1", tar(member("note", data=os.urandom(300_000))))
    with pytest.raises(RuntimeRefused, match="decryption"):
        await taken(runtime, "lease_1", move, sealed[:200_000])
    with pytest.raises(RuntimeRefused, match="made already"):  # the market has kept it all
        await taken(runtime, "lease_1", move, sealed)
    _, others = for_import("lease_1", tar(member("note", data=b"another")))
    move, _ = for_import("lease_1", b"")
    with pytest.raises(RuntimeRefused):
        await taken(runtime, "lease_1", move, others)
    assert not list(files(runtime, "lease_1").iterdir())
    assert not place_of(runtime.state, "lease_1").incoming.exists()


async def test_what_is_larger_than_the_volume_is_refused_and_gone(runtime: VolumeRuntime) -> None:
    with pytest.raises(RuntimeRefused, match="No space left on device"):
        await imported(runtime, "lease_2", tar(member("big", data=os.urandom(40 << 20))))
    place = place_of(runtime.state, "lease_2")
    assert not list(place.files.iterdir()) and place.used_mib() < 8


async def test_content_goes_into_an_empty_volume_only(runtime: VolumeRuntime) -> None:
    (files(runtime, "lease_1") / "mine").write_bytes(b"mine")
    with pytest.raises(RuntimeRefused, match="not empty"):
        await imported(runtime, "lease_1", tar(member("mine", data=b"another")))
    assert (files(runtime, "lease_1") / "mine").read_bytes() == b"mine"


async def test_a_volume_takes_no_keys_of_a_pool(runtime: VolumeRuntime) -> None:
    with pytest.raises(PoolKeyRefused, match=r"keys/kes\.skey holds a KES signing key"):
        await imported(runtime, "lease_1", tar(member("keys/kes.skey", data=COLD_KEY)))
    assert not list(files(runtime, "lease_1").iterdir())
    (files(runtime, "lease_1") / "kes.skey").write_bytes(COLD_KEY)  # a job wrote it there
    job = WorkloadSpec(
        "lease_3", "", ("true",), cpu_milli=1, memory_mib=6, disk_mib=1,
        volumes=(Mount("lease_1", "/data"),),
    )  # fmt: skip
    with pytest.raises(PoolKeyRefused):
        hand_over(runtime.state, job)


async def test_nobody_mounts_what_moves_and_one_moves_at_a_time(runtime: VolumeRuntime) -> None:
    (files(runtime, "lease_1") / "big").write_bytes(os.urandom(20 << 20))
    recipient = str(IDENTITY.to_public()).encode()
    asked = Move.sign(SESSION, "lease_1", Way.EXPORT, recipient)
    slow = await opened(runtime, "lease_1", asked)
    assert await slow.read()
    with pytest.raises(RuntimeRefused, match="one at a time"):
        await opened(runtime, "lease_1", asked)
    job = WorkloadSpec(
        "lease_3", "", ("true",), cpu_milli=1, memory_mib=6, disk_mib=1,
        volumes=(Mount("lease_1", "/data", read_only=True),),
    )  # fmt: skip
    with pytest.raises(RuntimeFault, match="exported or imported"):
        mounts(runtime.state, job)
    # Who reads slowly holds up no end: the volume's disk is free when its lease is over.
    handle = await runtime.start(spec("lease_1"))
    with anyio.fail_after(20):
        await runtime.stop(handle, 0)
        await runtime.remove(handle)
    assert not place_of(runtime.state, "lease_1").folder.exists()
    await slow.end()


async def test_what_was_taken_meanwhile_stops_an_export_that_has_begun(
    runtime: VolumeRuntime,
) -> None:
    """A job may be taken between the look and the mark."""
    looked = 0

    def leases() -> list[Lease]:
        nonlocal looked
        looked += 1
        return [] if looked == 1 else [mounter]

    at = rented()
    at.propose(mounting(), "lease_2")
    mounter = at.state.leases["lease_2"]
    volume = replace(at.state.leases["lease_1"], handle=await runtime.start(spec("lease_1")))
    recipient = str(IDENTITY.to_public()).encode()
    asked = Move.sign(PAYER, "lease_1", Way.EXPORT, recipient)
    with pytest.raises(NotMovable, match="mounted by lease_2"):
        await begin(runtime, volume, leases, asked.words())
    assert looked == 2 and not place_of(runtime.state, "lease_1").moving.exists()


async def test_an_adapter_that_comes_back_clears_what_was_half_taken_in(
    runtime: VolumeRuntime,
) -> None:
    place = place_of(runtime.state, "lease_1")
    place.moving.touch()
    place.incoming.mkdir()
    (place.incoming / "half").write_bytes(b"half")
    again = VolumeRuntime(runtime.state, "adapter", OWN)
    await again.adopt()
    assert not place.incoming.exists() and not place.moving.exists()
    assert not list(place.files.iterdir())


@pytest.mark.parametrize("words", [("sh",), ("export", "zz", ""), ("export", "", "00"), ()])
async def test_nothing_else_runs_in_a_volume(
    runtime: VolumeRuntime, words: tuple[str, ...]
) -> None:
    handle = await runtime.start(spec("lease_1"))
    with pytest.raises(Malformed):
        await runtime.terminal(handle, words, 0, 0)
