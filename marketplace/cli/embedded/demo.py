"""``tally demo``: the whole story once, on a fresh throw-away state; exit 0 only if the bill
reconciles.

A CPU job and a GPU job run at the same time in real containers, each over its own channel. At the
end the bill is recomputed from the signed receipts and compared with the ledger, and every lovelace
that the faucet gave is found again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import httpx
import typer

from marketplace.chain.encoding.address import channel_address
from marketplace.chain.node.blockfrost import ChainReader, connect, deployment_address
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.cli.embedded.containers import Containers
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import gpus_to_simulate, interruptible, start
from marketplace.cli.shared.options import Json
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import JOB_FAILED
from marketplace.cli.shared.screen import err, out
from marketplace.client.net.answers import JobAnswer
from marketplace.client.sdk.job import Job
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Refusal
from marketplace.domain.isolation import Isolation
from marketplace.domain.metering.kinds import KINDS
from marketplace.domain.metering.reading import Cause
from marketplace.domain.money.address import Credential
from marketplace.domain.money.invoice.bill import Invoice, Line
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.units import LOVELACE_PER_ADA, show_ada
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import GpuNeed, Placement, Policy, Price, Range, Resources

app = typer.Typer(
    help="Tell the whole story once, on throw-away state, and prove it.", rich_markup_mode=None
)
_PURSE: Final = 300 * LOVELACE_PER_ADA
_SETTLE_WITHIN_S: Final = 90.0
_OUTSIDE: Final = (Cause.PULLING, Cause.STARTING)  # before the container's own life
_SCRIPT: Final = """
import sys, time
for second in range(6):
    print(f"{sys.argv[1]}: second {second}", flush=True)
    time.sleep(1)
"""


class NotReconciled(Refusal):
    """Receipts, vouchers and ledger do not agree."""

    code = "NOT_RECONCILED"
    remedy = "this is a defect of ours: please report it with the printed figures"


@dataclass
class Story:
    """What happened, for the last line."""

    jobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    invoices: list[Invoice] = field(default_factory=list[Invoice])
    transactions: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])


@app.command()
def demo(
    as_json: Json = False,
    simulate: Annotated[str, typer.Option(help="Simulated GPUs, such as h100x2.")] = "",
    keep: Annotated[bool, typer.Option(help="Keep the throw-away state and say where.")] = False,
) -> None:
    """A devnet, a market and an adapter start; two jobs run, are paid by the second, and
    reconcile.
    """
    home = Path(tempfile.mkdtemp(prefix="tally-demo-"))
    result: dict[str, Any] = {"reconciled": False}
    try:
        result = anyio.run(_demo, home, gpus_to_simulate(simulate), as_json) or result
    finally:
        if keep:
            err.print(f"state kept in {home}", markup=False)
        else:
            shutil.rmtree(home, ignore_errors=True)
    if as_json:
        print_json(result)
    if not result["reconciled"]:
        sys.exit(JOB_FAILED)


async def _demo(home: Path, simulate: str, as_json: bool) -> dict[str, Any] | None:
    begun = time.monotonic()

    def say(text: str) -> None:
        screen = err if as_json else out
        screen.print(f"[dim]{time.monotonic() - begun:5.1f} s[/]  {text}")

    place = Embedded(home, simulate=simulate, block_ms=500, resume_window="15s")
    place.prepare()
    async with interruptible():
        try:
            say("a Cardano ledger, a market and a provider's adapter start, each a process")
            await start(place, _PURSE)
            say(f"an offer is listed{', GPUs SIMULATED' if simulate else ''}; a purse has money")
            return await _tell(place, await place.purse("consumer"), say, as_json)
        finally:
            with anyio.CancelScope(shield=True):
                await place.stop()
                await place.sweep()  # a job that was cut short would live on
    return None


async def _tell(place: Embedded, purse: Purse, say: Any, as_json: bool) -> dict[str, Any]:
    story = Story()
    async with (
        Containers() as containers,
        Market(place.market_url, wallet=purse, chain_url=place.chain_url, keep=AT_ONCE) as market,
    ):
        await _wait_for_offer(market)
        async with anyio.create_task_group() as both:
            both.start_soon(_job, market, _spec("cpu", place), say)
            both.start_soon(_job, market, _spec("gpu", place), say)
        for view in reversed(await market.jobs()):
            job = market.job(str(view["id"]))
            await _account(job, story, say)
        chain = await connect(place.chain_url)
        await _against_docker(story, containers)
        figures = await _conserved(place, chain, purse, story)
    return _result(story, figures, as_json)


async def _wait_for_offer(market: Market) -> None:
    with anyio.fail_after(30, reason="no provider offered anything within 30 s"):
        while not await market.offers():  # noqa: ASYNC110  a read, no event
            await anyio.sleep(0.2)


def _spec(kind: str, place: Embedded) -> JobSpec:
    gpu = GpuNeed(count=Range(1, 1)) if kind == "gpu" else None
    return JobSpec(
        name=f"demo-{kind}",
        image=place.image,
        command=("python3", "-c", _SCRIPT, kind),
        placement=Placement(isolation=Isolation.CONTAINER if place.image else Isolation.PROCESS),
        resources=(Resources(cpu=Range(500 if gpu else 1000), memory=Range(128), gpu=gpu),),
        price=Price(budget=5 * LOVELACE_PER_ADA),
        policy=Policy(max_duration_ms=120_000),
    )


async def _job(market: Market, spec: JobSpec, say: Any) -> None:
    job = await market.run(spec)
    say(f"{spec.name}: matched, terms signed by both, a channel opened on chain")
    async for line in job.logs():
        say(f"{spec.name} │ {line}")
    view = await job.wait()
    say(f"{spec.name}: {view['reason']}; its bill is claimed and the rest sent home")
    if not await job.settled(_SETTLE_WITHIN_S):
        raise NotReconciled(f"{spec.name} was not settled within {_SETTLE_WITHIN_S:.0f} s")


async def _account(job: Job, story: Story, say: Any) -> None:
    """One job's bill, recomputed from its receipts and compared with the ledger."""
    view = await job.refresh()
    if view["reason"] != "COMPLETED":
        story.refused.append(f"{job.id} ended {view['reason']}: {view['message']}")
    invoice = await job.invoice(verify=True)
    if not invoice.reconciled:
        story.refused.append(f"{job.id}: the ledger does not show what was signed for")
    story.invoices.append(invoice)
    story.transactions += [tx["id"] for tx in view["transactions"]]
    for line in invoice.lines:
        story.jobs.append(_shown(line, view))
        mark = "  [yellow]SIMULATED[/]" if view["simulated"] else ""
        say(
            f"[bold]{view['name']}[/] {view['reason']}  {line.unit_ms / 1000:.3f}"
            f" {KINDS[line.resource].word}-seconds, {line.ticks} ticks, {line.owed} lovelace{mark}"
        )


