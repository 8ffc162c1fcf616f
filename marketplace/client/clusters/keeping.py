"""The clusters of one process: each is kept by whoever pays for its members, and taken up again by
whoever takes their channels up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
import anyio.abc
import structlog

from marketplace.client.clusters.core import Rules
from marketplace.client.clusters.guests import Guests
from marketplace.client.clusters.keeper import Keeper
from marketplace.client.jobs.runner import Runner
from marketplace.client.net.answers import GangAnswer, JobAnswer
from marketplace.client.net.reading import AnswerUnreadable, read
from marketplace.domain.errors import Halt, TallyError
from marketplace.domain.work.job import JobSpec

log = structlog.get_logger("tally.cluster")
LOOK_S: Final = 1.0


class Keeping:
    """Of the jobs that *runner* follows; its keepers run in *tasks*."""

    def __init__(self, runner: Runner, tasks: anyio.abc.TaskGroup) -> None:
        self._runner, self._tasks = runner, tasks
        self._keepers: dict[str, Keeper] = {}

    async def run(self) -> None:
        """Until cancelled: whatever cluster is followed is kept."""
        while True:
            for gang in self._runner.clusters() - self._keepers.keys():
                try:
                    await self._take_up(gang)
                except Halt:
                    raise
                except TallyError as error:  # its members are paid for as they were ordered
                    log.warning("cluster_not_kept", gang=gang, code=error.code, why=error.message)
            await anyio.sleep(LOOK_S)

    def keep(self, gang: str, jobs: Sequence[str], spec: JobSpec) -> Keeper:
        """Keep the cluster *spec* whose members are *jobs*, from now on."""
        assert spec.cluster is not None and spec.gang is not None
        rules = Rules.of(spec.cluster, spec.gang.members)
        made = self._keepers[gang] = Keeper(
            self._runner.http, self._runner.payers, gang, jobs, rules,
            Guests(self._runner.purse.home, gang),
        )  # fmt: skip
        self._tasks.start_soon(made.run)
        return made

    async def _take_up(self, gang: str) -> None:
        answer = await self._runner.http.get(f"/v1/gangs/{gang}")
        members = read(GangAnswer, answer, "gang")["members"]
        specs = [self._agreed(view) for view in members]
        whole = {spec.group for spec in specs}
        if len(whole) != 1 or [spec.member for spec in specs] != list(range(len(specs))):
            raise AnswerUnreadable(f"{gang}: the market shows what is no cluster")
        if specs[0].cluster is None or specs[0].gang is None:
            raise AnswerUnreadable(f"{gang}: the market shows what is no cluster")
        if gang not in self._keepers:
            log.info("cluster_taken_up", gang=gang)
            self.keep(gang, [view["id"] for view in members], specs[0])

    def _agreed(self, view: JobAnswer) -> JobSpec:
        """What a member runs, as it was signed for where it was."""
        spec = JobSpec.from_wire(view["spec"])
        for held in self._runner.channels.of(view["id"]):
            for lease in held.book.leases.values():
                if lease.terms.job == view["id"] and lease.terms.work != spec.hash:
                    raise AnswerUnreadable(f"{view['id']}: the market shows another job")
        return spec
