"""Agreeing to a quote: checked against the job, then signed and funded.

A retry signs the new quote with what is left of the budget: approved amounts and the new ceiling
together never exceed it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import anyio.to_thread
import structlog

from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import FundsShort
from marketplace.client.jobs.channel_watch import ChannelWatch
from marketplace.client.jobs.core import agreeing, quotes
from marketplace.client.jobs.core.effects import (
    Allow,
    BeginRoute,
    ExpectRoute,
    KeepBook,
    KeepOpen,
    OpenChannel,
    Sign,
    Step,
    TellMarket,
    TopUp,
)
from marketplace.client.jobs.core.quotes import CheckedQuote, Quote, QuoteRefused, Wanted
from marketplace.client.jobs.hops import Hops, RouteMode
from marketplace.client.jobs.job_channels import JobChannels
from marketplace.client.jobs.job_secrets import sealed, secrets_here
from marketplace.client.net.answers import JobAnswer
from marketplace.client.net.http import Http
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Halt, Refusal, TallyError
from marketplace.domain.money.chain_fees import job_fees
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.work.cluster_store import KEY, key_of
from marketplace.domain.work.job import JobSpec

log = structlog.get_logger("tally.client")
ROOM: Final = 5_000_000
"""Lovelace: about twenty times the fee of a top-up, so that those are a twentieth of what flows."""
TOGETHER: Final = 12
"""Channels that one transaction opens: with more of them providers would not take its bytes, by
which they begin before a block has it (``handed_open.MOST_BYTES``)."""
_BLOCK_S: Final = 60.0
_LOOK_S: Final = 0.5


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
    hops: Hops
    keep_ms: int
    _specs: dict[str, JobSpec] = field(default_factory=dict[str, JobSpec])
    _turns: dict[bytes, anyio.Lock] = field(default_factory=dict[bytes, anyio.Lock])

    def know(self, job: str, spec: JobSpec) -> None:
        """What *job* was posted as: its quotes are checked against this."""
        self._specs[job] = spec

    async def examine(self, view: JobAnswer) -> CheckedQuote:
        """The quote of *view*, checked against the job; nothing is signed yet."""
        job = view["id"]
        spec = self._spec(view)
        quote = Quote.read(view["quote"])
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
            hops=self.hops.own(),
            routed_only=self.hops.mode is RouteMode.ROUTED,
            works=self.channels.works(job),
        )
        quotes.check(quote, wanted, time.time_ns() // 1_000_000)
        if quote.fresh and not self.begun(quote) and self.payers.known(quote.terms.session_vk):
            raise QuoteRefused("the quote calls a channel fresh that this purse has used before")
        if quote.route is not None:
            return CheckedQuote(job, quote, 0, 0, spent)
        if not quote.fresh and quote.terms.session_vk not in held:
            raise QuoteRefused("the quote reuses a channel that this payer does not hold")
        keep_ms = min(self.keep_ms, quote.keep_most_ms)
        ceiling = quote.terms.ceiling
        reserve = await self.till.reserve(quote.terms, ceiling) if quote.fresh else 0
        if quote.fresh:
            amount = quote.terms.ceiling + reserve + (await self._room() if keep_ms else 0)
        else:
            lacking = await self._lacking(quote)
            amount = lacking + await self._room() if lacking else 0
        fees = None  # no transaction: the chain is not asked
        if amount:
            known = await self.till.fees()
            fees = job_fees(known, quote.minimum, opens=quote.fresh, topped_up=not quote.fresh)
        has_hop = bool(wanted.hops)
        return CheckedQuote(job, quote, amount, reserve, spent, fees, keep_ms, has_hop)

    @asynccontextmanager
    async def turn(self, view: JobAnswer) -> AsyncGenerator[None]:
        """Held from the look at a quote to its acceptance: of two jobs on one kept channel the
        second must count what the first one was promised, in whichever process. A channel that
        another process holds is handed on by it; :class:`ChannelHeld` if it does not.
        """
        try:
            quote = Quote.read(view["quote"])
        except Refusal:
            yield  # nothing is agreed to that cannot be read
            return
        session_vk = quote.terms.session_vk
        if quote.fresh or quote.route is not None:  # the key is this lease's alone
            with self.payers.pinned(session_vk):
                yield
            return
        async with self._turns.setdefault(session_vk, anyio.Lock()):
            with self.payers.pinned(session_vk):
                if session_vk in self.payers.others and self.payers.held(session_vk) is None:
                    session = self.purse.session(session_vk)
                    await self.watch.resume(await self.payers.obtain(session_vk, session))
                yield

    async def open_together(self, offers: Sequence[CheckedQuote]) -> None:
        """Sign all of *offers*, then open their channels by one transaction (by more where they do
        not fit into one), before any is accepted. A purse that holds too little opens none:
        FundsShort. What else goes wrong is left to each alone (:meth:`accept`), and so is what has
        a channel, or is paid in a token. QuoteRefused for one that has lapsed.
        """
        now = time.time_ns() // 1_000_000
        for one in offers:
            if one.quote.terms.expires_at_ms <= now:
                raise QuoteRefused(f"lease {one.quote.terms.lease}: it has expired")
        with ExitStack() as pins:
            anew: list[tuple[CheckedQuote, int]] = []
            for one in offers:
                pins.enter_context(self.payers.pinned(one.quote.terms.session_vk))
                anew += [(one, amount) for amount in await self._opens(one)]
            for part in (anew[at : at + TOGETHER] for at in range(0, len(anew), TOGETHER)):
                await self._open(part)

    async def _opens(self, offered: CheckedQuote) -> tuple[int, ...]:
        """Signs what an own channel in ADA is to be opened for; what is put into it, if one is."""
        if offered.quote.terms.asset or not offered.fresh:
            return ()
        budget = self._specs[offered.job].price.budget
        for step in agreeing.steps(offered, self.channels.own(offered.job), budget, 0):
            match step:
                case KeepBook() | Sign():
                    await self._perform(offered, step)
                case OpenChannel(amount):
                    return (amount,)
                case _:
                    break
        return ()

    async def _open(self, wanted: Sequence[tuple[CheckedQuote, int]]) -> None:
        try:
            refs = await self.till.open_all([(one.quote.terms, put) for one, put in wanted])
        except (FundsShort, Halt):
            raise
        except TallyError as error:
            log.warning("not_opened_together", count=len(wanted), why=error.line())
            return
        for (one, _), ref in zip(wanted, refs, strict=True):
            held = self._channel(one.quote.terms.session_vk)
            await held.opened(ref.tx_id.hex(), ref.index, None)

    def begun(self, quote: Quote) -> bool:
        """This purse signed these terms already: a crash came before the market heard of it."""
        held = self.payers.held(quote.terms.session_vk)
        signed = held.terms.get(quote.terms.lease) if held is not None else None
        return signed is not None and signed.body == quote.signed.body

    async def _lacking(self, quote: Quote) -> int:
        """What a reused channel has to be topped up by: see :func:`agreeing.lacking`. One that no
        block has yet holds what was put in; more is added once a block has it.
        """
        held = self.payers.held(quote.terms.session_vk)
        if held is None:
            return 0
        if held.book.capacity is None:
            await self.watch.confirm(held)  # taken over: the chain was not asked yet
        book = held.book
        if book.capacity is None and held.terms:
            first = next(iter(held.terms.values())).terms
            reserve = await self.till.reserve(first, first.ceiling)
            book = replace(book, capacity=max(0, held.facts.amount - reserve))
        more = agreeing.lacking(book, held.final, quote.terms)
        if not more:
            return 0
        with anyio.move_on_after(_BLOCK_S):
            while held.book.capacity is None:
                await self.watch.confirm(held)
                await anyio.sleep(_LOOK_S)
        return more

    async def _room(self) -> int:
        """Put aside in a kept channel for jobs to come, so that they need no transaction."""
        return min(ROOM, await self.till.balance() // 4)

    async def accept(self, offered: CheckedQuote) -> ChannelPayer:
        """Sign, fund, and tell the market, step by step as :mod:`agreeing` has them. Repeatable: a
        channel that is open is not opened again.
        """
        with self.payers.pinned(offered.quote.terms.session_vk):
            return await self._accept(offered)

    async def _accept(self, offered: CheckedQuote) -> ChannelPayer:
        job = offered.job
        frozen = agreeing.freezes(offered, self.channels.own(job))
        for freeze in frozen:
            await self._perform(offered, freeze)
        elsewhere = (
            0 if not frozen else await anyio.to_thread.run_sync(self.payers.spent_before, job)
        )
        budget = self._specs[job].price.budget
        for step in agreeing.steps(offered, self.channels.own(job), budget, elsewhere):
            await self._perform(offered, step)
        return self._channel(offered.quote.terms.session_vk)

    async def _perform(self, offered: CheckedQuote, step: Step) -> None:
        quote, terms = offered.quote, offered.quote.terms
        match step:
            case Allow(session_vk, lease, more):
                await self._channel(session_vk).cap(lease, more)
            case KeepBook():
                await self._book(quote, offered.amount)
            case Sign(cap):
                member = self._specs[offered.job].cluster is not None
                await self._channel(terms.session_vk).agree(quote.signed, cap, member=member)
            case OpenChannel(amount):
                if self._channel(terms.session_vk).facts.state is ChannelStage.ENDED:
                    raise QuoteRefused("the channel of this quote was given up meanwhile")
                ref = await self.till.open(terms, amount)
                await self._channel(terms.session_vk).opened(ref.tx_id.hex(), ref.index, None)
            case TopUp(amount):
                held = self._channel(terms.session_vk)
                at = OutRef(bytes.fromhex(held.facts.open_tx), held.facts.index)
                capacity = await self.till.top_up(terms.session_vk, at, amount, terms.asset)
                await held.topped_up(amount, capacity)
            case KeepOpen(ms):
                await self._channel(terms.session_vk).keep_for(ms)
            case ExpectRoute() | BeginRoute():
                await self.hops.perform(quote, step)
            case TellMarket():
                await self._tell(offered)

    def _channel(self, session_vk: bytes) -> ChannelPayer:
        """A channel that the steps before made sure of; :class:`QuoteRefused` if this process let
        go of it meanwhile.
        """
        held = self.payers.held(session_vk)
        if held is None:
            raise QuoteRefused("the channel is not held by this process any more")
        return held

    async def _tell(self, offered: CheckedQuote) -> None:
        terms = offered.quote.terms
        held = self._channel(terms.session_vk)
        signed = held.terms[terms.lease]
        assert signed.session_signature is not None
        body = {
            "session_signature": signed.session_signature.hex(),
            "channel_tx": held.facts.open_tx if offered.fresh else "",
            "secrets": self._sealed(self._specs[offered.job], terms.adapter_vk),
        }
        if offered.fresh and offered.quote.allowance:
            open_tx = await self.till.open_bytes(bytes.fromhex(held.facts.open_tx))
            body |= {"open_tx": open_tx.hex()} if open_tx else {}
        await self.http.post(f"/v1/leases/{terms.lease}/sign", body, f"sign-{terms.lease}")

    def _sealed(self, spec: JobSpec, adapter_vk: bytes) -> dict[str, str]:
        """The job's secrets; of a store that the market keeps, the key that follows from ours."""
        values = secrets_here(spec.secrets)
        if spec.store is not None and spec.store.name:
            values[KEY] = key_of(self.purse.signer.seed, spec.store.name)
        return sealed(values, adapter_vk)

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
            hop=quote.route.hop.hex() if quote.route is not None else "",
            route_bps=quote.route.route.route_bps if quote.route is not None else 0,
        )
        return await self.payers.create(facts, self.purse.session(terms.session_vk))

    async def decline(self, lease: str) -> None:
        """The quote of *lease* is not wanted: the job ends, nothing was paid."""
        await self.http.post(f"/v1/leases/{lease}/decline", {}, f"decline-{lease}")

    def _spec(self, view: JobAnswer) -> JobSpec:
        job = view["id"]
        if job not in self._specs:
            self._specs[job] = JobSpec.from_wire(view["spec"])
        return self._specs[job]
