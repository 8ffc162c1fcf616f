"""A watchtower: from vouchers alone it rescues a provider whose adapter is dead.

It holds no party's key. A voucher can only pay the provider that its channel names, so whoever has
a copy may push it; the tower pays the fee from a purse of its own (and takes the channel's bounty,
if the terms offer one). A stale or stolen book does no harm: a claim never ends a channel, and a
later voucher takes the rest.

The book is a file of JSON lines, appended to by whoever wants to be watched: session_vk, origin,
payout (an address), cumulative, signature, asset. The greatest voucher of a channel counts. A line
may be another's row that holds such entries, none or many, in a list ``watch``: a router's books
are a tower's book as they are.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import anyio.to_thread
import structlog

from marketplace.chain.actions.session import Desk
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.settlement.next_step import Policy, alarms
from marketplace.chain.settlement.settler import Settler
from marketplace.chain.settlement.wanted import Round, Wanted
from marketplace.domain.errors import Malformed, TallyError
from marketplace.domain.money.channel import Closing
from marketplace.domain.money.voucher import Voucher

EVERY_S: Final = 20.0  # a close is seen at most this late; close periods are hours
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Entry:
    """One channel of the book."""

    asset: str
    wanted: Wanted

    @staticmethod
    def all_of(line: str) -> list[Entry]:
        """Those of one line; :class:`Malformed`, or a refusal of a voucher that its key did not
        sign.
        """
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise Malformed("not a line of a watchtower's book") from error
        if isinstance(raw, dict) and "g" in raw:  # a row of a router's books
            row = cast("dict[str, Any]", raw)
            return [Entry.of(one) for one in row.get("watch", ())]
        return [Entry.of(raw)]

    @staticmethod
    def of(raw: Any) -> Entry:
        """What one object says; the same refusals."""
        try:
            voucher = Voucher(
                bytes.fromhex(raw["session_vk"]),
                int(raw["cumulative"]),
                bytes.fromhex(raw["signature"]),
            )
            origin, payout = OutRef.parse(raw["origin"]), addresses.from_text(raw["payout"])
            asset = str(raw.get("asset", ""))
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed("not a line of a watchtower's book") from error
        voucher.verify()
        return Entry(asset, Wanted(voucher.session_vk, origin, voucher, payout))


def read_book(path: Path) -> dict[str, list[Wanted]]:
    """By asset: each channel with its greatest voucher. Lines that are none are counted and
    skipped: whoever appends to the book may be writing one just now.
    """
    best: dict[tuple[str, bytes], Wanted] = {}
    bad = 0
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            entries = Entry.all_of(line)
        except TallyError:
            bad += 1
            continue
        for entry in entries:
            place = (entry.asset, entry.wanted.session_vk)
            known = best.get(place)
            if known is None or _worth(entry.wanted) > _worth(known):
                best[place] = entry.wanted
    if bad:
        _log.warning("watchtower_lines_skipped", count=bad, book=str(path))
    books: dict[str, list[Wanted]] = {}
    for (asset, _), wanted in best.items():
        books.setdefault(asset, []).append(wanted)
    return books


def _worth(wanted: Wanted) -> int:
    return wanted.voucher.cumulative if wanted.voucher else 0


@dataclass(frozen=True)
class Alarm:
    """A closing channel whose voucher is still unclaimed after *passed_bps* of its close period."""

    session_vk: bytes
    passed_bps: int
    unclaimed: int


def alarm(view: ChannelView, owed: int, now_ms: int) -> Alarm | None:
    """The alarm that *view* deserves at *now_ms*, *owed* being the greatest voucher known."""
    stage = view.stage
    if not isinstance(stage, Closing) or owed <= view.claimed:
        return None
    crossed = alarms(stage, view.consts.close_period_ms, now_ms)
    return Alarm(view.session_vk, crossed[-1], owed - view.claimed) if crossed else None


class Watchtower:
    """Watches the channels of a book, one settler for each asset, paid from *desk*'s wallet."""

    def __init__(self, desk: Desk, *, gift_most: int = 0) -> None:
        self._desk = desk
        self._policy = Policy(rescue_only=True, gift_most=gift_most)
        self._settlers: dict[str, Settler] = {}

    async def look(self, books: dict[str, list[Wanted]]) -> tuple[list[Round], list[Alarm]]:
        """One look at every channel: what was rescued, and what alarms."""
        rounds: list[Round] = []
        rung: list[Alarm] = []
        for asset, wanted in books.items():
            settler = self._settlers.setdefault(
                asset, Settler(replace(self._desk, asset=asset), self._policy)
            )
            done = await settler.round(wanted)
            rounds.append(done)
            now_ms = (await self._desk.chain.tip()).time_ms
            for want in wanted:
                view = done.views.get(want.session_vk)
                rings = alarm(view, _worth(want), now_ms) if view else None
                if rings:
                    rung.append(rings)
                    _log.error(
                        "closing_and_unclaimed",
                        channel=want.session_vk.hex(),
                        passed_bps=rings.passed_bps,
                        unclaimed=rings.unclaimed,
                    )
        return rounds, rung


async def watch(
    desk: Desk,
    book: Path,
    *,
    every_s: float = EVERY_S,
    gift_most: int = 0,
    seen: Callable[[Sequence[Round], Sequence[Alarm]], Awaitable[None]] | None = None,
) -> None:
    """Watch *book* until cancelled; what fails is logged and tried again at the next look."""
    tower = Watchtower(desk, gift_most=gift_most)
    while True:
        try:
            books = await anyio.to_thread.run_sync(read_book, book)
            rounds, rung = await tower.look(books)
            if seen is not None:
                await seen(rounds, rung)
        except TallyError as error:
            _log.warning("watchtower_look_failed", code=error.code, cause=str(error))
        await anyio.sleep(every_s)
