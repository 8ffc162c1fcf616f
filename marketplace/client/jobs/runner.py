"""Taking jobs from a file to a paid end: post, check the quote, fund a channel, follow, retry.

Used by the SDK and by the payer daemon alike: :meth:`Runner.follow` needs nothing but the job's id
and the books, so a daemon goes on where a client stopped. A retry signs the new quote by itself,
with what is left of the budget: approved amounts and the new ceiling together never exceed it.

Long, because posting, agreeing and following are one story with one state.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import structlog

from marketplace.chain.channels.finder import ChannelEnded
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.client.jobs import quotes
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.jobs.quotes import Quote, QuoteRefused, Wanted
from marketplace.client.net.http import Http
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.decide import ClaimUnsigned
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet import second_output
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.one_open import ChannelTwice, KeyUsed, OpenUnsure
from marketplace.client.wallet.purse import Purse
from marketplace.client.wallet.unilateral_close import CLOSE_AFTER_S, leave
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import seal_to
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.work.job import JobSpec

log = structlog.get_logger("tally.client")
Json = dict[str, Any]
QUOTE_WITHIN_S: Final = 120.0
_FAST_S, _SLOW_S = 0.1, 0.5


class JobOver(Refusal):
    """The job ended before it could run; its reason says why."""

    code = "JOB_OVER"
    remedy = "`tally job show` tells the story; `tally job quote` what would match now"


class SecretMissing(Refusal):
    """A secret that the job names is not in this process's environment."""

    code = "SECRET_MISSING"
    remedy = "export it before the job is run; its value is sealed to the provider here"


@dataclass(frozen=True)
class CheckedQuote:
    """What is about to be agreed to: shown before anything is spent. Money in lovelace."""

    job: str
    quote: Quote
    amount: int
    reserve: int
    spent: int

    @property
    def fresh(self) -> bool:
        """Whether a channel has to be opened (one transaction fee)."""
        return self.quote.fresh


Confirm = Callable[[CheckedQuote], Awaitable[bool]]


