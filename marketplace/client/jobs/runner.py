"""Taking jobs from a file to a paid end: post, wait for the quote, follow, retry.

Used by the SDK and by the payer daemon alike: :meth:`Runner.follow` needs nothing but the job's id
and the books, so a daemon goes on where a client stopped. A retry signs the new quote by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import anyio
import structlog

from marketplace.client.jobs.agreements import Agreements
from marketplace.client.jobs.channel_watch import ChannelWatch
from marketplace.client.jobs.job_channels import JobChannels
from marketplace.client.jobs.job_secrets import SecretMissing, secrets_here
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.jobs.quotes import Quote, QuoteRefused
from marketplace.client.net.http import Http
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.client.wallet.unilateral_close import CLOSE_AFTER_S
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel_stage import ChannelStage

log = structlog.get_logger("tally.client")
Json = dict[str, Any]
QUOTE_WITHIN_S: Final = 120.0
_FAST_S, _SLOW_S = 0.1, 0.5
_GONE: Final = frozenset({"PROVIDER_LOST", "QUOTE_EXPIRED", "DECLINED"})


class JobOver(Refusal):
    """The job ended before it could run; its reason says why."""

    code = "JOB_OVER"
    remedy = "`tally job show` tells the story; `tally job quote` what would match now"


@dataclass
class Runner:
    """One purse at one market and one chain: its jobs, posted and followed."""

    http: Http
    purse: Purse
    till: Till
    payers: Payers
    keep_ms: int = 0
    close_after_ms: int = int(CLOSE_AFTER_S * 1000)
    channels: JobChannels = field(init=False)
    watch: ChannelWatch = field(init=False)
    agreements: Agreements = field(init=False)
    _busy: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])

    def __post_init__(self) -> None:
        self.channels = JobChannels(self.payers)
        self.watch = ChannelWatch(self.http, self.till, self.close_after_ms)
        self.agreements = Agreements(
            self.http, self.purse, self.till, self.payers, self.channels, self.watch, self.keep_ms
        )

    # ---- posting ---------------------------------------------------------------------------

    async def post(self, loaded: LoadedJob, *, key: str = "") -> Json:
        """Upload the job's files and post it; the market's view of it. *key* makes it
        idempotent.
        """
        await self.upload(loaded)
        await self.take_up_kept()
        session = self.purse.new_session()
        spares = [self.purse.new_session() for _ in range(loaded.spec.policy.retry_max)]
        body = {
            "spec": loaded.spec.to_wire(),
            "session_vk": session.verify_key.hex(),
            "spares": [spare.verify_key.hex() for spare in spares],
            "consumer_vkh": self.purse.signer.key_hash.hex(),
            "channels": [held.session_vk.hex() for held in self.channels.reusable()],
        }
        try:
            job = cast(Json, await self.http.post("/v1/jobs", body, key))
        except Refusal:
            for unused in (session, *spares):
                self.purse.forget_session(unused.verify_key)
            raise
        self.agreements.know(str(job["id"]), loaded.spec)
        return job

    async def take_up_kept(self) -> None:
        """Hold the purse's own kept channels that no other process holds: a job is posted with
        them before another channel is opened. What was forgotten of them is learnt first; what has
        ended meanwhile is known as ended.
        """
        for held in await self.payers.take_kept(self.purse.session):
            await self.watch.resume(held)
            if held.facts.state is ChannelStage.ENDED:
                self.payers.release(held.session_vk)

    def give_back_idle(self) -> None:
        """Let other processes have the kept channels that were taken up and are not used."""
        for held in self.payers.taken_up:
            if set(held.terms) <= held.final:
                self.payers.release(held.session_vk)

    async def upload(self, loaded: LoadedJob) -> None:
        """The job's files; :class:`SecretMissing` before that if a secret is not there."""
        secrets_here(loaded.spec.secrets)
        for sha256, path in loaded.blobs.items():
            data = await anyio.Path(path).read_bytes()
            await self.http.put(f"/v1/blobs/{sha256}", data)

    async def view(self, job: str) -> Json:
        """The market's view of the job."""
        return cast(Json, await self.http.get(f"/v1/jobs/{job}"))

    async def quoted(self, job: str, within_s: float = QUOTE_WITHIN_S) -> Json:
        """The job once it has a quote; :class:`JobOver` if it ended instead."""
        with anyio.fail_after(within_s):
            while True:
                view = await self.view(job)
                if view["state"] == "QUOTED" and view.get("quote"):
                    return view
                if view["state"] == "ENDED":
                    raise JobOver(
                        f"{job} ended: {view.get('reason')} {view.get('message') or ''}".strip(),
                        reason=view.get("reason"),
                    )
                if view["state"] not in ("POSTED", "QUEUED", "QUOTED"):
                    return view
                await anyio.sleep(_FAST_S)

    # ---- following -------------------------------------------------------------------------

    async def follow(
        self, job: str, on_view: Callable[[Json], Awaitable[None]] | None = None
    ) -> Json:
        """Until the job has ended: confirms its channels, signs retries, ends what is over."""
        lock = self._busy.setdefault(job, anyio.Lock())
        async with lock:
            nudge = anyio.Event()

            async def heard(paid: Paid) -> None:
                if paid.kind in ("stage", "final"):
                    nudge.set()

            silence = self.payers.listen(heard)
            try:
                while True:
                    nudge = anyio.Event()
                    view = await self.view(job)
                    if on_view is not None:
                        await on_view(view)
                    await self._step(job, view)
                    if view["state"] == "ENDED":
                        return view
                    # The payer's socket tells of every change; looking is for what it missed.
                    with anyio.move_on_after(_pause(view)):
                        await nudge.wait()
            finally:
                silence()

    async def _step(self, job: str, view: Json) -> None:
        """One look: what the market wants, and what the chain shows of the job's channels."""
        lease = str(view.get("lease") or "")
        await self._bury(job, "" if view["state"] == "ENDED" else lease)
        if view.get("needs") == "session_vk":
            fresh = self.purse.new_session().verify_key.hex()
            await self.http.post(f"/v1/jobs/{job}/resume", {"session_vk": fresh})
        elif view["state"] == "QUOTED" and view.get("quote"):
            await self._again(view)
        for held in self.channels.of(job):
            await self.watch.confirm(held)

    async def _again(self, view: Json) -> None:
        """A retry's quote, or one that a crash left half agreed: signed by rule, no question asked.

        Only a job that has paid before, or whose terms this purse signed, is agreed to here.
        """
        quote = Quote.read(view["quote"])
        if not self.agreements.begun(quote) and not self.channels.of(str(view["id"])):
            return
        try:
            async with self.agreements.turn(view):
                await self.agreements.accept(await self.agreements.examine(view))
        except (QuoteRefused, SecretMissing) as refusal:
            log.warning("retry_refused", job=view["id"], code=refusal.code, why=refusal.message)
            await self.agreements.decline(view)

    async def _bury(self, job: str, living: str) -> None:
        """Leases of *job* that the market has given up: their last receipt will not come."""
        for held in self.channels.of(job):
            for name, lease in list(held.book.leases.items()):
                if lease.terms.job != job or name == living or name in held.final:
                    continue
                row = cast(Json, await self.http.get(f"/v1/leases/{name}"))
                if row.get("state") == "ENDED" or row.get("reason") in _GONE:
                    await held.lease_over(name, lost=row.get("reason") == "PROVIDER_LOST")

    async def settled(self, job: str) -> list[ChannelPayer]:
        """The job's channels, once each that asked for its end has ended on chain."""
        while True:
            mine = [held for held in self.channels.of(job) if held.end_sent]
            done = [await self.watch.confirm(held) for held in mine]
            if all(done):
                return mine
            await anyio.sleep(_SLOW_S)


def _pause(view: Json) -> float:
    """Seconds until the next look at a job."""
    return 2.0 if view["state"] in ("RUNNING", "PAUSED") else _SLOW_S
