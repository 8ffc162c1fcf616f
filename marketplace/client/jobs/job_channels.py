"""Which of the channels that this process holds a job ran on, and what it was promised there."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.payers import Payers
from marketplace.domain.money.channel_stage import ChannelStage


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

    def kept(self, job: str) -> list[ChannelPayer]:
        """Those of :meth:`of` that stay open once *job* is over, until they were idle."""
        return [
            held
            for held in self.of(job)
            if held.facts.keep_ms
            and held.facts.state is not ChannelStage.ENDED
            and not held.end_sent
        ]

    def spent(self, job: str) -> int:
        """What all leases of the job were approved for, on whichever channels."""
        return sum(
            lease.approved
            for held in self.payers.all
            for lease in held.book.leases.values()
            if lease.terms.job == job
        )

    def reusable(self) -> list[ChannelPayer]:
        """Open channels that this process holds, keeps, and has not asked to end."""
        return [
            held
            for held in self.payers.all
            if held.facts.keep_ms and held.facts.state is ChannelStage.OPEN and not held.end_sent
            and not held.book.stopped
        ]  # fmt: skip
