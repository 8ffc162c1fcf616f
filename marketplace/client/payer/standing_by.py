"""Whether a payer stands by that takes whatever channel its purse's other processes let go of.

``tally payer run`` holds a shared lock beside the books of its purse for as long as it serves a
market; the kernel gives it back when the process dies. Who wants to leave a job behind asks for the
whole lock: whoever gets it is alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from marketplace import disk
from marketplace.client.net.link import market_of
from marketplace.client.payer.handing_on import locked
from marketplace.domain.errors import Refusal


class NobodyPays(Refusal):
    """A job was to be left to a payer, and none runs."""

    code = "NOBODY_PAYS"
    remedy = (
        "start `tally payer run` first, in another terminal or as a service, with this --home and"
        " --market; or leave out --detach, so that this command pays: nothing was posted"
    )


@contextmanager
def standing_by(folder: Path, market: str) -> Generator[None]:
    """Meanwhile this process pays at *market* for every channel of *folder* that nobody else
    holds.
    """
    guard = _guard(folder, market)
    try:
        try:
            fcntl.flock(guard, fcntl.LOCK_SH)  # who asks below has it for an instant only
        except OSError as error:
            raise disk.fault(error, "a payer cannot stand by", folder) from error
        yield
    finally:
        os.close(guard)


def somebody_pays(folder: Path, market: str) -> None:
    """:class:`NobodyPays` unless a process stands by for the books of *folder* at *market*."""
    guard = _guard(folder, market)
    try:
        if locked(guard, fcntl.LOCK_EX, folder):
            raise NobodyPays("no payer of this purse runs for this market")
    finally:
        os.close(guard)


def _guard(folder: Path, market: str) -> int:
    """The market's lock file, opened; the same for every way to write its address."""
    name = hashlib.sha256(repr(market_of(market)).encode()).hexdigest()[:16]
    path = folder / f"standing-by-{name}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk.fault(error, "a payer cannot stand by", path) from error
