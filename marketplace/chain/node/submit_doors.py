"""Further doors through which a transaction is sent: whoever sits at one of them keeps nothing out.

A door is a Blockfrost-compatible address (``https://PROJECT@cardano-mainnet.blockfrost.io/api``; a
project id stands before the @) or a submit API's own (``http://my-node:8090/api/submit/tx``).  One
that takes a transaction is enough; what another says is logged.  Nothing is ever read through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
import requests
import structlog

from marketplace.chain.errors import ChainUrlWrong

DEADLINE_S: Final = 5.0
_ENDS: Final = ("/tx/submit", "/submit/tx")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Door:
    """Where to post a transaction. *name* is its address without the project id."""

    name: str
    post_to: str
    project_id: str = ""

    @staticmethod
    def parse(url: str) -> Door:
        """From its address; :class:`ChainUrlWrong` for what is none."""
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ChainUrlWrong(f"{url!r} is no address of a submit door")
        place = parts.netloc.rpartition("@")[2]
        name = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        post_to = name if name.endswith(_ENDS) else f"{name.removesuffix('/v0')}/v0/tx/submit"
        return Door(name, post_to, unquote(parts.username or ""))


class Doors:
    """All further doors of one chain."""

    def __init__(self, urls: Sequence[str] = ()) -> None:
        self._doors = tuple(Door.parse(url) for url in urls)

    def __len__(self) -> int:
        return len(self._doors)

    async def submit(self, tx: bytes) -> int:
        """Send *tx* through all of them at once; how many took it. Never raises for what a door
        does.
        """
        taken = 0

        async def through(door: Door) -> None:
            nonlocal taken
            said = await _post(door, tx)
            taken += not said
            if said:
                _log.warning("submit_door", door=door.name, cause=said)

        async with anyio.create_task_group() as group:
            for door in self._doors:
                group.start_soon(through, door)
        return taken


async def _post(door: Door, tx: bytes) -> str:
    """Empty if *door* took it, else what it said: also of one that has the transaction already."""
    headers = {"Content-Type": "application/cbor"}
    if door.project_id:
        headers["project_id"] = door.project_id
    call = partial(
        requests.post, door.post_to, data=tx, headers=headers, timeout=DEADLINE_S,
        allow_redirects=False,
    )  # fmt: skip
    try:
        with anyio.fail_after(DEADLINE_S):
            answer = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
    except TimeoutError:
        return f"no answer within {DEADLINE_S:g} s"
    except requests.RequestException as error:
        return f"no connection ({type(error).__name__})"
    return "" if answer.ok else f"status {answer.status_code}: {answer.text[:200]}"
