"""One purse spends at a time: from the choice of the inputs until the transaction is in the log.

Whoever has a purse's :func:`spending` lock knows every transaction of it that may still be
included: the inputs of those are spent for it, their change is its own to spend. The kernel gives
the lock back when its process dies; what that process had logged and not sent is then sent by the
next one.
"""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from marketplace import disk
from marketplace.chain.errors import TxRefused
from marketplace.domain.errors import Fault

WAIT_S: Final = 300.0
_LOOK_S: Final = 0.02
_INPUTS_GONE: Final = ("BadInputsUTxO", "All inputs are spent")  # as cardano-ledger says it


class PurseBusy(Fault):
    """Another process of this purse did not get done with a transaction."""

    code = "PURSE_BUSY"
    remedy = (
        "another command of this purse holds it: let that one go on or stop it; nothing was sent"
    )


@asynccontextmanager
async def spending(log: Path, wait_s: float = WAIT_S) -> AsyncGenerator[None]:
    """Held by one task of all processes that share the *log* of transactions.

    :class:`PurseBusy` after *wait_s* seconds; :class:`~marketplace.disk.DiskFault`.
    """
    path = log.with_suffix(".spending")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        guard = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk.fault(error, "a purse cannot be locked", path) from error
    try:
        with anyio.move_on_after(wait_s) as waiting:
            while True:
                if _locked(guard, path):
                    break
                await anyio.sleep(_LOOK_S * (1 + random.random()))  # nobody is always the later one
        if waiting.cancelled_caught:
            raise PurseBusy(f"another process has spent from this purse for {wait_s:g} s")
        yield
    finally:
        os.close(guard)


def _locked(guard: int, path: Path) -> bool:
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise disk.fault(error, "a purse cannot be locked", path) from error
    return True


def inputs_gone(refused: TxRefused) -> bool:
    """Whether the ledger misses an input: spent in a block, or by what waits for one; the
    transaction itself may be what waits.
    """
    return refused.conflict or any(said in refused.message for said in _INPUTS_GONE)
