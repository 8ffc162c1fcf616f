"""``tally job run`` for a job file with a gang: one question, one channel a member, one bill in the
end.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

import anyio
import anyio.to_thread

from marketplace.cli.shared.options import Where
from marketplace.cli.shared.paying import PAY_ON, SETTLE_S, Wish, at_market, kept_text, offered_text
from marketplace.cli.shared.printing import confirm_spend, print_json
from marketplace.cli.shared.refusals import DONE, JOB_FAILED
from marketplace.cli.shared.screen import err, out
from marketplace.client.clusters.keeper import Change
from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.payer.standing_by import somebody_pays
from marketplace.client.sdk.gang import Gang, roles
from marketplace.client.sdk.job import Job
from marketplace.domain.units import show_ada


async def run_gang(where: Where, loaded: LoadedJob, wish: Wish) -> int:
    """Quote all, ask once, pay, follow; the exit code."""

    async def confirm(offers: Sequence[CheckedQuote]) -> bool:
        names = roles(loaded.spec) or [""] * len(offers)
        told = [
            f"{f'member {at} {name}'.strip()}\n{offered_text(one, wish.prices)}"
            for at, (name, one) in enumerate(zip(names, offers, strict=True))
        ]
        most = sum(one.quote.terms.ceiling for one in offers)
        text = "\n".join([*told, f"together   at most {show_ada(most)}"])
        if not wish.as_json or not wish.yes:
            await anyio.to_thread.run_sync(confirm_spend, "" if wish.as_json else text, wish.yes)
        return True

    async def waits(why: str) -> None:
        err.print(f"waits for places, and holds none: {why}; ^C ends it", markup=False)

    async with at_market(where, keep=wish.keep) as opened:
        if wish.detach:
            somebody_pays(opened.runner.purse.channels, opened.url)
        gang = await opened.run_gang(loaded, confirm=confirm, waits=waits)
        if gang.keeper is not None and not wish.detach:
            gang.keeper.listen(_changed)
        if wish.detach:
            _say(gang, wish, False)
            return DONE
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, gang)
            if not wish.as_json:
                for at, job in enumerate(gang.members):
                    tasks.start_soon(_logs, at, job)
            await gang.wait()
            with anyio.move_on_after(2.0):  # what they printed last is still on its way
                await anyio.sleep(1.0)
            tasks.cancel_scope.cancel()
        if wish.outputs is not None:
            for at, job in enumerate(gang.members):
                for path in await job.download(wish.outputs / str(at)):
                    err.print(f"output {path}", markup=False)
        settled = all([await job.settled(SETTLE_S) for job in gang.members])
        _say(gang, wish, settled)
        return DONE if gang.completed else JOB_FAILED


async def _stop_on_signal(gang: Gang) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        asked = False
        async for _ in signals:
            if asked:
                raise KeyboardInterrupt
            asked = True
            err.print("stopping the gang; once more leaves it running", markup=False)
            await gang.stop()


def _changed(change: Change) -> None:
    err.print(change.words, markup=False, style="yellow" if change.code else "")


async def _logs(at: int, job: Job) -> None:
    await job.running()
    async for line in job.logs():
        out.print(f"[{at}] {line}", markup=False, highlight=False, soft_wrap=True)


def _say(gang: Gang, wish: Wish, settled: bool) -> None:
    rows = [
        {"job": job.id, "state": job.state, "reason": job.reason, "exit_code": job.exit_code,
         "spent": job.spent, "kept": job.kept}
        | ({"role": gang.roles[at]} if gang.roles else {})
        for at, job in enumerate(gang.members)
    ]  # fmt: skip
    if wish.as_json:
        told = {"gang": gang.id, "members": rows, "spent": gang.spent, "settled": settled}
        print_json(told | ({"cluster": gang.stage} if gang.stage else {}))
        return
    for at, row in enumerate(rows):
        told = f"{row['state']} {row['reason']}".strip() or "STARTING"
        out.print(
            f"member {gang.name(at)}  {row['job']}  {told}  {show_ada(gang.members[at].spent)}",
            markup=False,
        )
    if wish.detach:
        out.print(f"{gang.id} runs; {PAY_ON}", markup=False)
    else:
        told = f"{gang.id}: {show_ada(gang.spent)}{kept_text(gang.members)}"
        out.print(told, markup=False)
