"""Taking jobs from a file to a paid end: the shell that performs what :mod:`core.decide` says.

Used by the SDK and by the payer daemon alike: :meth:`Runner.follow` needs nothing but the job's id
and the books, so a daemon goes on where a client stopped. A retry signs the new quote by itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import structlog

from marketplace.client.jobs.agreements import Agreements
from marketplace.client.jobs.channel_watch import ChannelWatch
from marketplace.client.jobs.core import effects, inputs
from marketplace.client.jobs.core.decide import decide
from marketplace.client.jobs.core.effects import Effect, Look
from marketplace.client.jobs.core.inputs import Input
from marketplace.client.jobs.core.quotes import CheckedQuote, Quote, QuoteRefused
from marketplace.client.jobs.core.stage import Stage
from marketplace.client.jobs.core.state import State, restored
from marketplace.client.jobs.hops import Hops, RouteMode, is_busy_hop
from marketplace.client.jobs.job_channels import JobChannels
from marketplace.client.jobs.job_secrets import SecretMissing, secrets_here
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.jobs.left_behind import bury
from marketplace.client.net.answers import JobAnswer, LeaseAnswer
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.hop_payer import HopPayer
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.patience import CLOSE_AFTER_S
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Conflict, Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState

log = structlog.get_logger("tally.client")
OnView = Callable[[JobAnswer], Awaitable[None]]
QUOTE_WITHIN_S: Final = 120.0
_FAST_S: Final = 0.1


class JobOver(Refusal):
    """The job ended before it could run; its reason says why."""

    code = "JOB_OVER"
    remedy = "`tally job show` tells the story; `tally job quote` what would match now"


@dataclass
class Followed:
    """One job in this process: where it stands, and the market's latest *view* of it."""

    state: State
    view: JobAnswer | None = None
    on_view: OnView | None = None
    pause_s: float = 0.0

    @property
    def over(self) -> bool:
        """Nothing more of it is to come home."""
        return self.state.stage is Stage.OVER


