"""``tally invoice``: a job's bill, recomputed here from what both sides signed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
import typer

from marketplace.cli.shared.consumer import reading
from marketplace.cli.shared.options import DEFAULT_MARKET, ChainUrl, Home, Json, ProjectId, Where
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.refusals import UsageError, guarded
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.tables import with_fees
from marketplace.domain.errors import NotFound
from marketplace.domain.metering.kinds import KINDS, show_rate
from marketplace.domain.money.evidence import Evidence, evidence_to_json, read
from marketplace.domain.money.invoice.bill import HopTotal, Invoice, RouteLine, Total
from marketplace.domain.money.invoice.verify import reconcile
from marketplace.domain.units import show_ada, show_duration

JOB = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What an id looks like; anything else names a file."""


class EvidenceMissing(NotFound):
    """The file is not there."""

    code = "FILE_NOT_FOUND"
    remedy = "check the path, or name a job: `tally job list` shows yours"


app = typer.Typer(help="Recompute a job's bill.", rich_markup_mode=None)


@app.command()
def invoice(
    home: Home,
    job: Annotated[str, typer.Argument(help="The job's id, or a file that --save wrote.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare it with the ledger as well.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Keep the evidence in this file, for any verifier.")
    ] = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """Recompute JOB's bill from receipts, terms and vouchers; exit 3 and the rule if it does not
    hold.

    Where this purse has books of the job, what they know and the evidence lacks is said by name.
    """
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        evidence = await _evidence(where, job)
        if save is not None:
            await anyio.Path(save).write_text(
                json.dumps(evidence_to_json(evidence), indent=1) + "\n"
            )
        if verify:
            if not chain_url:
                raise UsageError(
                    "--verify needs a chain of your own: --chain-url or TALLY_CHAIN_URL"
                )
            from marketplace.chain.node.blockfrost import connect
            from marketplace.client.jobs import verifier

            chain = await connect(chain_url, project_id)
            bill = await verifier.verify(evidence, chain)
            fees = await verifier.network_fees(evidence, chain)
        else:
            bill, fees = reconcile(evidence), None
        from marketplace.client.payer import own_books

        await anyio.to_thread.run_sync(own_books.compare, where.home / "channels", evidence)
        if as_json:
            total = None if fees is None else bill.owed + bill.route_fee + fees
            more = {"network_fees": fees, "total": total, "verified": verify}
            print_json({**bill.to_json(), **more})
        else:
            show(bill, verified=verify, fees=fees)

    guarded(lambda: anyio.run(story))


async def _evidence(where: Where, job: str) -> Evidence:
    path = anyio.Path(job)
    if await path.is_file():
        return read(await path.read_bytes())
    if await path.exists() or not JOB.fullmatch(job):
        raise EvidenceMissing(f"{job}: no such file")
    async with reading(where) as opened:
        return await opened.job(job).evidence()


def show(bill: Invoice, *, verified: bool, fees: int | None = None) -> None:
    """For people: one line a lease, one for each cause of lost time, one a channel; *fees*: what
    the network took of the consumer, None where no chain said so.
    """
    rows: list[tuple[object, ...]] = []
    for line in bill.lines:
        rows.append(
            (
                line.lease,
                _clock(line.started_wall_ms),
                f"{line.unit_ms} {KINDS[line.resource].word}-ms in {line.ticks} ticks",
                show_rate(line.rate_micro, line.resource),
                show_ada(line.owed),
            )
        )
        rows += [
            ("", "", f"not billed: {show_duration(lost.ms)} {lost.cause}", "", show_ada(0))
            for lost in line.lost
        ]
    print_table(
        f"invoice of {bill.job}",
        ("lease", "from (UTC)", "delivered", "rate", "owed"),
        rows,
        whole=("lease", "owed"),
        drop=("rate", "from (UTC)"),
    )
    for total in bill.channels:
        name = total.channel.hex()[:16]
        out.print(
            f"channel {name}…  owed {show_ada(total.owed)}, signed {show_ada(total.signed)}",
            markup=False,
        )
        _ledger(total)
    for way in bill.routes:
        out.print(_routed(way), markup=False)
    for hop in bill.hops:
        side = "to the router" if hop.into else "to the provider"
        others = f", {show_ada(hop.blind)} of it at most for leases not shown" if hop.blind else ""
        out.print(
            f"hop {hop.hop.hex()[:16]}… {side}  due {show_ada(hop.due)}{others}, signed"
            f" {show_ada(hop.signed)}",
            markup=False,
        )
        _ledger(hop)
    if bill.withheld:
        out.print(
            f"signed for to the router and not seen to reach the provider:"
            f" {show_ada(bill.withheld)}",
            markup=False,
        )
    if bill.unshown:
        out.print(
            f"claimed for leases that this bill does not show: {show_ada(bill.unshown)}",
            markup=False,
        )
    if bill.ahead:
        out.print(
            f"signed ahead, not delivered, and nobody's due: {show_ada(bill.ahead)}", markup=False
        )
    if bill.unsigned:
        out.print(f"delivered and not paid for: {show_ada(bill.unsigned)}", markup=False)
    for line in bill.lines:
        if not line.final and any(t.ended for t in bill.channels if t.channel == line.channel):
            out.print(
                f"lease {line.lease}: its last receipt is not its final one; what came after it, if"
                " anything, is not billed here",
                markup=False,
            )
    verdict = _verdict(bill, verified=verified)
    out.print(f"{verdict}: {with_fees(bill.owed, fees, bill.route_fee)}", markup=False)


def _ledger(total: Total | HopTotal) -> None:
    """What the ledger says of a channel or hop, if it was asked."""
    if total.claimed is None or total.refunded is None or total.held is None:
        return
    home = "refunded" if total.ended else "still held"
    rest = total.refunded if total.ended else total.held
    out.print(f"  ledger: claimed {show_ada(total.claimed)}, {home} {show_ada(rest)}", markup=False)


def _routed(way: RouteLine) -> str:
    """How far a routed lease's money came, hop by hop, as far as it is shown."""
    signed = [
        f"{show_ada(amount)} signed to the {payee}"
        for amount, payee in ((way.signed_in, "router"), (way.signed_out, "provider"))
        if amount is not None
    ]
    paid = [] if way.paid is None else [f"{show_ada(way.paid)} paid by the provider's word"]
    return (
        f"lease {way.lease} over router {way.router.hex()[:16]}…: its fee {show_ada(way.fee)}"
        f" ({way.route_bps} of 10000); {', '.join([*signed, *paid])}"
    )


def _verdict(bill: Invoice, *, verified: bool) -> str:
    if not bill.channels and not bill.hops:
        return "nothing was agreed, so nothing is owed"
    if not verified:
        return "every signature and every figure holds; --verify compares it with the ledger"
    if bill.reconciled and bill.unshown:
        return "what is shown agrees with the ledger to the lovelace"
    if bill.reconciled:
        return "agrees with the ledger to the lovelace"
    if any(total.ended is None for total in (*bill.channels, *bill.hops)):
        return "holds; a channel was agreed and never opened"
    return "holds; a channel is not finished yet"


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
