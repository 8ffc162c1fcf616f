"""A channel's book on disk: appended and fsynced before anything is sent, and locked by its holder.

One file of JSON lines and one lock file for each session key. Whoever wants to sign for a channel
takes the lock *first* and reads the book afterwards: a book read before that may be old. A last
line that a crash cut short was never acted on and is set aside, and so is any damage that nothing
readable follows (what was signed then: see ``ChannelPayer.catch_up``). What was signed is never
forgotten: of the receipts only those that the book needs are kept when the file is rewritten. A
full or failing disk is a :class:`~marketplace.disk.DiskFault`: the process stops.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import structlog

from marketplace import disk
from marketplace.client.net.clock import Stamp
from marketplace.client.payer import hop_rows
from marketplace.client.payer.decide import Book
from marketplace.client.payer.folded import fold as fold
from marketplace.client.payer.loaded import ChannelFacts as ChannelFacts
from marketplace.client.payer.loaded import Loaded as Loaded
from marketplace.client.payer.renewal_rule import RenewalRule
from marketplace.disk import Files
from marketplace.disk import JournalDamaged as JournalDamaged
from marketplace.domain.errors import Conflict, NotFound
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.work.cluster_order import SignedOrder

_COMPACT_BYTES: Final = 8 << 20

log = structlog.get_logger("tally.payer")


class ChannelHeld(Conflict):
    """Another payer process signs for this channel."""

    code = "CHANNEL_HELD"
    remedy = "one payer holds a session key: leave it to that one, or stop it first"


class ChannelNotMine(NotFound):
    """No book of that channel in this home."""

    code = "CHANNEL_NOT_MINE"
    remedy = "use the --home in which the channel was opened"


class Journal:
    """The locked book of one channel. Made by :meth:`hold`; ``close`` gives the lock back.

    *files* are the operating system's calls. Every failure of the disk is a
    :class:`~marketplace.disk.DiskFault`; after one nothing more is written here.
    """

    def __init__(self, path: Path, lock: int, files: Files = disk.OS) -> None:
        self._path = path
        self._lock = lock
        self._files = files
        self._rows: disk.Rows | None = None
        self._cut = False

    @staticmethod
    def hold(
        folder: Path,
        session_vk: bytes,
        compact_bytes: int = _COMPACT_BYTES,
        files: Files = disk.OS,
    ) -> tuple[Journal, Loaded]:
        """Lock, then read; a file above *compact_bytes* is rewritten. :class:`ChannelHeld` if
        another process has the lock.
        """
        path = folder / f"{session_vk.hex()}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = files.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise disk.fault(error, "a channel cannot be locked", path) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)  # for people: who holds it
        except BlockingIOError as error:
            os.close(lock)
            by = f"process {holder(folder, session_vk) or 'unknown'}"
            raise ChannelHeld(f"{by} signs for channel {session_vk.hex()[:16]}") from error
        except OSError as error:
            os.close(lock)
            raise disk.fault(error, "a channel cannot be locked", path) from error
        journal = Journal(path, lock, files)
        try:
            rows = journal._recover()
            rows += [cut_row()] if journal._cut else []
            loaded = fold(session_vk, rows)
            journal._open(loaded, rows, compact_bytes)
            if journal._cut:
                journal.write(cut_row())
        except BaseException:
            journal.close()
            raise
        return journal, loaded

    def close(self) -> None:
        """Give the lock back."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        os.ftruncate(self._lock, 0)
        os.close(self._lock)

    def write(self, *rows: Mapping[str, Any]) -> None:
        """Append and reach the disk; all of *rows* or, after a crash, a prefix of them."""
        assert self._rows is not None
        self._rows.add(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def _recover(self) -> list[dict[str, Any]]:
        """The rows; a damaged end is kept beside the file and cut off."""
        data = _read(self._path)
        rows, end = _rows(data, self._path.name)
        if end < len(data):
            self._cut = True
            side = disk.set_aside(self._path, end, self._files)
            log.warning(
                "book_end_damaged", book=str(self._path), kept=side.name, bytes=len(data) - end
            )
        return rows

    def _open(self, loaded: Loaded, rows: list[dict[str, Any]], compact_bytes: int) -> None:
        if self._path.exists() and self._path.stat().st_size > compact_bytes:
            self._compact(loaded, rows)
        self._rows = disk.Rows(self._path, self._files)

    def _compact(self, loaded: Loaded, rows: list[dict[str, Any]]) -> None:
        """Rewrite without the receipts that later ones replaced; the greatest amount stays."""
        needed = {signed.body.hex() for signed in loaded.latest.values()}
        begun: set[str] = set()  # a lease's first receipt may be all that says when it began
        for row in rows:
            if row["k"] == "tick" and row["lease"] not in begun:
                begun.add(row["lease"])
                needed.add(row["receipt"][0])
        dropped = hop_rows.KINDS
        kept = [
            row
            for row in rows
            if row["k"] not in dropped and (row["k"] != "tick" or row["receipt"][0] in needed)
        ]
        kept += hop_rows.whole(loaded.hop) if loaded.hop is not None else []
        kept.append({"k": "signed", "signed": loaded.book.signed})
        data = b"".join(json.dumps(row).encode() + b"\n" for row in kept)
        disk.write_whole(self._path, data, self._files)


def channels_in(folder: Path) -> list[bytes]:
    """The session keys that have a book in *folder*; says nothing about who holds them."""
    found: list[bytes] = []
    for path in sorted(folder.glob("*.jsonl")):
        with contextlib.suppress(ValueError):
            found.append(bytes.fromhex(path.stem))
    return found


def holder(folder: Path, session_vk: bytes) -> int:
    """The living process that says it has the lock of the channel's book; 0 if none does. For
    people: the lock itself is not touched, so nobody is kept from taking it.
    """
    try:
        said = (folder / f"{session_vk.hex()}.lock").read_text()
    except FileNotFoundError:
        return 0
    if not said.isdigit():
        return 0
    with contextlib.suppress(PermissionError):  # it lives, and is somebody else's
        try:
            os.kill(int(said), 0)
        except ProcessLookupError:
            return 0
    return int(said)


def peek(folder: Path, session_vk: bytes) -> Loaded:
    """For showing only: the book as it is now, without the lock. Never sign after a peek."""
    path = folder / f"{session_vk.hex()}.jsonl"
    if not path.exists():
        raise ChannelNotMine(f"there is no channel {session_vk.hex()[:16]} in {folder}")
    return fold(session_vk, _rows(_read(path), path.name)[0])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise disk.fault(error, "a book cannot be read", path) from error


def _rows(data: bytes, name: str) -> tuple[list[dict[str, Any]], int]:
    """The rows, and where they end; see :func:`marketplace.disk.good_rows`."""
    return disk.good_rows(data, _row, name)


def _row(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or "k" not in row:
        raise ValueError("no row of a book")
    return cast("dict[str, Any]", row)


# --- rows -----------------------------------------------------------------------------------------


def channel_row(facts: ChannelFacts) -> dict[str, Any]:
    """The channel as it is now; the last such row counts."""
    return {"k": "channel", **facts.to_json()}


def lease_row(terms: SignedTerms, cap: int, at: Stamp, *, member: bool = False) -> dict[str, Any]:
    """Terms that the session key signed, and the most that may be approved under them; *member*: of
    a cluster.
    """
    parts = [bytes(cast(bytes, part)).hex() for part in terms.to_wire()]
    row = {"k": "lease", "terms": parts, "cap": cap, "at": at.to_wire()}
    return {**row, "member": True} if member else row


def order_row(order: SignedOrder, at: Stamp, *, again: bool = False) -> dict[str, Any]:
    """An order that the session key signed now; *again*: that was read from the market."""
    row = {
        "k": "order",
        "lease": order.order.lease,
        "order": [order.body.hex(), order.signature.hex()],
        "at": at.to_wire(),
    }
    return {**row, "again": True} if again else row


def cut_row() -> dict[str, Any]:
    """What was written last is lost, and may have been acted on."""
    return {"k": "cut"}


def renewed_row(terms: SignedTerms, cap: int) -> dict[str, Any]:
    """Renewed terms of a lease that goes on, and the most that may be approved in all."""
    parts = [bytes(cast(bytes, part)).hex() for part in terms.to_wire()]
    return {"k": "renewed", "terms": parts, "cap": cap}


def told_row(lease: str) -> dict[str, Any]:
    """The market has the signature under the renewed terms of *lease*."""
    return {"k": "told", "lease": lease}


def rule_row(lease: str, rule: RenewalRule | None) -> dict[str, Any]:
    """How *lease* is renewed by itself from now on; None: it is not."""
    return {"k": "rule", "lease": lease, "rule": rule.to_json() if rule is not None else None}


def cap_row(lease: str, cap: int) -> dict[str, Any]:
    """Another most that may be approved for *lease*: its job has a new one, with what was left."""
    return {"k": "cap", "lease": lease, "cap": cap}


def clock_row(lease: str, what: str, at: Stamp, *, handed: bool = False) -> dict[str, Any]:
    """*what*: started, paused, resumed or ended; *handed*: a pause that lasts as the book goes."""
    row = {"k": "clock", "lease": lease, "what": what, "at": at.to_wire()}
    return {**row, "handed": True} if handed else row


def tick_row(signed: SignedReceipt, book: Book, lease: str, at: Stamp) -> dict[str, Any]:
    """A receipt that was accepted, and what is signed for it."""
    return {
        "k": "tick",
        "lease": lease,
        "receipt": [signed.body.hex(), signed.signature.hex()],
        "approved": book.leases[lease].approved,
        "signed": book.signed,
        "at": at.to_wire(),
    }


def signed_row(book: Book) -> dict[str, Any]:
    """What is signed beyond the last receipt's answer."""
    approved = {name: lease.approved for name, lease in book.leases.items()}
    return {"k": "signed", "signed": book.signed, "approved": approved}


def stopped_row(code: str, evidence: SignedReceipt | None = None) -> dict[str, Any]:
    """Why nothing more is signed, with the receipt that proves it, where one does."""
    proof = {} if evidence is None else {"receipt": [evidence.body.hex(), evidence.signature.hex()]}
    return {"k": "stopped", "code": code, **proof}


def final_row(lease: str, *, lost: bool = False) -> dict[str, Any]:
    """The lease is over and its last receipt was answered, or its provider is *lost*."""
    return {"k": "final", "lease": lease, **({"lost": True} if lost else {})}


def end_row(at: Stamp) -> dict[str, Any]:
    """The signed wish to end was sent."""
    return {"k": "end", "at": at.to_wire()}