def _shown(line: Line, view: JobAnswer) -> dict[str, Any]:
    return {
        "resource": line.resource,
        "device": view["device"],
        "simulated": view["simulated"],
        "unit_ms": line.unit_ms,
        "rate_micro": line.rate_micro,
        "owed": line.owed,
        "ticks": line.ticks,
        "lease": line.lease,
        "units_milli": line.units_milli,
        "lost_ms": sum(lost.ms for lost in line.lost if lost.cause not in _OUTSIDE),
    }


async def _against_docker(story: Story, containers: Containers) -> None:
    """The meter against Docker's own times: within a second times what was held.

    On a busy machine a voucher may be late: the workload is frozen for a moment, which Docker
    counts and the bill does not, but shows as lost.
    """
    for job in story.jobs:
        docker_ms = await containers.ran_ms(job["lease"])
        if docker_ms is None:
            continue  # the process runtime: its own times are the only ones
        job["docker_ms"] = docker_ms
        held = job["unit_ms"] + job["lost_ms"] * job["units_milli"] // 1000
        most = job["units_milli"]  # a second, in unit-milliseconds
        if abs(docker_ms * job["units_milli"] // 1000 - held) > most:
            story.refused.append(f"{job['lease']}: metered {held}, Docker says {docker_ms} ms")


async def _conserved(
    place: Embedded, chain: ChainReader, purse: Purse, story: Story
) -> dict[str, int]:
    """What the ledger says of all money: per channel and over the whole chain."""
    totals = [total for invoice in story.invoices for total in invoice.channels]
    claimed = sum(t.claimed or 0 for t in totals)
    refunded = sum(t.refunded or 0 for t in totals)
    funded = sum(t.funded or 0 for t in totals)
    if funded != claimed + refunded:
        story.refused.append(f"opened {funded} is not claimed {claimed} + refunded {refunded}")
    owed = sum(job["owed"] for job in story.jobs)
    if owed != claimed:
        story.refused.append(f"owed {owed} is not claimed {claimed}")
    root = place.chain_url.removesuffix("/api/v0")
    async with httpx.AsyncClient(trust_env=False) as http:
        sums = (await http.get(f"{root}/devnet/status")).json()["lovelace"]
    wallets = purse.wallet(mainnet=False)
    scripts = scripts_for()
    known = {wallets.address, *(await place.wallets()), deployment_address(scripts, False)}
    held = 0
    for address in known:
        held += sum(u.lovelace for u in await chain.utxos(address))
    assert wallets.stake is not None
    locked = channel_address(scripts.stub_hash, Credential(wallets.stake), False)
    held += sum(u.lovelace for u in await chain.utxos(locked))
    gone = sums["other_fees"] + sums["deposits"]
    if sums["faucet_paid"] != held + gone:
        story.refused.append(
            f"the faucet gave {sums['faucet_paid']}; {held} are held and {gone} went to fees and"
            " deposits"
        )
    return {"claimed": claimed, "refunded": refunded, "fees": sums["other_fees"], "funded": funded}


def _result(story: Story, figures: dict[str, int], as_json: bool) -> dict[str, Any]:
    screen = err if as_json else out
    for why in story.refused:
        screen.print(f"[bold red]{NotReconciled.code}[/]: ", end="")
        screen.print(why, markup=False)
    reconciled = not story.refused and len(story.jobs) == 2
    if reconciled:
        screen.print(
            f"[bold green]reconciled[/]: opened {show_ada(figures['funded'])} = claimed "
            f"{figures['claimed']} lovelace + sent home {show_ada(figures['refunded'])}; receipts, "
            "vouchers and ledger agree to the lovelace"
        )
    return {
        "reconciled": reconciled,
        "jobs": story.jobs,
        "claimed": figures["claimed"],
        "refunded": figures["refunded"],
        "fees": figures["fees"],
        "transactions": sorted(set(story.transactions)),
    }
