"""A market as somebody sees it who pays for nothing: offers, quotes, jobs, logs.

:class:`~marketplace.client.sdk.market.Market` adds the payer. They are apart because reading needs
no chain and none of the libraries that build transactions, which take longer to import than a read
takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from marketplace.client.net.answers import (
    ChallengeAnswer,
    ExplainAnswer,
    GangQuoteAnswer,
    JobAnswer,
    JobQuoteAnswer,
    NetworkAnswer,
    OfferAnswer,
    QuoteAnswer,
    SessionAnswer,
)
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read, read_all
from marketplace.client.sdk.job import Job
from marketplace.client.wallet.purse import SESSION, Purse
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.signin import expect
from marketplace.domain.site import origin_of
from marketplace.domain.work.job import JobSpec

if TYPE_CHECKING:
    from marketplace.chain.node.blockfrost import ChainReader
    from marketplace.client.jobs.jobfiles import LoadedJob

DEFAULT_MARKET: Final = "http://127.0.0.1:8000"
MAINNET: Final = 764824073


class PurseNeeded(Refusal):
    """This needs a key that signs and pays."""

    code = "PURSE_NEEDED"
    remedy = "Market(url, wallet=Purse.load()), after `tally purse fund`"


class Reader:
    """A market, signed in to with *wallet* or *token* where one is given."""

    def __init__(
        self,
        url: str | None = None,
        *,
        wallet: Purse | None = None,
        chain_url: str | None = None,
        project_id: str | None = None,
        submit_urls: Sequence[str] | None = None,
        token: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = (url or os.environ.get("TALLY_MARKET") or DEFAULT_MARKET).rstrip("/")
        self.purse = wallet
        self.http = Http(self.url, token, transport)
        self.network: NetworkAnswer = {}
        self._chain_url = chain_url or os.environ.get("TALLY_CHAIN_URL") or ""
        self._project_id = project_id or os.environ.get("TALLY_PROJECT_ID") or ""
        self._submit_urls = tuple(
            os.environ.get("TALLY_SUBMIT_URLS", "").split() if submit_urls is None else submit_urls
        )
        self._stack = AsyncExitStack()
        self._chain: ChainReader | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._stack.__aenter__()
            self._stack.push_async_callback(self.http.aclose)
            if self.purse is not None:
                await self._open(self.purse)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    # ---- the connection --------------------------------------------------------------------

    async def enter(self, wallet: Purse) -> None:
        """Sign in with *wallet*, which was not at hand when the market was opened."""
        self.purse = wallet
        await self._open(wallet)

    async def _open(self, purse: Purse) -> None:
        """*purse* signs in, unless there is a token already."""
        del purse
        if not self.http.token:
            await self.sign_in()
            self.http.renew = self.sign_in

    async def knock(self) -> NetworkAnswer:
        """The market's network: what it says to whoever has not signed in, asked once."""
        if not self.network:
            self.network = read(NetworkAnswer, await self.http.get("/v1/network"), "network")
        return self.network

    async def chain(self) -> ChainReader:
        """The client's own chain; the market's public one only where none was named."""
        if self._chain is None:
            from marketplace.chain.node.blockfrost import connect

            url = self._chain_url or str((await self.knock()).get("chain_url") or "")
            if not url:
                raise Malformed("no chain URL: set TALLY_CHAIN_URL or pass chain_url")
            self._chain = await connect(url, self._project_id, submit_urls=self._submit_urls)
        return self._chain

    async def _on_mainnet(self) -> bool:
        return (await self.knock()).get("magic", 0) == MAINNET

    async def sign_in(self) -> str:
        """Sign in with the purse's key (CIP-8); the account's name. Free, moves no money.

        :class:`~marketplace.domain.signin.OtherMarket` if the market asks for any other signature
        than one that signs this account in at the address that we dialled.
        """
        purse, mainnet = self._purse(), await self._on_mainnet()
        address, at = purse.address(mainnet=mainnet), origin_of(self.url)
        magic = (await self.knock()).get("magic", 0)
        answer = await self.http.post("/v1/auth/challenge", {"address": address, "market": at})
        asked = read(ChallengeAnswer, answer, "challenge")
        try:
            message = bytes.fromhex(asked["message"])
        except ValueError:
            raise Malformed("the market's challenge is not hex") from None
        expect(message, at, purse.signer.key_hash.hex(), magic)
        signed = purse.sign_in(message, mainnet=mainnet)
        body = {"address": address, "signature": signed.signature, "key": signed.key}
        session = read(SessionAnswer, await self.http.post("/v1/auth/verify", body), "session")
        self.http.token = session["token"]
        return session["account"]

    def _purse(self) -> Purse:
        if self.purse is None:
            raise PurseNeeded("no wallet was given")
        return self.purse

    # ---- reading ---------------------------------------------------------------------------

    async def offers(self, **filters: object) -> list[OfferAnswer]:
        """Standing offers; filters as ``GET /v1/offers`` has them."""
        return read_all(OfferAnswer, await self._all("/v1/offers", **filters), "offers")

    async def quote(self, job: Path | str | JobSpec | LoadedJob) -> QuoteAnswer:
        """Price, ceiling and alternatives; nothing is reserved. A refusal carries ``explain``."""
        loaded = await self.pinned(self._load(job))
        answer = await self.http.post("/v1/quotes", {"spec": loaded.spec.to_wire()})
        if loaded.spec.gang is not None:
            return read(GangQuoteAnswer, answer, "quote")
        return read(JobQuoteAnswer, answer, "quote")

    async def explain(self, job: Path | str | JobSpec | LoadedJob) -> ExplainAnswer:
        """Why the others lost, or why nothing matches."""
        spec = self._load(job).spec.to_wire()
        answer = await self.http.post("/v1/explain", {"spec": spec})
        return read(ExplainAnswer, answer, "explanation")

    async def jobs(self, **filters: object) -> list[JobAnswer]:
        """This account's jobs, newest first."""
        return read_all(JobAnswer, await self._all("/v1/jobs", **filters), "jobs")

    def job(self, name: str) -> Job:
        """A job that exists, by its id."""
        return Job(self.http, name, None, self.chain, self.session_keys)

    def session_keys(self) -> frozenset[bytes]:
        """The public parts of the purse's own: what they signed, this purse agreed to."""
        names = (key.name.removeprefix(SESSION) for key in self._purse().sessions())
        return frozenset(map(bytes.fromhex, names))

    async def _all(self, path: str, **query: object) -> list[dict[str, Any]]:
        limit = query.pop("limit", None)
        return await self.http.all(path, int(str(limit)) if limit is not None else None, **query)

    @staticmethod
    def _load(job: Path | str | JobSpec | LoadedJob) -> LoadedJob:
        from marketplace.client.jobs import jobfiles

        if isinstance(job, jobfiles.LoadedJob):
            return job
        if isinstance(job, JobSpec):
            return jobfiles.LoadedJob(job, {})
        return jobfiles.load(job)

    async def pinned(self, job: LoadedJob) -> LoadedJob:
        """*job* with its image's digest and its volumes' leases;
        :class:`~marketplace.client.jobs.images.ImageNotPinned`,
        :class:`~marketplace.client.jobs.volumes.VolumeUnknown`.
        """
        from marketplace.client.images.registry import MarketRegistry
        from marketplace.client.jobs import volumes
        from marketplace.client.jobs.images import ImageNotPinned, digest_of
        from marketplace.domain.work import image_names

        if volumes.wants_names(job.spec):
            job = replace(job, spec=volumes.by_lease(job.spec, await self.jobs(state="RUNNING")))
        spec, name = job.spec, job.spec.image
        if not name:
            return job  # the host's own programs run, or nothing: nothing is pulled
        if (known := image_names.pinned(name)) is not None:
            return replace(job, spec=replace(spec, image=known))
        if not image_names.is_local(name):
            own = image_names.Reference.parse(name).host not in image_names.PUBLIC
            token = await MarketRegistry(self.http).pull_token(name) if own else ""
            return replace(job, spec=replace(spec, image=await digest_of(name, token=token)))
        digest = image_names.announced(name, await self.offers())
        if not digest:
            raise ImageNotPinned(f"{name}: no provider here announces this local image")
        return replace(job, spec=image_names.on_offers_with(spec, digest))
