"""Which of the channels that this process holds a job ran on, and what it was promised there."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.client.jobs.core.state import OwnChannel, OwnLease
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.payers import Payers
from marketplace.domain.money.channel_stage import ChannelStage


@dataclass(frozen=True)
class Kept:
    """A channel that stays open: for how long once it is idle, and the lovelace that come home
    then.
    """

    session_vk: bytes
    keep_ms: int
    comes_home: int


@dataclass(frozen=True)
class JobChannels:
    """The channels of one payer, asked by job."""

    payers: Payers

    def of(self, job: str) -> list[ChannelPayer]:
        """Those that this process holds and *job* ran on, or was to."""
        return [
            held
            for held in self.payers.all
            if any(lease.terms.job == job for lease in held.book.leases.values())
        ]

    def kept(self, job: str) -> list[Kept]:
        """Channels of *job* that stay open until they were idle, handed on or not. Reads books."""
        mine = [(held.facts, held.book, held.end_sent) for held in self.of(job)]
        lent = [
            (one.facts, one.book, one.end_sent)
            for one in self.payers.lent
            if any(lease.terms.job == job for lease in one.book.leases.values())
        ]
        return [
            Kept(book.session_vk, facts.keep_ms, facts.amount - book.signed)
            for facts, book, over in (*mine, *lent)
            if facts is not None
            and facts.keep_ms
            and facts.state is not ChannelStage.ENDED
            and not over
        ]

    def own(self, job: str) -> tuple[OwnChannel, ...]:
        """The channels of *job* as the own books have them now: what is decided from."""
        return tuple(_own(held, job) for held in self.of(job))

    def told(self, job: str) -> int:
        """:meth:`spent`, and on channels that were handed on to other processes. Reads books."""
        return self.spent(job) + sum(
            loaded.cost(lease.approved)
            for loaded in self.payers.lent
            for lease in loaded.book.leases.values()
            if lease.terms.job == job
        )

    def spent(self, job: str) -> int:
        """What all leases of the job were approved for, on whichever channels, with the router's
        fee.
        """
        return sum(
            held.facts.cost(lease.approved)
            for held in self.payers.all
            for lease in held.book.leases.values()
            if lease.terms.job == job
        )

    def works(self, job: str) -> frozenset[bytes]:
        """The work that *job*'s leases were agreed for: one, unless somebody mixed jobs up."""
        return frozenset(
            lease.terms.work
            for held in self.payers.all
            for lease in held.book.leases.values()
            if lease.terms.job == job
        )

    def reusable(self) -> list[ChannelPayer]:
        """Open channels that this process holds, keeps, and has not asked to end."""
        return [
            held
            for held in self.payers.all
            if held.facts.keep_ms and held.facts.usable
            and not held.end_sent and not held.book.stopped and not held.facts.router
        ]  # fmt: skip


def unfinished(held: ChannelPayer) -> list[str]:
    """The jobs on it that may not be over. A cluster's member that was lost may still be placed
    again, and be on no other channel yet.
    """
    return [
        lease.terms.job
        for name, lease in held.book.leases.items()
        if name not in held.final or not held.end_sent or lease.orders is not None
    ]


def _own(held: ChannelPayer, job: str) -> OwnChannel:
    leases = tuple(
        OwnLease(
            lease=name,
            ceiling=lease.terms.ceiling,
            cap=lease.cap,
            approved=held.facts.cost(lease.approved),
            over=name in held.final,
        )
        for name, lease in held.book.leases.items()
        if lease.terms.job == job
    )
    ended = held.facts.state is ChannelStage.ENDED
    return OwnChannel(held.session_vk, held.facts.open_tx, ended, held.end_sent, leases)
