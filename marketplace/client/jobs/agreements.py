"""Agreeing to a quote: checked against the job, then signed and funded.

A retry signs the new quote with what is left of the budget: approved amounts and the new ceiling
together never exceed it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread

from marketplace.chain.encoding.utxo import OutRef
from marketplace.client.jobs import quotes
from marketplace.client.jobs.channel_watch import ChannelWatch
from marketplace.client.jobs.job_channels import JobChannels
from marketplace.client.jobs.job_secrets import sealed
from marketplace.client.jobs.quotes import Quote, QuoteRefused, Wanted
from marketplace.client.net.http import Http
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.domain.work.job import JobSpec

Json = dict[str, Any]


@dataclass(frozen=True)
class CheckedQuote:
    """What is about to be agreed to: shown before anything is spent. Money in lovelace; *keep_ms*:
    how long the channel stays open for further jobs.
    """

    job: str
    quote: Quote
    amount: int
    reserve: int
    spent: int
    keep_ms: int = 0

    @property
    def fresh(self) -> bool:
        """Whether a channel has to be opened (one transaction fee)."""
        return self.quote.fresh


Confirm = Callable[[CheckedQuote], Awaitable[bool]]


@dataclass
class Agreements:
    """What one purse agrees to at one market. *keep_ms*: how long its channels stay open for
    further jobs once they are idle; where a provider keeps none, they end at once.
    """

    http: Http
    purse: Purse
    till: Till
    payers: Payers
    channels: JobChannels
    watch: ChannelWatch
    keep_ms: int
    _specs: dict[str, JobSpec] = field(default_factory=dict[str, JobSpec])
    _turns: dict[bytes, anyio.Lock] = field(default_factory=dict[bytes, anyio.Lock])

    def know(self, job: str, spec: JobSpec) -> None:
        """What *job* was posted as: its quotes are checked against this."""
        self._specs[job] = spec

    async def examine(self, view: Json) -> CheckedQuote:
        """The quote of *view*, checked against the job; nothing is signed yet."""
        job = str(view["id"])
        spec = self._spec(view)
        quote = Quote.read(view.get("quote"))
        fresh = {bytes.fromhex(key.name.removeprefix("session-")) for key in self.purse.sessions()}
        held = {payer.session_vk for payer in self.channels.reusable()}
        spent = self.channels.spent(job) + await anyio.to_thread.run_sync(
            self.payers.spent_before, job
        )
        wanted = Wanted(
            job=job,
            spec=spec,
            magic=self.till.chain.magic,
            consumer_vkh=self.purse.signer.key_hash,
            session_vks=frozenset(fresh | held),
            spent=spent,
        )
        quotes.check(quote, wanted, time.time_ns() // 1_000_000)
        if quote.fresh and not self.begun(quote) and self.payers.known(quote.terms.session_vk):
            raise QuoteRefused("the quote calls a channel fresh that this purse has used before")
        if not quote.fresh and quote.terms.session_vk not in held:
            raise QuoteRefused("the quote reuses a channel that this payer does not hold")
        reserve = await self.till.reserve(quote.terms) if quote.fresh else 0
        amount = quote.terms.ceiling + reserve if quote.fresh else await self._lacking(quote)
        keep_ms = min(self.keep_ms, quote.keep_most_ms)
        return CheckedQuote(job, quote, amount, reserve, spent, keep_ms)

    def turn(self, view: Json) -> anyio.Lock:
        """Held from the look at a quote to its acceptance: of two jobs on one kept channel the
        second must count what the first one was promised.
        """
        quote = Quote.read(view.get("quote"))
        if quote.fresh:
            return anyio.Lock()  # nobody else is promised anything of it
        return self._turns.setdefault(quote.terms.session_vk, anyio.Lock())

    def begun(self, quote: Quote) -> bool:
        """This purse signed these terms already: a crash came before the market heard of it."""
        held = self.payers.held(quote.terms.session_vk)
        signed = held.terms.get(quote.terms.lease) if held is not None else None
        return signed is not None and signed.body == quote.signed.body

    async def _lacking(self, quote: Quote) -> int:
        """What a reused channel has to be topped up by, so that it can pay the new ceiling: never
        by more than that, whatever the provider states or the chain's door says that the channel
        holds.
        """
        held = self.payers.held(quote.terms.session_vk)
        if held is not None and held.book.capacity is None:
            await self.watch.confirm(held)  # taken over: the chain was not asked yet
        if held is None or held.book.capacity is None:
            return 0
        open_ceilings = sum(
            lease.cap - lease.approved
            for name, lease in held.book.leases.items()
            if name not in held.final and name != quote.terms.lease
        )
        last = held.book.last  # the provider counts what it stated, signed or not
        stated = last.channel_owed if last is not None else 0
        agreed = sum(lease.terms.ceiling for lease in held.book.leases.values())
        used = max(held.book.spent, min(stated, agreed))
        needed = used + open_ceilings + quote.terms.ceiling
        return min(quote.terms.ceiling, max(0, needed - held.book.capacity))

    async def accept(self, offered: CheckedQuote) -> ChannelPayer:
        """Sign, fund, and tell the market. Repeatable: a channel that is open is not opened
        again.
        """
        quote = offered.quote
        terms = quote.terms
        await self._cap_earlier(offered)
        held = await self._book(quote, offered.amount)
        signed = held.terms.get(terms.lease)
        if signed is None:
            signed = await held.agree(quote.signed, terms.ceiling)
        if quote.fresh and not held.facts.open_tx:
            ref = await self.till.open(terms, offered.amount)
            await held.opened(ref.tx_id.hex(), ref.index, None)
        elif not quote.fresh and offered.amount:
            at = OutRef(bytes.fromhex(held.facts.open_tx), held.facts.index)
            capacity = await self.till.top_up(terms.session_vk, at, offered.amount, terms.asset)
            await held.topped_up(offered.amount, capacity)
        await held.keep_for(offered.keep_ms)
        assert signed.session_signature is not None
        body = {
            "session_signature": signed.session_signature.hex(),
            "channel_tx": held.facts.open_tx if quote.fresh else "",
            "secrets": sealed(self._specs[offered.job].secrets, terms.adapter_vk),
        }
        await self.http.post(f"/v1/leases/{terms.lease}/sign", body, f"sign-{terms.lease}")
        return held

    async def _cap_earlier(self, offered: CheckedQuote) -> None:
        """Earlier leases of the job get no more than the new ceiling leaves of the budget.

        A provider that was given up may come back, or never have gone: what it then asks is not
        signed beyond the budget, however long its lease is said to run.
        """
        terms = offered.quote.terms
        earlier = [
            (held, name)
            for held in self.channels.of(offered.job)
            for name, lease in held.book.leases.items()
            if lease.terms.job == offered.job and name != terms.lease
        ]
        if not earlier:
            return
        spent = [await held.cap(name, 0) for held, name in earlier]
        elsewhere = await anyio.to_thread.run_sync(self.payers.spent_before, offered.job)
        left = self._specs[offered.job].price.budget - terms.ceiling - sum(spent) - elsewhere
        if left < 0:
            raise QuoteRefused("what was spent meanwhile and the ceiling exceed the budget")
        last, name = earlier[-1]
        await last.cap(name, left)

    async def _book(self, quote: Quote, amount: int) -> ChannelPayer:
        terms = quote.terms
        known = self.payers.held(terms.session_vk)
        if known is not None:
            return known
        facts = ChannelFacts(
            session_vk=terms.session_vk,
            market=self.payers.market,
            magic=terms.magic,
            provider=terms.provider,
            asset=terms.asset,
            amount=amount,
            payout=quote.payout,
        )
        return await self.payers.create(facts, self.purse.session(terms.session_vk))

    async def decline(self, view: Json) -> None:
        """The quote is not wanted: the job ends, nothing was paid."""
        lease = str(view["quote"]["lease"])
        await self.http.post(f"/v1/leases/{lease}/decline", {}, f"decline-{lease}")

    def _spec(self, view: Json) -> JobSpec:
        job = str(view["id"])
        if job not in self._specs:
            self._specs[job] = JobSpec.from_wire(view["spec"])
        return self._specs[job]
