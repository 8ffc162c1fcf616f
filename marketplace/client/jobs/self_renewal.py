"""Leases that are renewed by themselves, by the rule in their payer's own book: whoever pays for a
job asks, tops its channel up and signs, again and again, while nobody is there.

A provider that will not go on is told of at once and asked again until the lease ends; by then it
has what the rule keeps in hand, and nothing more is paid in for it.
"""

from __future__ import annotations

from typing import Final

import anyio

from marketplace.client.jobs.core.quotes import QuoteRefused
from marketplace.client.jobs.renewals import agree, ask, told_again
from marketplace.client.jobs.runner import Runner
from marketplace.client.net.clock import Stamp
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.decide import LeaseBook
from marketplace.client.payer.renewal_rule import RenewalRule
from marketplace.domain.errors import Fault, Halt, Refusal
from marketplace.domain.units import most_owed, show_duration

LOOK_S: Final = 1.0


class SelfRenewal:
    """The renewals of one process: of the jobs that it follows, on the channels that it holds."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._not_before_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await anyio.sleep(LOOK_S)

    async def look(self) -> None:
        """Renew what is due, one after the other."""
        for held in self._runner.payers.all:
            for name, lease in held.book.leases.items():
                now_ms = Stamp.now().mono_ms
                if name in held.final or now_ms < self._not_before_ms.get(name, 0):
                    continue
                if lease.rule and lease.is_due(now_ms) and self._runner.follows(lease.terms.job):
                    await self._try(held, lease, lease.rule, now_ms)

    async def _try(
        self, held: ChannelPayer, lease: LeaseBook, rule: RenewalRule, now_ms: int
    ) -> None:
        name = lease.terms.lease
        try:
            await self._renew(held, lease, rule)
        except Halt:
            raise
        except (Fault, Refusal) as error:
            answered = isinstance(error, Refusal)
            self._not_before_ms[name] = now_ms + rule.again_ms(answered=answered)
            await self._tell(held, name, "not_renewed", error.code, error.message)
        else:
            self._not_before_ms.pop(name, None)
            longest = show_duration(held.book.leases[name].terms.max_duration_ms)
            await self._tell(held, name, "renewed", "", f"it may run for {longest} in all")

    async def _renew(self, held: ChannelPayer, lease: LeaseBook, rule: RenewalRule) -> None:
        terms, duration_ms = lease.terms, rule.for_ms
        if lease.known_ms:
            if await told_again(self._runner, held, terms.lease):
                return
            duration_ms = terms.max_duration_ms - lease.known_ms
        budget = min(
            rule.budget(terms), most_owed(duration_ms, terms.units_milli, terms.rate_micro)
        )
        offered = await ask(self._runner, terms.job, duration_ms, budget)
        if lease.known_ms and offered.after.max_duration_ms > terms.max_duration_ms:
            # Whoever hides what was signed would have the channel filled again and again.
            raise QuoteRefused("it would be for longer than what was signed and not taken")
        await agree(self._runner, offered)

    async def _tell(self, held: ChannelPayer, lease: str, kind: str, code: str, text: str) -> None:
        spent = held.book.leases[lease].approved
        await self._runner.payers.tell(Paid(kind, held.session_vk, lease, spent, code, text))
