"""Whoever waits is told for what: a market that takes a connection and says nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer
from typing import Final

from marketplace.cli import BEGUN
from marketplace.cli.shared.refusals import wants_json
from marketplace.cli.shared.screen import err
from marketplace.client.net.http import MarketFault

_SAID_AFTER_S: Final = 1.5
"""So long after a command's start, which takes its time on a slow machine: it is to be said within
two seconds. A market under load may answer yet: it is waited for as long as any other, only not in
silence.
"""
_LEAST_S: Final = 0.6
"""So long a market is waited for before that is told, however late it is."""


@contextmanager
def told_when_silent(market: str) -> Generator[None]:
    """While this waits for the first answer of *market*, an address: says on stderr that it does,
    and what to look at. Programs (``--json``) are told by the refusal that ends the wait.
    """
    since = time.monotonic() - BEGUN
    timer = Timer(max(_LEAST_S, _SAID_AFTER_S - since), _say, (market,))
    timer.daemon = True
    if not wants_json(sys.argv[1:]):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(market: str) -> None:
    err.print(f"{market} has not answered yet: waiting — {MarketFault.remedy}", markup=False)
