"""Relays held against each other: whose blocks do the others not have?

A tip, and a header that hashes to it, can be made up (``domain.ouroboros``), and so can the answer
that one has another's block. But a block of a while ago is with all relays of its network, or it
was made up, or lost a battle for its slot; and that others lack it, is for them to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import anyio

from marketplace.chain.node.relay import Reading, Relay
from marketplace.domain.ouroboros.asking import Point
from marketplace.domain.ouroboros.reading import Standing

WHY: Final = "the others do not have its blocks of a while ago"
AGAIN_S: Final = 30.0
"""So long a block may take to all. Each question is a connection of its own."""
TWICE: Final = 2
"""One block may have lost its slot to another; two in a row hardly do."""


@dataclass
class _Said:
    """What a relay said, to be asked of the others, and how often they did not know it."""

    point: Point | None = None
    missed: int = 0


class Together:
    """The same relays, in the same order, looked at again and again."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self._again_s = again_s
        self._at: float | None = None
        self._said: dict[int, _Said] = {}

    async def judge(self, read: Sequence[tuple[Relay, Reading]]) -> list[Reading]:
        """The readings; a relay at a tip, of which most of the others that answered lacked two
        blocks in a row, is ``APART``. Nothing is found out by the first look.
        """
        now = anyio.current_time()
        if self._at is None or now - self._at >= self._again_s:
            relays = [relay for relay, _ in read]
            async with anyio.create_task_group() as tasks:
                for at, said in self._said.items():
                    tasks.start_soon(_ask, said, [r for i, r in enumerate(relays) if i != at])
            for at, (_, reading) in enumerate(read):
                tip = reading.tip if reading.standing is Standing.AT_TIP else None
                said = self._said.setdefault(at, _Said())
                said.point = None if tip is None else tip.point
            self._at = now
        return [
            replace(reading, standing=Standing.APART, why=WHY)
            if reading.standing is Standing.AT_TIP and self._missed(at) >= TWICE
            else reading
            for at, (_, reading) in enumerate(read)
        ]

    def _missed(self, at: int) -> int:
        said = self._said.get(at)
        return 0 if said is None else said.missed


async def _ask(said: _Said, others: Sequence[Relay]) -> None:
    point, known = said.point, list[bool]()
    if point is None:
        return

    async def one(relay: Relay) -> None:
        answer = await relay.knows(point)
        if answer is not None:
            known.append(answer)

    async with anyio.create_task_group() as tasks:
        for relay in others:
            tasks.start_soon(one, relay)
    if known:
        said.missed = said.missed + 1 if 2 * sum(known) < len(known) else 0
