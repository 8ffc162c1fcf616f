"""``tally invoice FILE --verify`` of routed leases, as a user runs it: two real channels on a ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from marketplace.chain.actions.session import claim, finish_channels
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.route import commit
from marketplace.domain.money.voucher import Voucher
from tests.integration.support.chain import ADA, Live, Provider, World, run
from tests.unit.support import routed as paper
from tests.unit.support.invoice import channel_row

ROUTER, PROVIDER = Provider("router"), Provider("b")
PERIOD_MS = 86_400_000
OFFER = replace(
    paper.OFFER,
    adapter_vkh=ROUTER.adapter.key_hash,
    payout=ROUTER.payout,
    close_period_ms=PERIOD_MS,
)


async def tally(world: World, file: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TALLY_HOME": str(file.parent), "TALLY_CHAIN_URL": world.served.url}
    words = [sys.executable, "-m", "marketplace.cli.main", "invoice", file.name, "--verify"]

    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env={**env, "COLUMNS": "300"}, cwd=file.parent, capture_output=True, text=True,
            timeout=200, check=False,
        )  # fmt: skip

    return await anyio.to_thread.run_sync(call)


async def hops(world: World) -> tuple[Live, Live]:
    """The consumer's channel to the router, and the router's to the provider."""
    for name in ("consumer", "router", "settler"):
        world.fund(name, 200 * ADA)
    (into,) = await world.open("consumer", ROUTER, [20 * ADA], close_period_ms=PERIOD_MS)
    (out,) = await world.open("router", PROVIDER, [20 * ADA], close_period_ms=PERIOD_MS, fee_bps=50)
    return into, out


def agreed(into: Live, out: Live, lease: str, key: Any, rate: int) -> paper.Journey:
    """A lease at the provider, over these two hops, of two ticks of a second."""
    one = paper.journey(
        lease, key, 1000, 1000, rate_micro=rate, adapter_vkh=PROVIDER.adapter.key_hash,
        payout=PROVIDER.payout, close_period_ms=PERIOD_MS, fee_bps=50,
    )  # fmt: skip
    one.route = replace(
        one.route, in_commit=commit(into.session.verify_key, one.salts[0]),
        out_commit=commit(out.session.verify_key, one.salts[1]),
    )  # fmt: skip
    one.routed = replace(one.routed, route=one.route.hash)
    return one


def hop_row(live: Live, leaves: list[Leaf], *, into: bool) -> dict[str, Any]:
    paper.HOPS[live.session.verify_key.hex()] = live.session
    row = paper.hop_row(live.session, leaves, into=into)
    row |= {"open_tx": live.ref.tx_id.hex(), "index": live.ref.index}
    if into:
        row["offer"] = paper.signed(OFFER.encode())
    return row


def evidence(into: Live, out: Live, *, show_out: bool = True, ahead: int = 0) -> dict[str, Any]:
    """Two leases of one job at two rates; *ahead* lovelace are signed beyond what the first owes."""
    ways = [
        agreed(into, out, "lease_1", paper.LEASE_1, 1_000_000_000_001),
        agreed(into, out, "lease_2", paper.LEASE_2, 999_999_500_000),
    ]
    bps = ways[0].route.route_bps
    ins = [Leaf(way.routed.hash, with_fee(way.owed, bps)) for way in ways]
    ins[0] = replace(ins[0], amount=ins[0].amount + ahead)
    outs = [Leaf(way.routed.hash, way.owed) for way in ways]
    rows: list[dict[str, Any]] = []
    for way in ways:
        row = way.row(way.owed, out=show_out)
        row["route"]["in"] = paper.opening(into.session, way.salts[0])
        row["route"]["out"] = paper.opening(out.session, way.salts[1]) if show_out else None
        rows.append(row)
    shown = [hop_row(into, [Leaf(OFFER.hash, OFFER.hop_fee), *ins], into=True)]
    return {
        "job": "job_1", "leases": rows,
        "channels": [channel_row(way.paper, way.key, None, "") for way in ways],
        "hops": [*shown, *([hop_row(out, outs, into=False)] if show_out else [])],
    }  # fmt: skip


def total(bill: dict[str, Any], hop: int) -> int:
    return bill["hops"][hop]["voucher"]["cumulative"]


async def take(world: World, live: Live, who: Provider, cumulative: int, *, end: bool) -> None:
    view, voucher = await world.view(live), Voucher.sign(live.session, cumulative)
    payouts = {who.payout: who.payout_address}
    if end:
        await finish_channels(world.desk("settler"), [(view, voucher)], payouts, who.adapter)
    else:
        await claim(world.desk("settler"), [(view, voucher)], payouts)


def test_both_hops_of_a_routed_job_agree_with_the_ledger_to_the_lovelace(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        into, out = await hops(world)
        bill = evidence(into, out)
        file = tmp_path / "bill.json"
        file.write_text(json.dumps(bill))
        done = await tally(world, file)
        assert done.returncode == 0 and "a channel is not finished yet" in done.stdout, done
        await take(world, out, PROVIDER, total(bill, 1), end=True)
        await take(world, into, ROUTER, total(bill, 0), end=True)
        done = await tally(world, file)
        said = done.stdout
        assert done.returncode == 0 and "agrees with the ledger to the lovelace" in said, done
        # 2,000,000 and 1,999,999 owed (floor), half a per cent of each rounded up, and 25,000 once
        assert "compute 3.999999 ADA + router 0.020000 ADA" in said, said
        assert "to the router  due 4.044999 ADA, signed 4.044999 ADA" in said, said
        assert "to the provider  due 3.999999 ADA, signed 3.999999 ADA" in said, said
        assert "ledger: claimed 4.044999 ADA, refunded 15.955001 ADA" in said, said

    run(story)


def test_a_router_that_claims_what_was_signed_ahead_is_shown_by_the_consumers_bill(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        into, out = await hops(world)
        bill = evidence(into, out, show_out=False, ahead=500_000)
        file = tmp_path / "bill.json"
        file.write_text(json.dumps(bill))
        assert (await tally(world, file)).returncode == 0
        await take(world, into, ROUTER, total(bill, 0), end=False)
        done = await tally(world, file)
        said = " ".join(done.stderr.split())
        assert done.returncode == 3 and said.startswith("INVOICE_CLAIM"), done
        assert "over-claimed 500000" in said and "a hop into the router" in said

    run(story)


def test_a_hop_that_pays_somebody_else_is_not_the_routers(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        into, out = await hops(world)
        (other,) = await world.open(
            "router", Provider("c"), [20 * ADA], close_period_ms=PERIOD_MS, fee_bps=50
        )
        file = tmp_path / "bill.json"
        file.write_text(json.dumps(evidence(into, other)))
        done = await tally(world, file)
        assert done.returncode == 3 and done.stderr.startswith("INVOICE_ROUTE"), done
        assert "not the one that its payee asks" in " ".join(done.stderr.split())
        file.write_text(json.dumps(evidence(into, out)))
        assert (await tally(world, file)).returncode == 0

    run(story)


def test_a_bill_that_shows_one_of_two_leases_says_what_was_claimed_for_the_rest(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        into, out = await hops(world)
        bill = evidence(into, out, show_out=False)
        for part in ("leases", "channels"):
            del bill[part][1]
        file = tmp_path / "bill.json"
        file.write_text(json.dumps(bill))
        await take(world, into, ROUTER, total(bill, 0), end=True)
        done = await tally(world, file)
        said = " ".join(done.stdout.split())
        assert done.returncode == 0 and "what is shown agrees with the ledger" in said, done
        # job 1's lease: 2,000,000 and its fee; the other's 1,999,999 and 10,000 are the rest
        assert "compute 2.000000 ADA + router 0.010000 ADA" in said, said
        rest = "claimed for leases that this bill does not show: 2.009999 ADA"
        assert rest in said, said

    run(story)
