"""Keeps one relay: looks at its volume and at itself, decides (:mod:`.core`), and performs; for as
long as the process runs, which pays for both.

What is agreed to is written down at once; where a process died in between, the next finds the jobs
by their names and takes them up instead of renting twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.net.answers import JobAnswer, OfferAnswer
from marketplace.client.net.reading import read
from marketplace.client.relays.core import (
    Act,
    Fill,
    Held,
    Kept,
    Leave,
    Look,
    Rent,
    Rules,
    Seen,
    Start,
    decide,
    fell,
    filled,
    not_filled,
    posted,
    rented,
)
from marketplace.client.relays.folder import RelayFile
from marketplace.client.relays.stage import Stage
from marketplace.client.sdk import volume
from marketplace.client.sdk.market import Market
from marketplace.client.sdk.relay_standing import standing
from marketplace.domain.errors import Halt, Malformed, NotFound, TallyError
from marketplace.domain.supply.offer import offer_id
from marketplace.domain.work.direct_port import DirectPortsUnproven
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.volume import Mount
from marketplace.system import SystemClock

HOOK_S: Final = 60.0
LIVING: Final = ("STARTING", "RUNNING", "PAUSED")
"""A job that both sides signed, and that has not ended."""


@dataclass(frozen=True)
class Wanted:
    """The two job files. *snapshot*: an exported volume, or a folder of such, of which the newest
    counts; None without. *hook*: a line of the shell that hears of each new address.
    """

    chain: LoadedJob
    relay: LoadedJob
    snapshot: Path | None
    hook: str
    rules: Rules
    turn_s: float


class RelayKeeper:
    """Of the relay of *file*, at *market*; *told* hears what happens, a line at a time."""

    def __init__(
        self, market: Market, file: RelayFile, wanted: Wanted, told: Callable[[str], None]
    ) -> None:
        self.market, self.file = market, file
        self._wanted, self._told = wanted, told
        self._kept, self._said = file.read(), ""

    async def run(self) -> None:
        """Until it is cancelled: what runs then runs on."""
        for name in (self._kept.volume, self._kept.relay):
            if name:
                self.market.attach(name)
        while True:
            try:
                await self._turn()
            except Halt:
                raise
            except TallyError as error:  # the market is away, say: both run on
                self._note(error.line())
            await anyio.sleep(self._wanted.turn_s)

    async def _turn(self) -> None:
        kept, act = decide(self._kept, await self._look(), _now(), self._wanted.rules)
        if kept.stage is not self._kept.stage:
            self._say(_STORY[kept.stage].format(kept=kept))
        if isinstance(
            act, Leave
        ):  # before it is written that they are left: nobody stops them then
            await self._perform(act)
        self._keep(kept)
        if act is not None and not isinstance(act, Leave):
            await self._perform(act)
        if self._kept.place != self._kept.told:
            await self._tell()

    def _keep(self, kept: Kept) -> None:
        if kept != self._kept:
            self._kept = kept
            self.file.write(kept)

    # ---- looks --------------------------------------------------------------------------------

    async def _look(self) -> Seen:
        kept = self._kept
        if not kept.volume:
            return Seen()
        chain = await self.market.job(kept.volume).refresh()
        seen = Seen(Look(chain["state"], chain["provider"]), away_ms=await self._away(chain))
        return seen if not kept.relay else await self._look_at_relay(seen)

    async def _look_at_relay(self, seen: Seen) -> Seen:
        job = self.market.job(self._kept.relay)
        view = await job.refresh()
        if view["state"] != "RUNNING":
            return replace(seen, relay=Look(view["state"], view["provider"]))
        try:
            direct = await job.direct_ports()
        except (DirectPortsUnproven, Malformed) as error:  # whoever says so hides no loss by it
            self._note(error.line())
            direct = None
        story = [one async for one in job.events(follow=False)]
        stands = standing(view, None, story, _now(), direct)
        relay = Look(view["state"], view["provider"], stands.serves)
        return replace(seen, relay=relay, place=stands.place)

    async def _away(self, chain: JobAnswer) -> int:
        """For how long the volume's provider was not connected, ms."""
        if not chain["provider"]:
            return 0
        path = f"/v1/offers/{offer_id(chain['provider'])}"
        try:
            offer = read(OfferAnswer, await self.market.http.get(path), "offer")
        except NotFound:
            return 0  # nobody says that it is away
        since_ms = offer.get("away_since_ms", 0)
        return max(1, _now() - since_ms) if since_ms else 0

    # ---- performing ---------------------------------------------------------------------------

    async def _perform(self, act: Act) -> None:
        match act:
            case Rent(avoid):
                await self._rent(avoid)
            case Fill(job):
                await self._fill(job)
            case Start(job):
                await self._start(job)
            case Leave(jobs):
                for one in jobs:
                    await self._leave(one)
            case Held():
                most = self._wanted.rules.most
                self._note(f"replaced more than {most} times in 24 hours: nothing is rented now")

    async def _rent(self, avoid: tuple[str, ...]) -> None:
        spec = self._wanted.chain.spec
        found = await self._ours(spec)
        if found is not None:
            # One of before is as its owner left it; one that should replace another begins anew.
            self._keep(rented(self._kept, found["id"], fill=bool(self._kept.replaced_ms)))
            return
        placement = replace(spec.placement, not_providers=(*spec.placement.not_providers, *avoid))
        job = await self._run(
            LoadedJob(replace(spec, placement=placement), self._wanted.chain.blobs)
        )
        if job:
            self._keep(rented(self._kept, job, fill=True))

    async def _fill(self, job: str) -> None:
        snapshot = await anyio.to_thread.run_sync(newest, self._wanted.snapshot)
        if not self._kept.fill or snapshot is None:
            self._keep(filled(self._kept))
            return
        assert self.market.purse is not None  # whoever rents has one
        self._say(f"{snapshot} goes onto {job}")
        try:
            name = self._wanted.chain.spec.name
            await volume.imported(self.market.job(job), self.market.purse, name, snapshot)
        except volume.VolumeNotMoved as error:
            self._note(error.line())
            self._keep(not_filled(self._kept, _now()))
            return
        self._keep(filled(self._kept))

    async def _start(self, chain: str) -> None:
        spec, lease = self._wanted.relay.spec, (await self.market.job(chain).refresh())["lease"]
        own = self._wanted.chain.spec.name
        mounts = tuple(
            replace(one, volume=lease) if one.volume == own else one for one in spec.volumes
        )
        spec = replace(spec, volumes=mounts)
        found = await self._ours(spec)
        if found is not None and lease in _mounted(found):
            self._keep(posted(self._kept, found["id"]))
            return
        job = await self._run(LoadedJob(spec, self._wanted.relay.blobs))
        if job:
            self._keep(posted(self._kept, job))

    async def _run(self, loaded: LoadedJob) -> str:
        """Agreed to within the file's own limits: the job; empty where nobody took it."""
        try:
            return (await self.market.run(loaded)).id
        except Halt:
            raise
        except TimeoutError:
            self._note("no quote came in time: nothing was signed")
        except TallyError as error:
            self._note(error.line())
        self._keep(fell(self._kept, _now()))
        return ""

    async def _ours(self, spec: JobSpec) -> JobAnswer | None:
        """A living job of its name: one that a process before this one agreed to and died, or its
        owner's; the newest.
        """
        gone = {self._kept.volume, self._kept.relay} - {""}
        living = [one for state in LIVING for one in await self.market.jobs(state=state)]
        found = [
            one
            for one in living
            if (one["name"], one["kind"]) == (spec.name, spec.kind)
            and one["id"] not in gone and one["provider"] not in self._kept.left
        ]  # fmt: skip
        newest_one = max(found, key=lambda one: one["created_at_ms"], default=None)
        if newest_one is not None:
            self._say(f"{newest_one['id']} is taken up")
            self.market.attach(newest_one["id"])
        return newest_one

    async def _leave(self, job: str) -> None:
        try:
            await self.market.job(job).stop()
        except TallyError as error:  # it has ended, or its provider will hear of it once it is back
            self._note(error.line())

    async def _tell(self) -> None:
        """The hook of the new address; one that fails hears of it again."""
        kept = self._kept
        self._say(f"its peers reach it at {kept.place}")
        if self._wanted.hook:
            env = {
                **os.environ, "RELAY_NAME": self.file.name, "RELAY_PLACE": kept.place,
                "RELAY_BEFORE": kept.told,
            }  # fmt: skip
            with anyio.move_on_after(HOOK_S) as late:
                command = ["sh", "-c", self._wanted.hook]
                done = await anyio.run_process(
                    command, env=env, check=False, stdout=None, stderr=None
                )
                if done.returncode:
                    self._note(f"the hook failed with exit code {done.returncode}: once more soon")
                    return
            if late.cancelled_caught:
                self._note(f"the hook took more than {HOOK_S:.0f} s: once more soon")
                return
        self._keep(replace(self._kept, told=kept.place))

    # ---- words --------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        self._told(f"{self.file.name}: {line}")

    def _note(self, line: str) -> None:
        """Said once, until it is another."""
        if line != self._said:
            self._said = line
            self._say(line)


_STORY: Final = {
    Stage.VOLUME_WANTED: "it begins elsewhere: the host of its chain is gone",
    Stage.VOLUME_STARTING: "its volume starts",
    Stage.FILLING: "its volume {kept.volume} is there",
    Stage.RELAY_WANTED: "its relay ended, and is started anew",
    Stage.RELAY_STARTING: "it starts as {kept.relay}",
    Stage.SERVING: "{kept.relay} is at its tip",
}


def newest(path: Path | None) -> Path | None:
    """*path*, or the file in it that was written last; None where there is none."""
    if path is None or not path.exists():
        return None
    if not path.is_dir():
        return path
    files = [one for one in path.iterdir() if one.is_file() and not one.name.startswith(".")]
    return max(files, key=lambda one: one.stat().st_mtime_ns, default=None)


def _mounted(job: JobAnswer) -> set[str]:
    mounts: tuple[Mount, ...] = JobSpec.from_wire(job["spec"]).volumes
    return {one.volume for one in mounts}


def _now() -> int:
    return SystemClock().now_ms()
