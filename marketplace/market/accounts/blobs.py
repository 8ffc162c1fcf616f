"""Files in and outputs back: content-addressed bytes in a folder, who may see them in the store.

A blob's name is the hash of its bytes, checked when it is written; nothing of what a user calls a
file ever becomes part of a path.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from marketplace.domain.errors import Conflict, Malformed, NotFound
from marketplace.domain.protocol import wire
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.pool_keys import Look
from marketplace.market.accounts import standing
from marketplace.market.accounts.access import Caller, audit
from marketplace.market.accounts.upload_room import Room, Upload
from marketplace.market.base.errors import BlobInUse, BlobMismatch, QuotaSpent, TooLarge
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Blob, Job, Lease
from marketplace.market.context import Market

_HASH: Final = re.compile(r"[0-9a-f]{64}")
LIVING: Final = tuple(state for state in JobState if state is not JobState.ENDED)
PART: Final = 256 * 1024
PAGE: Final = 500
PART_LIVES_S: Final = 7_200  # longer than the slowest upload that is still listened to


class Blobs:
    """The folder and its rules."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.folder = Path(market.settings.blob_folder or ".")
        self.room = Room(self.folder)
        self._naming = anyio.Lock()  # what a name stands for changes one at a time

    def path(self, sha256: str) -> Path:
        """Where the bytes lie; Malformed for anything but 64 hex digits."""
        if not _HASH.fullmatch(sha256):
            raise Malformed("a blob is named by its sha256 in lower-case hex")
        return self.folder / sha256[:2] / sha256

    async def put(
        self,
        account: str,
        sha256: str,
        chunks: AsyncIterator[bytes],
        size: int | None = None,
        address: str | None = None,
    ) -> Blob:
        """Store and check; TooLarge, QuotaSpent, BlobMismatch, PoolKeyRefused, DiskFull. Storing
        twice is storing once.

        *size* is what was announced, else the largest that a file may have: room and quota for it
        are kept from the first byte on. *address*: whence it comes over the network, where few come
        at a time.
        """
        final, limit = self.path(sha256), self.market.settings.blob_limit
        if size is not None and size > limit:
            raise TooLarge(f"a blob has at most {limit} bytes", limit=limit)
        left = await self._left(account, sha256) - self.room.promised(account)
        if size is not None and size > left:
            raise await self._spent(account)
        most = min(limit, max(left, 0)) if size is None else size
        names = (account, *([f"at {address}"] if address else []))
        await anyio.Path(final.parent).mkdir(parents=True, exist_ok=True)
        with self.room.keep(most, *names, few=address is not None) as upload:
            return await self._write(account, sha256, chunks, upload)

    async def _write(
        self, account: str, sha256: str, chunks: AsyncIterator[bytes], upload: Upload
    ) -> Blob:
        final, limit = self.path(sha256), self.market.settings.blob_limit
        part = final.with_suffix(f".{self.market.ids.secret(8).hex()}")
        hasher, look = hashlib.sha256(), Look()
        try:
            async with await anyio.open_file(part, "wb") as file:
                async for chunk in chunks:
                    if upload.written + len(chunk) > upload.size:
                        short = upload.size < limit
                        raise (
                            await self._spent(account)
                            if short
                            else TooLarge(f"a blob has at most {limit} bytes", limit=limit)
                        )
                    hasher.update(chunk)
                    look.at(chunk)
                    await file.write(chunk)
                    self.room.wrote(upload, len(chunk))
                await file.flush()
                await anyio.to_thread.run_sync(os.fsync, file.wrapped.fileno())
            if hasher.hexdigest() != sha256:
                raise BlobMismatch("the bytes do not hash to the name")
            look.refuse("the file")
            async with self._naming:
                if upload.written > await self._left(account, sha256):  # others came in meanwhile
                    raise await self._spent(account)
                await anyio.Path(part).replace(final)
                return await self._keep(Blob(account, sha256, upload.written, self.market.now))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.Path(part).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a process that died had begun; blocks."""
        for part in self.folder.glob("??/*.*"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > PART_LIVES_S:
                    part.unlink()

    async def _keep(self, blob: Blob) -> Blob:
        try:
            await self.market.store.apply(Change(puts=[blob]))
        except Conflict:
            return await self.market.store.get(Blob, blob.account, blob.sha256) or blob
        return blob

    async def _left(self, account: str, sha256: str) -> int:
        """Bytes that the account's quota has for this file; one that it has already takes none."""
        store = self.market.store
        used = await store.total(Blob, "size", account=account)
        known = await store.get(Blob, account, sha256)
        quota = await self._quota(account)
        return quota - used + (known.size if known is not None else 0)

    async def _quota(self, account: str) -> int:
        """Bytes of all of the account's files; fewer before it ever paid for anything."""
        settings = self.market.settings
        if (await standing.of(self.market, account)).paid:
            return settings.blob_quota
        return min(settings.blob_quota, settings.blob_quota_new)

    async def _spent(self, account: str) -> QuotaSpent:
        quota = await self._quota(account)
        more = (
            "" if quota == self.market.settings.blob_quota else " until its first receipt is paid"
        )
        text = f"one account's files have at most {quota} bytes together{more}"
        return QuotaSpent(text, quota=quota)

    async def remove(self, who: Caller, sha256: str) -> None:
        """Forget the caller's file; its bytes go with the last account that has it. NotFound,
        BlobInUse.
        """
        path, store = self.path(sha256), self.market.store
        async with self._naming:
            blob = await store.get(Blob, who.account, sha256)
            if blob is None:
                raise NotFound(f"no blob {sha256}")
            if job := await self._user(who.account, sha256):
                raise BlobInUse(f"{job} names this file and has not ended", job=job)
            note = audit(self.market, who, "blob.remove", sha256, {"size": blob.size})
            await store.apply(Change(drops=[blob], puts=[note]))
            if not await store.count(Blob, sha256=sha256):
                await anyio.Path(path).unlink(missing_ok=True)

    async def _user(self, account: str, sha256: str) -> str:
        """A job of the account that has not ended and takes the file in; empty when there is
        none.
        """
        after: tuple[object, ...] | None = None
        while True:
            page = await self.market.store.find(
                Job, account=account, state=LIVING, order=("id",), after=after, limit=PAGE
            )
            for job in page:
                if any(file.sha256 == sha256 for file in job.parsed.files):
                    return job.id
            if len(page) < PAGE:
                return ""
            after = (page[-1].id,)

    async def owned(self, account: str, sha256: str) -> Path:
        """The file of a blob that *account* put or got; NotFound otherwise."""
        path = self.path(sha256)
        blob = await self.market.store.get(Blob, account, sha256)
        if blob is None or not await anyio.Path(path).exists():
            raise NotFound(f"no blob {sha256}")
        return path

    async def part(self, provider: str, asked: wire.BlobWanted) -> wire.BlobPart:
        """A part of a file for the workload of one of the provider's leases; NotFound otherwise."""
        lease = await self.market.store.get(Lease, asked.lease)
        job = await self.market.store.get(Job, lease.job) if lease is not None else None
        if lease is None or job is None or lease.provider != provider:
            raise NotFound(f"no lease {asked.lease}")
        if asked.sha256 not in {f.sha256 for f in job.parsed.files}:
            raise NotFound("the job names no such file")
        path = await self.owned(job.account, asked.sha256)
        length, offset = min(max(asked.length, 0), PART), max(asked.offset, 0)

        def read() -> tuple[bytes, int]:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(length), path.stat().st_size

        data, total = await anyio.to_thread.run_sync(read)
        return wire.BlobPart(asked.lease, asked.sha256, offset, total, data)