@dataclass
class Runner:
    """One purse at one market and one chain."""

    http: Http
    purse: Purse
    till: Till
    payers: Payers
    keep: bool = False
    close_after_ms: int = int(CLOSE_AFTER_S * 1000)
    _specs: dict[str, JobSpec] = field(default_factory=dict[str, JobSpec])
    _busy: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])
    _turns: dict[bytes, anyio.Lock] = field(default_factory=dict[bytes, anyio.Lock])

    # ---- posting ---------------------------------------------------------------------------

    async def post(self, loaded: LoadedJob, *, key: str = "") -> Json:
        """Upload the job's files and post it; the market's view of it. *key* makes it
        idempotent.
        """
        await self.upload(loaded)
        session = self.purse.new_session()
        spares = [self.purse.new_session() for _ in range(loaded.spec.policy.retry_max)]
        body = {
            "spec": loaded.spec.to_wire(),
            "session_vk": session.verify_key.hex(),
            "spares": [spare.verify_key.hex() for spare in spares],
            "consumer_vkh": self.purse.signer.key_hash.hex(),
            "channels": [held.session_vk.hex() for held in self._reusable()],
        }
        try:
            job = cast(Json, await self.http.post("/v1/jobs", body, key))
        except Refusal:
            for unused in (session, *spares):
                self.purse.forget_session(unused.verify_key)
            raise
        self._specs[str(job["id"])] = loaded.spec
        return job

    async def upload(self, loaded: LoadedJob) -> None:
        """The job's files; :class:`SecretMissing` before that if a secret is not there."""
        secrets_here(loaded.spec.secrets)
        for sha256, path in loaded.blobs.items():
            data = await anyio.Path(path).read_bytes()
            await self.http.put(f"/v1/blobs/{sha256}", data)

    def know(self, job: str, spec: JobSpec) -> None:
        """What *job* was posted as: its quotes are checked against this."""
        self._specs[job] = spec

    def _reusable(self) -> list[ChannelPayer]:
        """Open channels that this process holds and nobody has asked to end."""
        return [
            held
            for held in self.payers.all
            if held.facts.keep and held.facts.state is ChannelStage.OPEN and not held.end_sent
            and not held.book.stopped
        ]  # fmt: skip

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

    # ---- agreeing --------------------------------------------------------------------------

    def spent(self, job: str) -> int:
        """What all leases of the job were approved for, on whichever channels."""
        return sum(
            lease.approved
            for held in self.payers.all
            for lease in held.book.leases.values()
            if lease.terms.job == job
        )

    def ticks(self, job: str) -> int:
        """Receipts answered so far on the job's channels (all leases of them)."""
        return sum(
            held.book.last.seq
            for held in self.payers.all
            if held.book.last is not None
            and any(lease.terms.job == job for lease in held.book.leases.values())
        )

    async def examine(self, view: Json) -> CheckedQuote:
        """The quote of *view*, checked against the job; nothing is signed yet."""
        job = str(view["id"])
        spec = self._spec(view)
        quote = Quote.read(view.get("quote"))
        fresh = {bytes.fromhex(key.name.removeprefix("session-")) for key in self.purse.sessions()}
        held = {payer.session_vk for payer in self._reusable()}
        spent = self.spent(job) + await anyio.to_thread.run_sync(self.payers.spent_before, job)
        wanted = Wanted(
            job=job,
            spec=spec,
            magic=self.till.chain.magic,
            consumer_vkh=self.purse.signer.key_hash,
            session_vks=frozenset(fresh | held),
            spent=spent,
        )
        quotes.check(quote, wanted, time.time_ns() // 1_000_000)
        if quote.fresh and not self._begun(quote) and self.payers.known(quote.terms.session_vk):
            raise QuoteRefused("the quote calls a channel fresh that this purse has used before")
        if not quote.fresh and quote.terms.session_vk not in held:
            raise QuoteRefused("the quote reuses a channel that this payer does not hold")
        reserve = await self.till.reserve(quote.terms) if quote.fresh else 0
        amount = quote.terms.ceiling + reserve if quote.fresh else await self._lacking(quote)
        return CheckedQuote(job, quote, amount, reserve, spent)

    def turn(self, view: Json) -> anyio.Lock:
        """Held from the look at a quote to its acceptance: of two jobs on one kept channel the
        second must count what the first one was promised.
        """
        quote = Quote.read(view.get("quote"))
        if quote.fresh:
            return anyio.Lock()  # nobody else is promised anything of it
        return self._turns.setdefault(quote.terms.session_vk, anyio.Lock())

    def _begun(self, quote: Quote) -> bool:
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
            await self.confirm(held)  # taken over: the chain was not asked yet
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
        assert signed.session_signature is not None
        body = {
            "session_signature": signed.session_signature.hex(),
            "channel_tx": held.facts.open_tx if quote.fresh else "",
            "secrets": self._sealed(offered),
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
            for held in self.channels(offered.job)
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
            keep=self.keep,
            payout=quote.payout,
        )
        return await self.payers.create(facts, self.purse.session(terms.session_vk))

    def _sealed(self, offered: CheckedQuote) -> dict[str, str]:
        spec = self._specs[offered.job]
        if not spec.secrets:
            return {}
        provider = offered.quote.terms.adapter_vk
        return {
            name: seal_to(provider, value.encode()).hex()
            for name, value in secrets_here(spec.secrets).items()
        }

    async def decline(self, view: Json) -> None:
        """The quote is not wanted: the job ends, nothing was paid."""
        lease = str(view["quote"]["lease"])
        await self.http.post(f"/v1/leases/{lease}/decline", {}, f"decline-{lease}")

    def _spec(self, view: Json) -> JobSpec:
        job = str(view["id"])
        if job not in self._specs:
            self._specs[job] = JobSpec.from_wire(view["spec"])
        return self._specs[job]

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
        for held in self.channels(job):
            await self.confirm(held)

    async def _again(self, view: Json) -> None:
        """A retry's quote, or one that a crash left half agreed: signed by rule, no question asked.

        Only a job that has paid before, or whose terms this purse signed, is agreed to here.
        """
        quote = Quote.read(view["quote"])
        if not self._begun(quote) and not self.channels(str(view["id"])):
            return
        try:
            async with self.turn(view):
                await self.accept(await self.examine(view))
        except (QuoteRefused, SecretMissing) as refusal:
            log.warning("retry_refused", job=view["id"], code=refusal.code, why=refusal.message)
            await self.decline(view)

    async def _bury(self, job: str, living: str) -> None:
        """Leases of *job* that the market has given up: their last receipt will not come."""
        for held in self.channels(job):
            for name, lease in list(held.book.leases.items()):
                if lease.terms.job != job or name == living or name in held.final:
                    continue
                row = cast(Json, await self.http.get(f"/v1/leases/{name}"))
                if row.get("state") == "ENDED" or row.get("reason") in _GONE:
                    await held.lease_over(name, lost=row.get("reason") == "PROVIDER_LOST")

    def channels(self, job: str) -> list[ChannelPayer]:
        """Those that this process holds and *job* ran on, or was to."""
        return [
            held
            for held in self.payers.all
            if any(lease.terms.job == job for lease in held.book.leases.values())
        ]

    async def confirm(self, held: ChannelPayer) -> bool:
        """Compare the channel with the chain, once it is there; True once it has ended there.

        A provider that answers no End is left: see
        :mod:`marketplace.client.wallet.unilateral_close`.
        """
        facts = held.facts
        if facts.state is ChannelStage.ENDED:
            return True
        if not facts.open_tx or (held.book.capacity is not None and not held.end_sent):
            return False
        at = OutRef(bytes.fromhex(facts.open_tx), facts.index)
        try:
            if held.book.capacity is None:
                await self._check(held, at)
            found = await self.till.look(held.session_vk, at, facts.asset)
            if not isinstance(found, ChannelEnded):
                await leave(self.till, held, found, self.close_after_ms)
                return False
        except ChannelUnknown:
            return False  # not in a block yet, or rolled back and sent again by its log
        except ChainFault as fault:
            log.info("chain_unread", why=fault.message)
            return False
        await held.ended(found.finished_by.hex())
        return True

    async def _check(self, held: ChannelPayer, at: OutRef) -> None:
        """The channel is that of its terms, and what it can pay is known; else it is ended."""
        facts, terms = held.facts, next(iter(held.terms.values())).terms
        try:
            capacity = await self.till.checked(terms, at)
            await second_output.alone(self.till, held)
            await held.opened(facts.open_tx, facts.index, capacity)
        except ChannelUnfit as refusal:
            if not held.end_sent:
                log.error("channel_refused", channel=facts.session_vk.hex(), why=refusal.message)
                await held.end()

    async def settled(self, job: str) -> list[ChannelPayer]:
        """The job's channels, once each that asked for its end has ended on chain."""
        while True:
            mine = [held for held in self.channels(job) if held.end_sent]
            done = [await self.confirm(held) for held in mine]
            if all(done):
                return mine
            await anyio.sleep(_SLOW_S)

    async def resume(self, held: ChannelPayer) -> None:
        """What a restarted payer does first with each channel: learn what it may have forgotten."""
        if not held.facts.open_tx and held.terms:
            await self._take_up(held)
        try:
            row = cast(Json, await self.http.get(f"/v1/channels/{held.session_vk.hex()}"))
            await held.catch_up(_voucher(held.session_vk, row.get("voucher")))
        except Refusal as refusal:
            log.info("channel_unread", code=refusal.code, why=refusal.message)
        if held.facts.open_tx:
            try:
                await self._claims(held)
            except (ChannelUnknown, ChainFault) as error:
                log.info("channel_unseen", why=error.message)

    async def _claims(self, held: ChannelPayer) -> None:
        """What the chain shows that this key signed. A door's word on what was claimed is none of
        its signatures: claimed beyond all of them, the chain is false or the key is somebody else's
        too.
        """
        facts = held.facts
        at = OutRef(bytes.fromhex(facts.open_tx), facts.index)
        found = await self.till.look(held.session_vk, at, facts.asset)
        if found.claimed <= held.book.signed:
            return
        await held.catch_up(await self.till.shown(found))
        if found.claimed > held.book.signed:
            await held.halt(
                ClaimUnsigned(
                    f"channel {held.session_vk.hex()[:16]}: {found.claimed} are claimed on the"
                    f" chain, and no signature over more than {held.book.signed} is shown",
                    claimed=found.claimed,
                    signed=held.book.signed,
                )
            )

    async def _take_up(self, held: ChannelPayer) -> None:
        """The open transaction that a crash kept out of the book, if there is one."""
        terms = next(iter(held.terms.values())).terms
        try:
            found = await self.till.find_open(terms)
        except ChannelTwice as refusal:
            await held.halt(refusal)
        except (
            KeyUsed,
            OpenUnsure,
        ) as error:  # asked again when the quote is accepted, if it still is
            log.warning("open_unsure", channel=held.session_vk.hex(), why=error.message)
        else:
            if found is not None:
                await held.opened(found.tx_id.hex(), found.index, None)


def _pause(view: Json) -> float:
    """Seconds until the next look at a job."""
    return 2.0 if view["state"] in ("RUNNING", "PAUSED") else _SLOW_S


_GONE: Final = frozenset({"PROVIDER_LOST", "QUOTE_EXPIRED", "DECLINED"})


def secrets_here(names: Sequence[str]) -> dict[str, str]:
    """The values of *names* from the environment; :class:`SecretMissing`."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise SecretMissing(f"not set in the environment: {', '.join(missing)}")
    return {name: os.environ[name] for name in names}


def _voucher(session_vk: bytes, value: object) -> Voucher | None:
    """The market's latest voucher, if it has one; its signature is checked by who uses it."""
    if not isinstance(value, dict):
        return None
    row = cast(Json, value)
    try:
        return Voucher(session_vk, int(row["cumulative"]), bytes.fromhex(str(row["signature"])))
    except (KeyError, ValueError) as error:
        raise Malformed(f"the channel's voucher cannot be read: {error}") from error
