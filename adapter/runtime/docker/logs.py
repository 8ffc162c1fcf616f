"""A container's log, copied from Docker to where it outlives the container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adapter.runtime.docker.door import streamed
from adapter.runtime.docker.stamps import milliseconds
from adapter.runtime.logstore import LogStore
from marketplace import disk


def copy_new(container: Any, lease: str, logs: LogStore, cursor: Path) -> None:
    """Copy what Docker has and *logs* has not.  One at a time for each lease.

    The *cursor*: Docker's stamp of the last line, and where that line ends in *logs*.  What lies
    behind it was copied by one that was ended before it moved the cursor.
    """
    limit = int(container.labels.get("tally.log_kib", "1024")) << 10
    last, _, end = (cursor.read_text() if cursor.exists() else "").partition(" ")
    known = max(0, logs.end(lease) - int(end)) if end else 0
    since = int(milliseconds(last) or 0) // 1000 if last else None
    found = container.logs(stream=True, timestamps=True, since=since, follow=False)
    fresh = bytearray()
    newest = last
    with streamed(found) as stream:
        for line in _lines(stream):
            stamp, _, text = line.partition(b" ")
            when = _sortable(stamp.decode(errors="replace"))
            if when <= last:
                continue
            if len(fresh) >= 2 * limit:
                break  # the rest is fetched by the next call
            fresh += text
            newest = when
    if fresh:
        at = logs.end(lease) - known
        if len(fresh) > known:
            logs.append(lease, bytes(fresh[known:]), limit)
        disk.write_whole(cursor, f"{newest} {at + len(fresh)}".encode())


def begin(lease: str, logs: LogStore, cursor: Path) -> None:
    """A container is about to print its first line: what *logs* has is of one before it."""
    cursor.parent.mkdir(parents=True, exist_ok=True)
    disk.write_whole(cursor, f" {logs.end(lease)}".encode())


def _lines(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream that comes in any pieces."""
    rest = b""
    for piece in stream:
        rest += piece
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _sortable(stamp: str) -> str:
    """Docker trims a stamp's trailing zeros; with all nine digits, later is greater as text."""
    whole, _, part = stamp.rstrip("Z").partition(".")
    return f"{whole}.{part.ljust(9, '0')}Z"
