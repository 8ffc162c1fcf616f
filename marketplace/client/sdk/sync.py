"""The SDK without ``async``: the same objects, driven by an event loop in a thread of their own.

    with Market("http://localhost:8000", wallet=Purse.load()) as market:
        job = market.run("job.yaml")
        for line in job.logs():
            print(line)
        print(job.invoice())

Every method is the asynchronous one of the same name, called through the portal: one source, two
faces. The payer goes on in the background between calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.net.answers import (
    ExplainAnswer,
    JobAnswer,
    NewLinkAnswer,
    OfferAnswer,
    OutputAnswer,
    QuoteAnswer,
    StoryAnswer,
)
from marketplace.client.sdk import job as handle
from marketplace.client.sdk import market
from marketplace.client.sdk.job import KeptChannel
from marketplace.client.sdk.ports import DAY_MS
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.evidence import Evidence
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.keep import KEEP
from marketplace.domain.work.job import JobSpec

T = TypeVar("T")


def _each(portal: BlockingPortal, source: AsyncIterator[T]) -> Iterator[T]:
    """The items of *source*, one call into the loop for each."""

    async def following() -> tuple[bool, T | None]:
        try:
            return True, await anext(source)
        except StopAsyncIteration:
            return False, None

    while True:
        more, item = portal.call(following)
        if not more:
            return
        yield item  # pyright: ignore[reportReturnType] -- more says that it is one


class Job:
    """:class:`marketplace.client.sdk.job.Job`, blocking."""

    def __init__(self, portal: BlockingPortal, job: handle.Job) -> None:
        self._portal = portal
        self._job = job

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def view(self) -> JobAnswer:
        """The market's latest picture of it."""
        return self._job.view

    @property
    def state(self) -> str:
        """As last seen."""
        return self._job.state

    @property
    def reason(self) -> str:
        """Why it ended; empty while it has not."""
        return self._job.reason

    @property
    def exit_code(self) -> int | None:
        """Of the workload."""
        return self._job.exit_code

    @property
    def completed(self) -> bool:
        """It ended as it should."""
        return self._job.completed

    @property
    def spent(self) -> int:
        """Lovelace approved so far."""
        return self._job.spent

    def refresh(self) -> JobAnswer:
        """Ask the market now."""
        return self._portal.call(self._job.refresh)

    def wait(self) -> JobAnswer:
        """Until it has ended."""
        return self._portal.call(self._job.wait)

    def running(self) -> JobAnswer:
        """Until its workload runs, or it has ended before."""
        return self._portal.call(self._job.running)

    def stop(self) -> JobAnswer:
        """Ask for its end."""
        return self._portal.call(self._job.stop)

    def settled(self, within_s: float = 60.0) -> bool:
        """Whether its channels have ended on chain in time."""
        return self._portal.call(self._job.settled, within_s)

    @property
    def kept(self) -> list[KeptChannel]:
        """Its channels that stay open for the next job."""
        return self._job.kept

    def logs(self, *, follow: bool = True) -> Iterator[str]:
        """Lines of its output."""
        return _each(self._portal, self._job.logs(follow=follow))

    def events(self) -> Iterator[StoryAnswer]:
        """Its story as it happens."""
        return _each(self._portal, self._job.events())

    def execute(self, command: list[str]) -> tuple[int, str]:
        """Run *command* inside the workload."""
        return self._portal.call(self._job.execute, command)

    def forward(self, port: int, local: int = 0) -> AbstractContextManager[int]:
        """``with job.forward(5432) as local:`` see :meth:`handle.Job.forward`."""
        return self._portal.wrap_async_context_manager(self._job.forward(port, local))

    def share(self, port: int, lasts_ms: int = DAY_MS) -> NewLinkAnswer:
        """A link that opens a port of its workload to whoever has it."""
        return self._portal.call(self._job.port(port).share, lasts_ms)

    def outputs(self, *, signed: bool = False) -> list[OutputAnswer]:
        """What it gave back; *signed*: as its providers signed it."""
        return self._portal.call(partial(self._job.outputs, signed=signed))

    def download(self, folder: Path | str, *, signed: bool = False) -> list[Path]:
        """All outputs into *folder*, each checked against its hash; *signed*: as its providers
        signed it.
        """
        return self._portal.call(partial(self._job.download, folder, signed=signed))

    def evidence(self) -> Evidence:
        """What its invoice is recomputed from."""
        return self._portal.call(self._job.evidence)

    def invoice(self, *, verify: bool = False) -> Invoice:
        """The bill, recomputed here; with *verify* compared with the ledger."""
        return self._portal.call(partial(self._job.invoice, verify=verify))


class Market:
    """:class:`marketplace.client.sdk.market.Market`, blocking."""

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
    ) -> None:
        self._make: Callable[[], market.Market] = partial(
            market.Market,
            url,
            wallet=wallet,
            chain_url=chain_url,
            project_id=project_id,
            submit_urls=submit_urls,
            token=token,
            keep=keep,
        )
        self._stack = ExitStack()
        self._inner: market.Market | None = None
        self._portal_: BlockingPortal | None = None

    def __enter__(self) -> Market:
        with ExitStack() as stack:
            self._portal_ = stack.enter_context(start_blocking_portal())
            inner = self._portal_.call(self._made)
            self._inner = stack.enter_context(self._portal_.wrap_async_context_manager(inner))
            self._stack = stack.pop_all()
        return self

    async def _made(self) -> market.Market:
        return self._make()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    @property
    def _market(self) -> market.Market:
        if self._inner is None:
            raise market.PurseNeeded("enter the market first: with Market(…) as market")
        return self._inner

    @property
    def _portal(self) -> BlockingPortal:
        if self._portal_ is None:
            raise market.PurseNeeded("enter the market first: with Market(…) as market")
        return self._portal_

    def offers(self, **filters: object) -> list[OfferAnswer]:
        """Standing offers."""
        return self._portal.call(partial(self._market.offers, **filters))

    def quote(self, job: Path | str | JobSpec | LoadedJob) -> QuoteAnswer:
        """Price, ceiling and alternatives; nothing is reserved."""
        return self._portal.call(self._market.quote, job)

    def explain(self, job: Path | str | JobSpec | LoadedJob) -> ExplainAnswer:
        """Why the others lost, or why nothing matches."""
        return self._portal.call(self._market.explain, job)

    def jobs(self, **filters: object) -> list[JobAnswer]:
        """This account's jobs, newest first."""
        return self._portal.call(partial(self._market.jobs, **filters))

    def job(self, name: str) -> Job:
        """A job that exists, by its id."""
        return Job(self._portal, self._portal.call(self._market.job, name))

    def run(
        self,
        job: Path | str | JobSpec | LoadedJob,
        *,
        confirm: Callable[[CheckedQuote], bool] | None = None,
        key: str = "",
    ) -> Job:
        """Post, check the quote, fund, and start; *confirm* is asked in the loop's thread."""

        async def ask(offered: CheckedQuote) -> bool:
            return confirm is None or confirm(offered)

        made = self._portal.call(partial(self._market.run, job, confirm=ask, key=key))
        return Job(self._portal, made)

    def resume_all(self) -> list[str]:
        """Take every channel that nobody holds, and follow its unfinished jobs."""
        return self._portal.call(self._market.resume_all)


__all__ = ["Job", "Market", "Purse"]