@dataclass
class Runner:
    """One purse at one market and one chain: its jobs, posted and followed."""

    http: Http
    purse: Purse
    till: Till
    payers: Payers
    keep_ms: int = 0
    close_after_ms: int = int(CLOSE_AFTER_S * 1000)
    route: RouteMode = RouteMode.AUTO
    channels: JobChannels = field(init=False)
    watch: ChannelWatch = field(init=False)
    hops: Hops = field(init=False)
    agreements: Agreements = field(init=False)
    _jobs: dict[str, Followed] = field(default_factory=dict[str, Followed])
    _busy: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])

    def __post_init__(self) -> None:
        self.channels = JobChannels(self.payers)
        self.watch = ChannelWatch(self.http, self.till, self.close_after_ms)
        self.hops = Hops(self.http, self.purse, self.till, self.payers, self.watch, self.route)
        self.agreements = Agreements(
            self.http, self.purse, self.till, self.payers, self.channels, self.watch, self.hops,
            self.keep_ms,
        )  # fmt: skip
        self.payers.taken_again = self.watch.resume

    # ---- posting ---------------------------------------------------------------------------

    async def post(self, loaded: LoadedJob, *, key: str = "") -> JobAnswer:
        """Upload the job's files and post it; the market's view of it. *key* makes it
        idempotent.
        """
        await self.upload(loaded)
        view: JobAnswer | None = None
        for effect in decide(State(), inputs.Wanted(), _now()).effects:
            match effect:
                case effects.TakeUpKept():
                    await self.take_up_kept()
                case effects.Post():
                    view = await self._post(loaded.spec, key)
                case _:
                    raise TypeError(f"{type(effect).__name__} is no part of posting")
        assert view is not None  # a job that nobody has posted is posted
        self.took(view["id"], loaded.spec)
        return view

    async def _post(self, spec: JobSpec, key: str) -> JobAnswer:
        hop = await self.hops.for_job(spec)
        sessions = [self.purse.new_session() for _ in range(1 + spec.policy.retry_max)]
        first, *spares = [session.verify_key.hex() for session in sessions]
        body = {
            "spec": spec.to_wire(),
            "session_vk": first,
            "spares": spares,
            "consumer_vkh": self.purse.signer.key_hash.hex(),
            "channels": [vk.hex() for vk in self._usable()],
        }
        body |= {"hop": hop.hex()} if hop else {}
        try:
            return read(JobAnswer, await self.http.post("/v1/jobs", body, key), "job")
        except Refusal:
            self.not_posted(sessions)
            raise

    def _usable(self) -> list[bytes]:
        """Channels that the job may be paid from; those of other processes are only joined by
        whoever keeps them open as well.
        """
        own = [held.session_vk for held in self.channels.reusable()]
        if self.route is RouteMode.ROUTED:
            return []
        return [*own, *sorted(self.payers.others)] if self.keep_ms else own

    def took(self, job: str, spec: JobSpec, *, member: bool = False) -> None:
        """The market took *job*, posted as *spec*: what it quotes has to be for this."""
        self.agreements.know(job, spec)
        posted = decide(State(), inputs.Posted(member), _now())
        self._jobs[job] = Followed(posted.state)

    def not_posted(self, sessions: list[Signer]) -> None:
        """The market refused it: its keys are nobody's."""
        if effects.ForgetKeys() in decide(State(), inputs.NotPosted(), _now()).effects:
            for unused in sessions:
                self.purse.forget_session(unused.verify_key)

    async def take_up_kept(self) -> None:
        """Hold the purse's own kept channels that no other process holds: a job is posted with
        them before another channel is opened. What was forgotten of them is learnt first; what has
        ended meanwhile is known as ended.
        """
        for held in await self.payers.take_kept(self.purse.session):
            await self.watch.resume(held)
            if held.facts.state is not ChannelStage.ENDED:
                await bury(self.http, held)
            if isinstance(held, HopPayer):
                await self.hops.take_up(held)
            if held.facts.state is ChannelStage.ENDED:
                await self.payers.release(held.session_vk)

    async def give_back_idle(self) -> None:
        """Let other processes have the kept channels that were taken up and are not used."""
        for held in self.payers.taken_up:
            if set(held.terms) <= held.final and not is_busy_hop(held):
                await self.payers.release(held.session_vk)

    async def upload(self, loaded: LoadedJob) -> None:
        """The job's files; :class:`SecretMissing` before that if a secret is not there."""
        secrets_here(loaded.spec.secrets)
        for sha256, path in loaded.blobs.items():
            data = await anyio.Path(path).read_bytes()
            await self.http.put(f"/v1/blobs/{sha256}", data)

    async def view(self, job: str) -> JobAnswer:
        """The market's view of the job."""
        return read(JobAnswer, await self.http.get(f"/v1/jobs/{job}"), "job")

    async def quoted(self, job: str, within_s: float = QUOTE_WITHIN_S) -> JobAnswer:
        """The job once it has a quote; :class:`JobOver` if it ended instead."""
        with anyio.fail_after(within_s):
            while True:
                view = await self.view(job)
                if view["state"] == "QUOTED" and view["quote"]:
                    return view
                if view["state"] == "ENDED":
                    raise JobOver(
                        f"{job} ended: {view['reason']} {view['message']}".strip(),
                        reason=view["reason"],
                    )
                if view["state"] not in ("POSTED", "QUEUED", "QUOTED"):
                    return view
                await anyio.sleep(_FAST_S)

    # ---- answering -------------------------------------------------------------------------

    async def consider(self, view: JobAnswer) -> CheckedQuote:
        """The quote of a job that was posted here, checked against the job; nothing is signed yet.

        A refusal has declined it already. Held with :meth:`Agreements.turn` until the answer.
        """
        job = view["id"]
        followed = self._jobs[job]
        followed.view = view
        await self._feed(job, _seen(view))
        state = followed.state
        if state.stage is not Stage.ASKED or state.offered is None:
            raise QuoteRefused(f"{job}: its quote does not stand any more")
        return state.offered

    async def answer(self, offered: CheckedQuote, *, yes: bool) -> None:
        """Agree to what :meth:`consider` showed, or decline it. A fault on the way leaves the quote
        as it is: asking again is safe.
        """
        lease = offered.quote.terms.lease
        await self._feed(offered.job, inputs.Answered(lease, yes))

    # ---- following -------------------------------------------------------------------------

    async def follow(self, job: str, on_view: OnView | None = None) -> JobAnswer:
        """Until the job has ended: confirms its channels, signs retries, ends what is over."""
        lock = self._busy.setdefault(job, anyio.Lock())
        async with lock:
            followed = self._jobs[job] = Followed(restored(), on_view=on_view)
            nudge = anyio.Event()

            async def heard(paid: Paid) -> None:
                if decide(followed.state, inputs.Heard(paid.kind), _now()).effects:
                    nudge.set()

            silence = self.payers.listen(heard)
            try:
                while True:
                    nudge = anyio.Event()
                    await self._feed(job, inputs.TimePassed())
                    done = followed.state.stage in (Stage.ENDING, Stage.OVER)
                    if done and followed.view is not None:
                        return followed.view
                    # The payer's socket tells of every change; looking is for what it missed.
                    with anyio.move_on_after(followed.pause_s):
                        await nudge.wait()
            finally:
                silence()

    def knows(self, job: str) -> bool:
        """Whether this process ever looked after *job*."""
        return job in self._jobs

    def follows(self, job: str) -> bool:
        """Whether this process looks after *job*."""
        followed = self._jobs.get(job)
        return followed is not None and followed.state.stage not in (Stage.ENDING, Stage.OVER)

    def clusters(self) -> set[str]:
        """The gangs that are clusters, of the jobs that this process looks after."""
        views = [one.view for name, one in self._jobs.items() if self.follows(name) and one.view]
        return {one["gang"] for one in views if one["gang"] and "cluster" in one["spec"]}

    async def settled(self, job: str) -> list[ChannelPayer]:
        """The job's channels, once each that asked for its end has ended on chain."""
        while (followed := self._jobs.get(job)) is not None and not followed.over:
            if followed.state.stage is Stage.ENDING:
                await self._feed(job, inputs.TimePassed())
            if not followed.over:
                await anyio.sleep(followed.pause_s or _FAST_S)
        return [held for held in self.channels.of(job) if held.end_sent]

    # ---- performing ------------------------------------------------------------------------

    async def _feed(self, job: str, given: Input) -> None:
        """Decide from the books as they are now, then perform, in order; answers are decided on at
        once.
        """
        followed = self._jobs[job]
        state = replace(followed.state, channels=self.channels.own(job))
        outcome = decide(state, given, _now())
        followed.state = outcome.state
        for effect in outcome.effects:
            answer = await self._perform(job, followed, effect)
            if answer is not None:
                await self._feed(job, answer)

    async def _perform(self, job: str, followed: Followed, effect: Effect) -> Input | None:
        match effect:
            case Look():
                await self._look(job, followed)
            case effects.Examine(quote):
                return await self._examine(followed, quote)
            case effects.Agree(offered):
                return await self._agree(followed, offered)
            case effects.Decline(lease):
                await self._decline(job, lease)
            case effects.Report(refusal):
                raise refusal
            case effects.ResumeWithFreshKey():
                await self._resume(job)
            case effects.LookAtLease(lease):
                return await self._look_at_lease(lease)
            case effects.Bury(lease, lost):
                for held in self.channels.of(job):
                    await held.lease_over(lease, lost=lost)
            case effects.LookAtChannel(session_vk):
                held = self.payers.held(session_vk)
                if held is not None:
                    with self.payers.pinned(session_vk):
                        await self.watch.confirm(held)
                return inputs.ChannelLooked()
            case effects.Wait(ms):
                followed.pause_s = ms / 1000
            case effects.Ask() | effects.TakeUpKept() | effects.Post() | effects.ForgetKeys():
                pass  # whoever called :meth:`consider` or :meth:`post` does these
        return None

    async def _look(self, job: str, followed: Followed) -> None:
        followed.view = view = await self.view(job)
        if followed.on_view is not None:
            await followed.on_view(view)
        async with self.agreements.turn(view):
            await self._feed(job, _seen(view))

    async def _examine(self, followed: Followed, quote: Quote) -> Input:
        assert followed.view is not None  # it is where the quote stood
        try:
            return inputs.Checked(await self.agreements.examine(followed.view))
        except Refusal as refusal:
            return _unfit(followed, quote, refusal)

    async def _agree(self, followed: Followed, offered: CheckedQuote) -> Input:
        try:
            await self.agreements.accept(offered)
        except Refusal as refusal:
            return _unfit(followed, offered.quote, refusal)
        return inputs.Agreed(offered.quote.terms.lease)

    async def _decline(self, job: str, lease: str) -> None:
        try:
            await self.agreements.decline(lease)
        except Refusal as refusal:  # it has lapsed, or ended meanwhile
            log.info("not_declined", job=job, code=refusal.code, why=refusal.message)

    async def _resume(self, job: str) -> None:
        fresh = self.purse.new_session().verify_key
        try:
            await self.http.post(f"/v1/jobs/{job}/resume", {"session_vk": fresh.hex()})
        except Refusal as refusal:
            self.purse.forget_session(fresh)
            if refusal.code != Conflict.code:
                raise
            log.info("not_resumed", job=job, why=refusal.message)  # it has one, by a look before

    async def _look_at_lease(self, lease: str) -> Input:
        row = read(LeaseAnswer, await self.http.get(f"/v1/leases/{lease}"), "lease")
        return inputs.LeaseSeen(lease, row["state"] == "ENDED", row["reason"])


def _seen(view: JobAnswer) -> inputs.Viewed:
    """The market's view as far as a decision needs it."""
    seen = inputs.Viewed(
        state=JobState.__members__.get(view["state"]),
        lease=view["lease"],
        needs_key=view["needs"] == "session_vk",
    )
    if seen.state is not JobState.QUOTED or not view["quote"]:
        return seen
    try:
        return replace(seen, quote=Quote.read(view["quote"]))
    except Refusal as refusal:
        return replace(seen, unreadable=refusal)


def _unfit(followed: Followed, quote: Quote, refusal: Refusal) -> inputs.Unfit:
    lease = quote.terms.lease
    ours = isinstance(refusal, (QuoteRefused, SecretMissing))
    if ours and not followed.state.asks:  # nobody else is told
        log.warning("retry_refused", lease=lease, code=refusal.code, why=refusal.message)
    return inputs.Unfit(lease, refusal, ours)


def _now() -> int:
    """Milliseconds UTC."""
    return time.time_ns() // 1_000_000
