"""A gang from the consumer's side: every member's quote is checked before the first one is
signed. One that waits for places has none yet, so no money is moved and no key is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import structlog

from marketplace.client.clusters.keeper import Keeper
from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.jobs.runner import JobOver, Runner
from marketplace.client.net.answers import GangAnswer
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read
from marketplace.client.sdk.job import Job
from marketplace.domain.errors import Fault, Malformed, Refusal
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.roles import named

ConfirmAll = Callable[[Sequence[CheckedQuote]], Awaitable[bool]]
"""Sees what all members will cost; False declines."""
OnWait = Callable[[str], Awaitable[None]]
"""Hears once that the gang waits for places, and why."""
LOOK_S: Final = 1.0
_STOP_S: Final = 10.0

log = structlog.get_logger("tally.client")


@dataclass
class Gang:
    """The members' jobs, in their order; each is an ordinary job. *keeper* orders what they do
    where the gang is a cluster; *roles* are the members', none where they are equal.
    """

    id: str
    members: list[Job]
    http: Http
    keeper: Keeper | None = None
    roles: tuple[str, ...] = ()

    def name(self, at: int) -> str:
        """Of a member, for people: its number, and its role where it has one."""
        return f"{at} {self.roles[at]}" if self.roles else str(at)

    @property
    def stage(self) -> str:
        """Where the cluster stands (``clusters.stage``), in lower case; empty for other gangs."""
        return self.keeper.stage.name.lower() if self.keeper is not None else ""

    @property
    def spent(self) -> int:
        """Lovelace approved so far, by all."""
        return sum(job.spent for job in self.members)

    @property
    def completed(self) -> bool:
        """Every member ended as it should."""
        return all(job.completed for job in self.members)

    async def stop(self) -> None:
        """Ask for the end of all; what was delivered until then is owed."""
        await self.http.post(f"/v1/gangs/{self.id}/stop", {})

    async def wait(self) -> None:
        """Until all have ended."""
        for job in self.members:
            await job.wait()


def roles(spec: JobSpec) -> tuple[str, ...]:
    """Of each member, by its number; none where they are equal."""
    return tuple(one.name for one in named(spec.roles))


async def post(runner: Runner, loaded: LoadedJob, key: str = "") -> GangAnswer:
    """Upload the files and post the gang; the market's view of it."""
    members = loaded.spec.members()
    await runner.upload(loaded)
    sessions = [runner.purse.new_session() for _ in members]
    body = {
        "spec": loaded.spec.to_wire(),
        "session_vks": [session.verify_key.hex() for session in sessions],
        "consumer_vkh": runner.purse.signer.key_hash.hex(),
    }
    try:
        gang = read(GangAnswer, await runner.http.post("/v1/gangs", body, key), "gang")
    except Refusal:
        runner.not_posted(sessions)
        raise
    shown = gang["members"]
    if len({view["id"] for view in shown}) != len(members):
        raise Malformed(f"the market shows other members than the {len(members)} of this gang")
    for view, spec in zip(shown, members, strict=True):
        runner.took(view["id"], spec, member=True)
    return gang


async def agree(
    runner: Runner, gang: GangAnswer, confirm: ConfirmAll | None, waits: OnWait | None = None
) -> bool:
    """Wait for the quotes of all members and check them, ask, and only then sign and open all their
    channels by one transaction; False when *confirm* declined.

    A refusal on the way ends the gang: nobody pays on for a part of it. A fault leaves the quotes
    as they are: accepting again is safe.
    """
    try:
        await _placed(runner, gang, waits)
        views = [await runner.quoted(member["id"]) for member in gang["members"]]
        offers = [await runner.consider(view) for view in views]
        if confirm is not None and not await confirm(offers):
            await _stop(runner, gang)
            return False
        await _all_stand(runner, gang)
        await runner.agreements.open_together(offers)
        for offered in offers:
            await runner.answer(offered, yes=True)
    except Refusal:
        with anyio.CancelScope(shield=True):
            await _stop(runner, gang)
        raise
    return True


async def _placed(runner: Runner, gang: GangAnswer, waits: OnWait | None) -> None:
    """Until it stands in no queue any more, however long that takes, also while the market is away.
    Where this is given up meanwhile the gang is ended: nobody would answer its quotes.
    """
    try:
        while True:
            queued = [one for one in gang["members"] if one["state"] == JobState.QUEUED.name]
            if not queued:
                return
            if waits is not None:
                await waits(queued[0]["message"])
                waits = None
            await anyio.sleep(LOOK_S)
            try:
                answer = await runner.http.get(f"/v1/gangs/{gang['id']}")
            except Fault as fault:
                log.info("waits", gang=gang["id"], error=fault.line())
                continue
            gang = read(GangAnswer, answer, "gang")
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_STOP_S, shield=True):
            await _stop(runner, gang)
        raise


async def _all_stand(runner: Runner, gang: GangAnswer) -> None:
    """JobOver if one of the quotes fell away meanwhile: no channel is opened for the others."""
    now = read(GangAnswer, await runner.http.get(f"/v1/gangs/{gang['id']}"), "gang")
    for view in now["members"]:
        if view["state"] != JobState.QUOTED.name:
            raise JobOver(f"{view['id']} is not quoted any more: {view['reason'] or view['state']}")


async def _stop(runner: Runner, gang: GangAnswer) -> None:
    await runner.http.post(f"/v1/gangs/{gang['id']}/stop", {})
