"""Keeps one service: looks at its replicas, decides (:mod:`.core`), and performs; for as long as it
is wanted.

Whoever keeps it pays for it: a replica is a job of this process's purse. Where the process ends
without being asked to end the service, the jobs run on until nobody has paid for them for too long;
the next keeper takes them up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import anyio
import anyio.abc
import httpx
import structlog

from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.net.answers import ServiceAnswer
from marketplace.client.net.reading import read
from marketplace.client.sdk.market import Market, QuoteDeclined
from marketplace.client.services.core import (
    ALIVE,
    Falls,
    Forget,
    Kept,
    Look,
    Post,
    Replica,
    Rotate,
    Step,
    Stop,
    decide,
)
from marketplace.client.services.folder import ServiceFolder, Standing
from marketplace.client.services.scaling import Scaling
from marketplace.client.services.stage import Stage
from marketplace.domain.errors import Halt, NotFound, Refusal, TallyError
from marketplace.domain.money.terms import Terms
from marketplace.domain.units import show_ada, show_duration
from marketplace.domain.work.job import TOLD_REVISION, TOLD_SERVICE, JobSpec
from marketplace.domain.work.service import ServiceSpec

log = structlog.get_logger("tally.service")
TURN_S: Final = 1.0
NO_MATCH: Final = "NO_MATCH"  # as a refusal, or as the end of a job that found no place
WAIT_S: Final = 10  # for a request, where there is no replica
STOP_AGAIN_MS: Final = 5_000
_UNAUTHORIZED: Final = 401
_BAD: Final = 400
_PROBLEM: Final = b"urn:tally:problem:"


class CostCapped(Refusal):
    """Another replica would cost more an hour than the service may."""

    code = "SERVICE_COST_CAPPED"
    remedy = "raise service.max_per_hour, or lower replicas or the job's price caps"


class TooShort(Refusal):
    """A replica would end before another can take its place in time."""

    code = "REPLICA_TOO_SHORT"
    remedy = "raise policy.max_duration and price.budget, which are each replica's"


class Keeper:
    """Of the service of *folder*, at *market*; *told* hears what happens, a line at a time."""

    def __init__(self, market: Market, folder: ServiceFolder, told: Callable[[str], None]) -> None:
        self.market, self.folder = market, folder
        self._told = told
        self._wanted = folder.wanted()
        self._kept = Kept(self._wanted.service, self._wanted.revision)
        self._scaling = Scaling(folder)
        self._posting = 0
        self._said = ""
        self._unknown = False  # the market has no such service: it was ended there
        self._fit: dict[str, tuple[int, bool]] = {}  # by job: when it was asked, and how it was
        self._asked: dict[str, int] = {}
        self._stopped: dict[str, int] = {}
        self._url = ""

    # ---- for as long as it is wanted ----------------------------------------------------------

    async def run(self) -> None:
        """Until the service is wanted no more and its last replica has ended."""
        await self._take_up()
        async with (
            anyio.create_task_group() as tasks,
            httpx.AsyncClient(base_url=self.market.url, trust_env=False) as client,
        ):
            while self._wanted.up or self._kept.replicas or self._posting:
                try:
                    if self._unknown:
                        await self._put()
                    await self._turn(tasks, client)
                except Halt:
                    raise
                except TallyError as error:  # the market is away, say: the replicas run on
                    self._unknown = error.code == NotFound.code
                    self._note(error.line())
                if self._wanted.up or self._kept.replicas or self._posting:
                    await anyio.sleep(TURN_S)
            tasks.cancel_scope.cancel()
        await self._end()

    async def _take_up(self) -> None:
        """What a keeper before this one left running."""
        standing = self.folder.standing()
        known = {one.job for one in standing.replicas}
        self._kept = replace(self._kept, replicas=standing.replicas)
        begun = set(await self.market.resume_all())
        for name in known - begun:
            self.market.attach(name)
        for name in begun - known:
            await self._adopt(name)
        await self._put()
        self._say(f"{self.folder.name} {self._url}".rstrip())

    async def _adopt(self, name: str) -> None:
        """A job that was agreed to when the keeper before this one died, and is in no book of its
        own: its own words say whose it is.
        """
        view = await self.market.runner.view(name)
        spec = JobSpec.from_wire(view["spec"])
        held = [one for one in self.market.runner.channels.of(name) if view["state"] != "ENDED"]
        if spec.env.get(TOLD_SERVICE) == self.folder.name and held:
            leases = held[-1].book.leases.values()
            terms = next(one.terms for one in leases if one.terms.job == name)
            self._add(name, terms, spec.env.get(TOLD_REVISION, ""))
            self._say(f"{name} is taken up again")

    async def _put(self) -> None:
        """The market knows the service as it is wanted."""
        spec = self._wanted.service
        how = {"auth": spec.auth, "sticky": spec.sticky, "hold_ms": spec.hold_ms}
        answer = await self.market.http.put_json(f"/v1/services/{self.folder.name}", how)
        self._url, self._unknown = read(ServiceAnswer, answer, "service")["url"], False

    async def _end(self) -> None:
        try:
            await self.market.http.delete(f"/v1/services/{self.folder.name}")
        except TallyError as error:
            if error.code != NotFound.code:
                raise
        self.folder.forget()

    # ---- a turn -------------------------------------------------------------------------------

    async def _turn(self, tasks: anyio.abc.TaskGroup, client: httpx.AsyncClient) -> None:
        await self._read_wanted()
        view = await self._view()
        looks = {
            row["job"]: Look(
                row["state"], row["serving"], self._fitness(row["job"]), row["busy"],
                row["provider"],
            )
            for row in view["replicas"]
        }  # fmt: skip
        load = view["load"]
        self._look_at(tasks, client, looks)
        spec = self._wanted.service
        wanted = 0
        if self._wanted.up:
            wanted = self._scaling.wanted(spec.scale, load["busy"] + load["held"], now_ms())
        self._kept, steps = decide(
            replace(self._kept, spec=spec, revision=self._wanted.revision),
            looks, wanted, self._posting, now_ms(),
        )  # fmt: skip
        self._scaling.saw(self._kept.replicas, now_ms())
        for step in steps:
            try:
                await self._perform(tasks, step)
            except Halt:
                raise
            except TallyError as error:  # one word that the market refuses holds up no other
                self._note(error.line())
        self._stand()

    async def _view(self) -> ServiceAnswer:
        """The market's; where nothing runs and nothing is wanted, as soon as a request is held."""
        name = self.folder.name
        if self._wanted.up and not self._kept.replicas and not self._posting:
            if not self._wanted.service.scale.least:
                await self.market.http.get(f"/v1/services/{name}/load", wait_s=WAIT_S)
        return read(ServiceAnswer, await self.market.http.get(f"/v1/services/{name}"), "service")

    async def _read_wanted(self) -> None:
        new = self.folder.wanted()
        if new == self._wanted:
            return
        if new.revision != self._wanted.revision:
            self._say(f"revision {new.revision} takes the place of {self._wanted.revision}")
            self._kept = replace(self._kept, falls=Falls())
        if not new.up and self._wanted.up:
            self._say("ending: replicas finish what they have begun")
        self._wanted = new
        await self._put()

    def _stand(self) -> None:
        self.folder.stand(
            Standing(
                self._wanted.revision, self._kept.replicas, self._said, now_ms(),
                self._scaling.starts_ms, self._scaling.forecast,
            )
        )  # fmt: skip

    # ---- looks --------------------------------------------------------------------------------

    def _fitness(self, job: str) -> bool | None:
        """How the last look at it was, once."""
        found = self._fit.pop(job, None)
        return None if found is None else found[1]

    def _look_at(
        self, tasks: anyio.abc.TaskGroup, client: httpx.AsyncClient, looks: dict[str, Look]
    ) -> None:
        for one in self._kept.replicas:
            look = looks.get(one.job)
            runs = look is not None and look.state in ("RUNNING", "PAUSED")
            every = self._wanted.service.health.every_ms if one.stage is Stage.SERVING else 0
            due = now_ms() - self._asked.get(one.job, 0) >= every
            if one.stage in ALIVE and runs and due and one.job not in self._fit:
                self._asked[one.job] = now_ms()
                tasks.start_soon(self._ask, client, one.job)

    async def _ask(self, client: httpx.AsyncClient, job: str) -> None:
        spec = self._wanted.service
        path = f"/p/{job}/{spec.port}{spec.health.path or '/'}"
        headers = {"Authorization": f"Bearer {self.market.http.token}"}
        try:
            answer = await client.get(
                path, headers=headers, timeout=spec.health.timeout_ms / 1000, follow_redirects=False
            )
        except httpx.HTTPError:
            self._fit[job] = (now_ms(), False)
            return
        fit = _is_fit(answer, spec)
        if fit is not None:
            self._fit[job] = (now_ms(), fit)

    # ---- performing ---------------------------------------------------------------------------

    async def _perform(self, tasks: anyio.abc.TaskGroup, step: Step) -> None:
        name = self.folder.name
        match step:
            case Post(avoid):
                self._posting += 1
                tasks.start_soon(self._post, avoid)
            case Rotate(job, serving):
                body = {"port": self._wanted.service.port, "serving": serving}
                await self.market.http.put_json(f"/v1/services/{name}/replicas/{job}", body)
                self._say(f"{job} {'serves' if serving else 'gets nothing new'}")
            case Stop(job, why):
                first = job not in self._stopped
                if first or now_ms() - self._stopped[job] >= STOP_AGAIN_MS:
                    self._stopped[job] = now_ms()
                    await self.market.job(job).stop()
                if first:
                    self._say(f"{job} is stopped: {why}")
            case Forget(job):
                for known in (self._fit, self._asked, self._stopped):
                    known.pop(job, None)
                await self.market.http.delete(f"/v1/services/{name}/replicas/{job}")
                self._say(f"{job} has ended")

    async def _post(self, avoid: tuple[str, ...]) -> None:
        """Another replica: quoted, checked against what the service may cost, agreed to."""
        try:
            try:
                await self._posted(avoid)
            except Refusal as refusal:
                if not avoid or NO_MATCH not in (refusal.code, refusal.fields.get("reason")):
                    raise
                await self._posted(())
        except Halt:
            raise
        except TimeoutError:
            self._fell("no quote came in time: nothing was signed")
        except TallyError as error:
            self._fell(error.line())
        finally:
            self._posting -= 1

    def _fell(self, why: str) -> None:
        falls = self._kept.falls
        self._kept = replace(self._kept, falls=Falls(falls.count + 1, now_ms()))
        self._note(why)

    async def _posted(self, avoid: tuple[str, ...]) -> None:
        wanted, since_ms = self._wanted, now_ms()
        spec = wanted.job.spec
        placement = spec.placement
        away = (*placement.not_providers, *avoid)
        spec = replace(
            spec,
            placement=replace(placement, not_providers=tuple(dict.fromkeys(away))),
            policy=replace(spec.policy, retry_on=(), retry_max=0, queue=False),
            env={**spec.env, TOLD_SERVICE: self.folder.name, TOLD_REVISION: wanted.revision},
        )
        agreed: list[Terms] = []
        refused: list[Refusal] = []

        async def confirm(offered: CheckedQuote) -> bool:
            terms = offered.quote.terms
            try:
                self._check(terms, wanted.service)
            except Refusal as refusal:
                refused.append(refusal)
                return False
            agreed[:] = [terms]
            return True

        try:
            job = await self.market.run(LoadedJob(spec, wanted.job.blobs), confirm=confirm)
        except QuoteDeclined:
            raise refused[0] from None
        self._add(job.id, agreed[-1], wanted.revision)
        self._scaling.posted(job.id, since_ms)
        self._stand()
        body = {"port": wanted.service.port, "serving": False}
        await self.market.http.put_json(f"/v1/services/{self.folder.name}/replicas/{job.id}", body)
        self._say(f"{job.id} starts")

    def _check(self, terms: Terms, spec: ServiceSpec) -> None:
        """What it would cost with all that run, those that are to go too; how long it may last."""
        cost, cap = per_hour(terms), spec.most_per_hour
        others = sum(one.per_hour for one in self._kept.replicas)
        if cap and others + cost > cap:
            raise CostCapped(
                f"with another replica the service would cost {show_ada(others + cost)} an hour, "
                f"of at most {show_ada(cap)}"
            )
        least = 2 * (spec.health.start_ms + spec.drain_ms)
        if lasts_ms(terms) < least:
            raise TooShort(
                f"a replica could run for {show_duration(lasts_ms(terms))}, and "
                f"{show_duration(least)} is the least with such a start and drain"
            )

    def _add(self, job: str, terms: Terms, revision: str) -> None:
        made = Replica(
            job, revision, Stage.STARTING, now_ms(), lasts_ms(terms), per_hour=per_hour(terms),
            provider=terms.provider,
        )  # fmt: skip
        self._kept = replace(self._kept, replicas=(*self._kept.replicas, made))

    # ---- saying -------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        log.info("service", name=self.folder.name, what=line)
        self._told(line)

    def _note(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._say(line)


def per_hour(terms: Terms) -> int:
    """Lovelace that a lease costs in an hour of running, rounded up."""
    return -(-terms.rate_micro * terms.units_milli * 3600 // 1_000_000_000)


def lasts_ms(terms: Terms) -> int:
    """How long a lease can run: until its time or its ceiling is over."""
    each_ms = terms.rate_micro * terms.units_milli  # lovelace * 10^12 for a millisecond
    return min(terms.max_duration_ms, terms.ceiling * 1_000_000_000_000 // each_ms)


def now_ms() -> int:
    """Milliseconds UTC."""
    return time.time_ns() // 1_000_000


def _is_fit(answer: httpx.Response, spec: ServiceSpec) -> bool | None:
    """With a path of its own, an answer below 400; else any that is the workload's and not the
    market's. None: the market knows us no more; the next turn's reads sign in anew.
    """
    markets = _PROBLEM in answer.content[:200]
    if markets and answer.status_code == _UNAUTHORIZED:
        return None
    if spec.health.path:
        return answer.status_code < _BAD
    return not markets
