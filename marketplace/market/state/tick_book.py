"""What one process remembers of channels in use, and how their receipts and vouchers are written
together.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog

from marketplace.domain.errors import Conflict, NotFound
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import Terms
from marketplace.market.base.group_commit import GroupCommit
from marketplace.market.base.ports import Change, Store
from marketplace.market.base.records import Channel, Lease, LeaseKey, ReceiptRecord

log = structlog.get_logger("market")
KEPT: Final = 10_000
AT_ONCE: Final = 200
GATHER_S: Final = 0.008


@dataclass(eq=False)
class Page:
    """What the next receipt or voucher of one channel is checked against.

    The provider never changes, and terms only grow: they are read again where a receipt is above
    them. The rest is read again once another process wrote.
    """

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    loaded: bool = False
    provider: str = ""  # of the channel; empty until asked for
    last: Receipt | None = None
    leases: dict[str, Receipt] = field(default_factory=dict[str, Receipt])
    ticks: dict[str, int] = field(default_factory=dict[str, int])
    terms: dict[str, tuple[Terms, str]] = field(default_factory=dict[str, tuple[Terms, str]])
    routed: set[str] = field(default_factory=set[str])  # leases of it that a router pays
    ceilings: int = 0  # of all its leases together, when they were last added up


class Book:
    """The last pages of every channel in use; whatever is not here is read from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: OrderedDict[bytes, Page] = OrderedDict()

    def page(self, session_vk: bytes) -> Page:
        """The channel's page, possibly not loaded."""
        page = self._pages.get(session_vk)
        if page is None:
            page = self._pages[session_vk] = Page()
            while len(self._pages) > KEPT:
                self._pages.popitem(last=False)
        self._pages.move_to_end(session_vk)
        return page

    def forget(self, session_vk: bytes) -> None:
        """Another process wrote: read it again."""
        page = self._pages.get(session_vk)
        if page is not None:
            page.loaded = False

    async def load(self, session_vk: bytes, page: Page) -> None:
        """From the store, unless it is loaded."""
        if page.loaded:
            return
        newest = await self._store.find(
            ReceiptRecord, session_vk=session_vk, order=("-seq",), limit=1
        )
        page.last = newest[0].signed.receipt if newest else None
        page.leases, page.ticks = {}, {}
        page.loaded = True

    async def provider(self, session_vk: bytes) -> str:
        """Whose channel it is; NotFound, and no page, when there is none."""
        page = self._pages.get(session_vk)
        if page is None or not page.provider:
            channel = await self._store.get(Channel, session_vk)
            if channel is None:
                raise NotFound("no such channel")
            page = self.page(session_vk)
            page.provider = channel.provider
        return page.provider

    def may_be_over(self, session_vk: bytes, lease_id: str) -> bool:
        """False while the lease's last receipt, taken here, is not its final one."""
        page = self._pages.get(session_vk)
        last = page.leases.get(lease_id) if page is not None and page.loaded else None
        return last is None or last.final

    async def agreed(self, page: Page, lease_id: str, *, anew: bool = False) -> tuple[Terms, str]:
        """(terms, provider) of a lease; *anew*: as they stand now."""
        known = None if anew else page.terms.get(lease_id)
        if known is None:
            lease = await self._store.get(Lease, lease_id)
            if lease is None:
                raise NotFound(f"no lease {lease_id}")
            known = page.terms[lease_id] = (lease.agreed, lease.provider)
            if lease.hop:
                page.routed.add(lease_id)
        return known

    async def lease(self, page: Page, lease_id: str) -> tuple[Terms, str]:
        """(terms, provider) of a lease, and its last receipt into *page*."""
        known = await self.agreed(page, lease_id)
        if lease_id not in page.ticks:
            last = await self._store.find(ReceiptRecord, lease=lease_id, order=("-tick",), limit=1)
            page.ticks[lease_id] = last[0].tick if last else 0
            if last:
                page.leases[lease_id] = last[0].signed.receipt
        return known


class UsedKeys:
    """Whether session keys name channels, or routed leases, already; questions that come together
    are one query of each.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._questions = GroupCommit(AT_ONCE, self._ask)

    async def any_of(self, keys: tuple[bytes, ...]) -> bool:
        """True when one of *keys* is a channel's or a routed lease's."""
        mine = _Question(keys)
        await self._questions.join(mine)
        return mine.used

    async def _ask(self, group: list[_Question]) -> None:
        asked = [key for question in group for key in question.keys]
        used = await self._store.among(Channel, "session_vk", asked)
        used |= await self._store.among(LeaseKey, "session_vk", asked)
        for question in group:
            question.used = not used.isdisjoint(question.keys)


@dataclass(eq=False)
class _Question:
    keys: tuple[bytes, ...]
    used: bool = False


class Ticks:
    """Receipts and vouchers on their way into the store, many in one commit.

    A tick a second can wait :data:`GATHER_S`; a commit costs the market more than what a receipt
    adds to it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups = GroupCommit(AT_ONCE, self._write, GATHER_S)

    async def apply(self, change: Change) -> None:
        """``Store.apply`` for *puts*, *raises* and *topics*."""
        mine = _Entry(change)
        await self._groups.join(mine)
        if mine.error is not None:
            raise mine.error

    async def _write(self, group: list[_Entry]) -> None:
        whole = Change()
        for entry in group:
            whole.puts += entry.change.puts
            whole.raises += entry.change.raises
            whole.topics += entry.change.topics
        try:
            await self._store.apply(whole)
        except Conflict as conflict:
            if len(group) == 1:
                raise
            log.info("ticks", what="written one by one", error=conflict.line())
            for entry in group:
                await self._write_one(entry)

    async def _write_one(self, entry: _Entry) -> None:
        try:
            await self._store.apply(entry.change)
        except Conflict as error:
            entry.error = error


@dataclass(eq=False)
class _Entry:
    change: Change
    error: Conflict | None = None
