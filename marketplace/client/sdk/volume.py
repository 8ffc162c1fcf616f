"""A volume's content: out of it into a sealed file, and from one, a folder or an archive into it.

Over the market, which sees neither, and asks for neither: both are signed by the key that pays for
the volume (:mod:`marketplace.domain.work.volume_move`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

import anyio
import anyio.from_thread
import anyio.to_thread
import pyrage

from marketplace.client.jobs import sealed_volumes
from marketplace.client.sdk.job import Job
from marketplace.client.sdk.terminal import Terminal, TerminalLost
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Fault, Refusal, TallyError
from marketplace.domain.keys import Signer, seal_to
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.volume_move import Move, Way

PIECE: Final = 64 * 1024


class VolumeUnproven(Refusal):
    """The market shows no terms that this purse and a provider signed for the volume."""

    code = "VOLUME_UNPROVEN"
    remedy = "nothing was sent; use the purse that rents the volume, or ask another market process"


class VolumeNotMoved(Fault):
    """Its content did not come out, or did not go in; it is as it was."""

    code = "VOLUME_NOT_MOVED"
    remedy = "end what mounts the volume, and try again; content goes into an empty volume only"


async def exported(
    job: Job, purse: Purse, name: str, file: Path, to: str = "",
    told: Callable[[int], None] = lambda _: None,
) -> int:  # fmt: skip
    """The content of the volume that *job* is, which its owner calls *name*, in *file*, which is
    replaced: its size. Sealed to *to*, an age recipient, else to the purse, which then also tries
    whether it opens. *told* hears how many bytes there are. NoArchive, VolumeUnproven,
    VolumeNotMoved; *file* is then as it was.
    """
    terms, session = await _opened_by(job, purse, name)
    identity = sealed_volumes.identity_of(purse.signer)
    recipient = sealed_volumes.recipient(to or str(identity.to_public()))
    move = Move.sign(session, terms.lease, Way.EXPORT, recipient.encode())
    handle, part = tempfile.mkstemp(dir=os.path.dirname(file) or ".", prefix=".tally-")
    try:
        size = 0
        with os.fdopen(handle, "wb") as into:
            async with job.terminal(move.words()) as far:
                while data := await _read(far):
                    size += len(data)
                    await anyio.to_thread.run_sync(into.write, data)
                    told(size)
        if not to:
            await anyio.to_thread.run_sync(sealed_volumes.whole, Path(part), identity)
        os.replace(part, file)
    except BaseException:
        os.unlink(part)
        raise
    return size


async def imported(
    job: Job, purse: Purse, name: str, source: Path | None,
    identity: pyrage.x25519.Identity | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> int:  # fmt: skip
    """*source* into the empty volume that *job* is, called *name*, all or nothing: a folder, a tar
    archive, what :func:`exported` wrote (opened by *identity*, else by the purse), or standard
    input. How many bytes went there. NoArchive, PoolKeyRefused, VolumeUnproven, VolumeNotMoved.
    """
    terms, session = await _opened_by(job, purse, name)
    opens = identity or sealed_volumes.identity_of(purse.signer)
    once = pyrage.x25519.Identity.generate()
    box = seal_to(terms.adapter_vk, str(once).encode())
    move = Move.sign(session, terms.lease, Way.IMPORT, box)
    async with job.terminal(move.words()) as far:
        sending, failed = _Sending(far, told), list[TallyError | OSError]()

        def send() -> None:
            with sealed_volumes.archive(source, opens, sys.stdin.buffer) as found:
                pyrage.encrypt_io(found, sending, [once.to_public()])
            sending.end()

        async with anyio.create_task_group() as tasks:

            async def sent() -> None:
                try:
                    await anyio.to_thread.run_sync(send, abandon_on_cancel=True)
                except (TallyError, OSError) as error:
                    failed.append(error)  # as it is, and not in a group of errors
                    tasks.cancel_scope.cancel()

            tasks.start_soon(sent)
            try:
                await _read(far)
            except VolumeNotMoved as error:
                failed.append(error)
            finally:
                sending.over = True
            tasks.cancel_scope.cancel()
        if failed:
            raise failed[0]
    return sending.size


class _Sending:
    """What is written to it goes to the volume, in pieces (``adapter/runtime/volumes/moving.py``);
    from another thread than the connection's.
    """

    def __init__(self, far: Terminal, told: Callable[[int], None]) -> None:
        self._far, self._told = far, told
        self.size, self.over = 0, False

    def write(self, data: bytes, /) -> int:
        """All of it; OSError once nobody listens."""
        for at in range(0, len(data), PIECE):
            piece = bytes(data[at : at + PIECE])
            self._send(len(piece).to_bytes(4, "big") + piece)
            self.size += len(piece)
        self._told(self.size)
        return len(data)

    def flush(self) -> None:
        """Nothing waits here."""

    def end(self) -> None:
        """That was all of it."""
        self._send(bytes(4))

    def _send(self, data: bytes) -> None:
        if self.over:
            raise OSError("the connection is over")
        anyio.from_thread.run(self._far.write, data)


async def _read(far: Terminal) -> bytes:
    try:
        return await far.read()
    except TerminalLost as lost:
        raise VolumeNotMoved(lost.message) from lost


async def _opened_by(job: Job, purse: Purse, name: str) -> tuple[Terms, Signer]:
    """What the volume is rented on, and the key that opens it: by the terms that the purse and the
    provider signed, of a job that *name* is what its owner calls. A market that names another
    provider's key would be told the content, and another volume would get it; VolumeUnproven.
    """
    view = await job.refresh()
    spec, evidence = JobSpec.from_wire(view["spec"]), await job.evidence()
    for lease in evidence.leases:
        try:
            terms = lease.signed.verify()
            session = purse.session(terms.session_vk)
        except Refusal:
            continue  # it proves nothing
        same = (terms.lease, terms.job, terms.work) == (view["lease"], job.id, spec.hash)
        if same and spec.is_volume and name in (spec.name, job.id):
            return terms, session
    raise VolumeUnproven(f"no terms that this purse signed are those of volume {name}")


def opened(file: Path, into: IO[bytes], identity: pyrage.x25519.Identity) -> None:
    """The tar archive in *file*; NoArchive."""
    with file.open("rb") as source:
        sealed_volumes.unsealed(source, into, identity)
