"""Books of a purse's channels as they lie there, read before or without their locks: who may have
which.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from marketplace.client.net.link import market_of
from marketplace.client.payer import journal
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.loaded import Loaded
from marketplace.disk import JournalDamaged

log = structlog.get_logger("tally.payer")


@dataclass(frozen=True)
class Shelf:
    """The books in *folder*, as far as they are of channels at *market* on the network *magic*."""

    folder: Path
    market: str
    magic: int

    def ours(self, facts: ChannelFacts) -> bool:
        """Opened at this market, whichever way its address was written."""
        return facts.magic == self.magic and market_of(facts.market) == market_of(self.market)

    def kept(self, session_vk: bytes) -> bool:
        """Whether it is open and kept for further jobs."""
        try:
            known = journal.peek(self.folder, session_vk)
        except JournalDamaged as damaged:
            log.error("book_damaged", channel=session_vk.hex(), why=damaged.message)
            return False
        facts = known.facts
        if facts is None or known.end_sent or known.book.stopped:
            return False
        return bool(facts.keep_ms) and facts.usable and self.ours(facts)

    def facts(self, session_vk: bytes) -> ChannelFacts | None:
        """None for a damaged one, which is said where it is taken."""
        known = self._known(session_vk)
        return known.facts if known is not None else None

    def spent(self, job: str, but: Collection[bytes]) -> int:
        """What *job*'s leases were approved for on all channels *but* those, with the router's
        fee.
        """
        return sum(
            loaded.cost(lease.approved)
            for session_vk in journal.channels_in(self.folder)
            if session_vk not in but
            for loaded in (journal.peek(self.folder, session_vk),)
            for lease in loaded.book.leases.values()
            if lease.terms.job == job
        )

    def stays(self, session_vk: bytes) -> bool:
        """Whether its holder does not hand it on: a hop that pays, or the channel of a cluster's
        member, whose orders are signed where it is held.
        """
        known = self._known(session_vk)
        if known is None:
            return False
        router = known.facts is not None and bool(known.facts.router)
        return router or known.has_member

    def _known(self, session_vk: bytes) -> Loaded | None:
        with suppress(JournalDamaged):
            return journal.peek(self.folder, session_vk)
        return None
