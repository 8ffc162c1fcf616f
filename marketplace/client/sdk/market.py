"""The SDK: one market, one purse, one chain.

    async with Market("http://localhost:8000", wallet=Purse.load()) as market:
        job = await market.run("job.yaml")
        async for line in job.logs():
            print(line)
        print(await job.invoice())

The payer runs inside, for as long as the ``async with`` lasts; ``tally payer run`` takes over jobs
that outlive it. The chain is the client's own (*chain_url*, ``TALLY_CHAIN_URL``); what the market
says about money is never taken on trust. Reads need no purse.
:class:`marketplace.client.sdk.sync.Market` is the same without ``async``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import anyio
import httpx
import structlog

from marketplace.chain.errors import ChainFault
from marketplace.client.clusters.keeping import Keeping
from marketplace.client.jobs.core.quotes import CheckedQuote, Quote
from marketplace.client.jobs.core.route_mode import RouteMode
from marketplace.client.jobs.job_channels import unfinished
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.jobs.runner import Runner
from marketplace.client.jobs.self_renewal import SelfRenewal
from marketplace.client.net.answers import JobAnswer
from marketplace.client.payer import handing_on
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.handing_on import HandedOn
from marketplace.client.payer.journal import ChannelHeld
from marketplace.client.payer.missed_receipts import HttpReceipts
from marketplace.client.payer.payers import Payers
from marketplace.client.sdk import gang
from marketplace.client.sdk.asking import Asking, Confirm, Shown
from marketplace.client.sdk.job import Job
from marketplace.client.sdk.read_only import DEFAULT_MARKET, PurseNeeded, Reader
from marketplace.client.wallet import second_output
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.patience import CLOSE_AFTER_S
from marketplace.client.wallet.purse import Purse
from marketplace.disk import JournalDamaged
from marketplace.domain.errors import Fault, Halt, Refusal
from marketplace.domain.money.keep import KEEP, read_keep
from marketplace.domain.work.job import JobSpec

log = structlog.get_logger("tally.client")
_FOLLOW_CHAIN_S: Final = 5.0
_SECOND_EVERY: Final = 12  # a minute: one request, as long as nothing is wrong
_LEAVE_S: Final = 30.0
_LAST_WORDS_S: Final = 5.0


class WrongNetwork(Refusal):
    """The market and the chain of this client are different networks."""

    code = "WRONG_NETWORK"
    remedy = "point --chain-url at the network of the market"


class Market(Reader):
    """A market and, with a *wallet*, everything that a consumer does there."""

    def __init__(
        self,
        url: str | None = None,
        *,
        wallet: Purse | None = None,
        chain_url: str | None = None,
        project_id: str | None = None,
        submit_urls: Sequence[str] | None = None,
        token: str = "",
        keep: str = KEEP,
        close_after_s: float = CLOSE_AFTER_S,
        route: RouteMode = RouteMode.AUTO,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """*token*: an API key instead of signing in; *keep*: how long
        an idle channel stays open for further jobs (``0``: it ends at once);
        *submit_urls*: further doors through which transactions are sent, too
        (``TALLY_SUBMIT_URLS``); *close_after_s*: how long a provider may leave an End unanswered
        before its channel is closed; *route*: whether jobs are paid over the market's router.
        """
        super().__init__(
            url,
            wallet=wallet,
            chain_url=chain_url,
            project_id=project_id,
            submit_urls=submit_urls,
            token=token,
            transport=transport,
        )
        if not structlog.is_configured():  # standard output belongs to whoever imports us
            structlog.configure(
                wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
                logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            )
        self._keep_ms = read_keep(keep)
        self._close_after_ms = int(close_after_s * 1000)
        self._route = route
        self._leaving: set[bytes] = set()
        self._runner: Runner | None = None
        self._keeping: Keeping | None = None
        self._tasks: Any = None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._tasks is not None:
            try:
                with anyio.move_on_after(_LAST_WORDS_S):
                    await self.payers.last_words()
            finally:
                self._tasks.cancel_scope.cancel()
        try:
            return await self._stack.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if error is not None and group.exceptions == (error,):
                return False  # the caller's own error, as it was raised
            raise

    # ---- the connection --------------------------------------------------------------------

    async def _open(self, purse: Purse) -> None:
        network = await self.knock()
        chain = await self.chain()
        if network.get("magic", chain.magic) != chain.magic:
            raise WrongNetwork(
                f"the market is on network {network.get('magic')}, the chain is {chain.magic}"
            )
        await super()._open(purse)
        payers = Payers(purse.channels, self.url, chain.magic, HttpReceipts(self.http.get))
        till = Till(purse, chain)
        self._runner = Runner(
            self.http, purse, till, payers, self._keep_ms, self._close_after_ms, self._route
        )
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._tasks.start_soon(payers.run)
        self._tasks.start_soon(self._follow_chain, till)
        self._tasks.start_soon(SelfRenewal(self._runner).run)
        self._keeping = Keeping(self._runner, self._tasks)
        self._tasks.start_soon(self._keeping.run)

    async def _on_mainnet(self) -> bool:
        return (await self.chain()).mainnet

    async def _follow_chain(self, till: Till) -> None:
        looks = 0
        while True:
            try:
                await till.follow()
                if looks % _SECOND_EVERY == 0 and self._runner is not None:
                    await second_output.look(till, self.payers, till.purse.channels)
                looks += 1
            except JournalDamaged:
                raise
            except (ChainFault, HandedOn, Refusal) as error:
                log.info("chain_unread", why=error.message)
            await anyio.sleep(_FOLLOW_CHAIN_S)

    @property
    def runner(self) -> Runner:
        """Posting, funding and following; :class:`PurseNeeded` without a wallet."""
        if self._runner is None:
            raise PurseNeeded("no wallet was given, or the market was not entered")
        return self._runner

    @property
    def payers(self) -> Payers:
        """The payer of this process."""
        return self.runner.payers

    def job(self, name: str) -> Job:
        """A job that exists, by its id; what was spent on it comes from the own books."""
        return Job(self.http, name, self._runner, self.chain, self.session_keys)

    # ---- running ---------------------------------------------------------------------------

    async def run(
        self,
        job: Path | str | JobSpec | LoadedJob,
        *,
        confirm: Confirm | None = None,
        shown: Shown | None = None,
        key: str = "",
    ) -> Job:
        """Post, check the quote, fund, and start; the job goes on in the background.

        *confirm* is asked, with what it will cost, before anything is signed; without it the job's
        own limits decide. While it takes its time other commands of the purse may post: it is asked
        again if more has to be paid in then. *shown* is told what is agreed to where nobody is
        asked. *key* makes the posting idempotent.
        """
        loaded = await self.pinned(self._load(job))
        asking = Asking(confirm, shown)
        while True:
            try:
                return await self._run(loaded, asking, key)
            except ChannelHeld as stuck:  # whoever has it does not hand it on: one of our own
                log.warning("channel_not_handed_on", why=stuck.message)
                key = f"{key}-alone" if key else ""

    async def _run(self, loaded: LoadedJob, asking: Asking, key: str) -> Job:
        seen: JobAnswer | None = None
        while True:
            async with self._posting():
                view = seen or await self.runner.post(loaded, key=key)
                if view["state"] != "QUOTED" or not view["quote"]:
                    view = await self.runner.quoted(view["id"])
                asked = await self._agreed(view, asking) if view["state"] == "QUOTED" else None
            if asked is None:
                return self.attach(view["id"])
            async with self._given_up(view["id"]):
                if not await asking.ask(asked):
                    await self.runner.answer(asked, yes=False)
                    raise QuoteDeclined(f"{view['id']}: the quote was declined")
            seen = await self.runner.view(view["id"])

    async def _agreed(self, view: JobAnswer, asking: Asking) -> CheckedQuote | None:
        """Agrees to the quote of *view*; or what somebody has to be asked about first."""
        runner = self.runner
        try:
            async with self._given_up(view["id"]), runner.agreements.turn(view):
                offered = await runner.consider(view)
                if asking.has_to_be_asked(offered):
                    return offered
                await asking.tell(offered)
                await runner.answer(offered, yes=True)
        except ChannelHeld:
            await runner.agreements.decline(Quote.read(view["quote"]).terms.lease)
            raise
        await runner.give_back_idle()
        return None

    @asynccontextmanager
    async def _given_up(self, name: str) -> AsyncGenerator[None]:
        """A refusal is the end of the job here; after a fault its quote stands, and accepting it
        again is safe.
        """
        try:
            yield
        except (ChannelHeld, Fault):
            raise
        except Refusal:
            self._let_go(name)
            raise

    @asynccontextmanager
    async def _posting(self) -> AsyncGenerator[None]:
        """This command's turn to post and to agree; who keeps no channel waits for nobody."""
        if not self._keep_ms:
            yield
            return

        async def waits() -> None:
            await self.payers.waits("for another command of this purse, which agrees to a job")

        async with handing_on.posting(self.runner.purse.channels, waits):
            yield

    async def run_gang(
        self,
        job: Path | str | JobSpec | LoadedJob,
        *,
        confirm: gang.ConfirmAll | None = None,
        waits: gang.OnWait | None = None,
        key: str = "",
    ) -> gang.Gang:
        """Like :meth:`run` for a job file with a gang: all members are quoted and checked before
        any is signed. *waits* is told where it has to wait for places. A cluster's members are
        ordered what they do for as long as this lasts.
        """
        runner, loaded = self.runner, await self.pinned(self._load(job))
        posted = await gang.post(runner, loaded, key)
        names = [member["id"] for member in posted["members"]]
        try:
            if not await gang.agree(runner, posted, confirm, waits):
                raise QuoteDeclined(f"{posted['id']}: the quotes were declined")
        except Refusal:
            for name in names:
                self._let_go(name)
            raise
        keeper = None
        if loaded.spec.cluster is not None and self._keeping is not None:
            keeper = self._keeping.keep(posted["id"], names, loaded.spec)
        roles = gang.roles(loaded.spec)
        jobs = [self.attach(name) for name in names]
        return gang.Gang(posted["id"], jobs, self.http, keeper, roles)

    def _let_go(self, name: str) -> None:
        if self.runner.channels.of(name):
            self.attach(name)  # its channel may be open: what is in it has to come home

    def attach(self, name: str) -> Job:
        """A job of this purse, followed by this process from now on: retries, ends, settlement."""
        handle = self.job(name)
        self._tasks.start_soon(self._follow, name, handle)
        return handle

    async def _follow(self, name: str, handle: Job) -> None:
        while True:
            try:
                handle.seen(await self.runner.follow(name, handle.saw))
                self._watch_ends(self.runner.channels.of(name))
                return
            except Halt:
                raise  # the own books cannot be kept: this process pays for nobody any more
            except Fault as fault:
                log.warning("market_away", job=name, why=fault.message)
                await anyio.sleep(1.0)
            except Refusal as refusal:
                handle.failed(refusal)
                return

    async def resume_all(self) -> list[str]:
        """Take every channel that nobody holds, and follow its unfinished jobs, of channels that
        came back from another command too: a daemon's start, and again and again.
        """
        runner = self.runner
        purse = self._purse()
        begun: list[str] = []
        for held in await runner.payers.take_all(purse.session):
            await runner.watch.resume(held)
            for job in unfinished(held):
                if job not in begun:
                    begun.append(job)
                    self.attach(job)
            if held.end_sent or set(held.terms) <= held.final:
                self._watch_ends([held])
        for held in runner.payers.all:
            for name, lease in held.book.leases.items():
                job = lease.terms.job
                if name not in held.final and job not in begun and not runner.knows(job):
                    begun.append(job)
                    self.attach(job)
        return begun

    def _watch_ends(self, ending: list[ChannelPayer]) -> None:
        """Look after channels whose jobs are over until they have ended on chain or, kept, until a
        block has shown them: a job can be over before its channel's first block.
        """
        for held in ending:
            if held.session_vk not in self._leaving:
                self._leaving.add(held.session_vk)
                self._tasks.start_soon(self._watch_end, held)

    async def _watch_end(self, held: ChannelPayer) -> None:
        """Soon at first, seldom later: a lost provider's close period may take a day."""
        pause = 1.0
        try:
            while _looked_after(held) and self.payers.held(held.session_vk) is held:
                with self.payers.pinned(held.session_vk):
                    if await self.runner.watch.confirm(held):
                        return
                await anyio.sleep(pause)
                pause = min(pause * 1.5, _LEAVE_S)
        finally:
            self._leaving.discard(held.session_vk)

    def listen(self, listener: Callable[[Paid], Awaitable[None]]) -> Callable[[], None]:
        """Hear every tick, note and stage of this process's channels."""
        return self.payers.listen(listener)


def _looked_after(held: ChannelPayer) -> bool:
    """Its end was asked for, or it was opened and the chain has not shown it yet."""
    return held.end_sent or (bool(held.facts.open_tx) and held.book.capacity is None)


class QuoteDeclined(Refusal):
    """The caller did not want the quote; nothing was spent."""

    code = "QUOTE_DECLINED"
    remedy = "nothing was signed or paid"


__all__ = [
    "DEFAULT_MARKET",
    "CheckedQuote",
    "Job",
    "Market",
    "Purse",
    "PurseNeeded",
    "QuoteDeclined",
    "WrongNetwork",
]
