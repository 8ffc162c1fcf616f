"""A lease over the market's router, from its quote to its bill; what becomes of it when its route
does not hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import anyio
import httpx

from marketplace.domain.money import evidence
from marketplace.domain.money.invoice.verify import reconcile
from marketplace.domain.money.route.fee import fee, with_fee
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.work.parts import Price
from tests.fakes import seed, spec, until
from tests.integration.market.test_every_answer import PaperLedger
from tests.integration.market.test_spine import state
from tests.integration.support.market import sign_in
from tests.integration.support.routed import CONSUMER, HOP, World, routed
from tests.unit.support.browser_verifier import browser_says

OPEN = 176_149
"""Lovelace, of the paper ledger's chain for opening a channel."""


def test_a_job_over_a_router_from_quote_to_bill(tmp_path: Path) -> None:
    """No transaction, no voucher of the lease's key; each side's bill holds in both verifiers."""
    texts: list[str] = []

    async def run() -> None:
        async with routed(tmp_path) as world:
            view = await world.quote()
            assert view["quote"]["channel"] == "routed"
            lease = await world.sign(view)
            await world.start(lease)
            await state(world.client, view["id"], "RUNNING")
            owed = [await world.paid_tick(lease) for _ in range(3)][-1]
            await world.adapter.finish(lease)
            ended = await state(world.client, view["id"], "ENDED")
            assert (ended["reason"], ended["spent"], owed) == ("COMPLETED", 15, 15)
            assert ended["transactions"] == []
            last = world.payer.book.paying.last
            assert last is not None
            assert last.voucher.cumulative == world.router.hop_fee + with_fee(15, world.router.bps)
            await until(lambda: ("over", lease) in world.router.said)
            texts.extend(await bills(world, view["id"], lease))
            assert (await world.client.get("/v1/channels")).json()["items"] == []

    anyio.run(run)
    mine, its = texts
    for text in texts:
        bill = reconcile(evidence.read(text))
        assert [line.owed for line in bill.lines] == [15]
        assert bill.routes and bill.hops
    assert [row["rule"] for row in browser_says([(mine, [None] * 2), (its, [None] * 2)])] == [
        "",
        "",
    ]
    for secret in (HOP.verify_key.hex(), CONSUMER.key_hash.hex()):
        assert secret not in its, "the provider sees the consumer's hop or wallet"
    out = json.loads(its)["hops"][0]["session_vk"]
    assert out not in mine, "the consumer sees the router's hop to the provider"


def test_a_ceiling_leaves_room_for_the_routers_fee_in_the_budget(tmp_path: Path) -> None:
    """The consumer signs for no more than its budget, fee included: what was served beyond that
    would be nobody's debt, and its account in arrears for ever.
    """

    async def run() -> None:
        async with routed(tmp_path) as world:
            view = await world.quote(job=spec(price=Price(budget=101)))
            terms = RoutedTerms.decode(bytes.fromhex(view["quote"]["terms"])).terms
            bps = world.router.bps
            assert with_fee(terms.ceiling, bps) <= 101 < with_fee(terms.ceiling + 1, bps)
            assert view["quote"]["ceiling"] == terms.ceiling
            lease = await world.sign(view)
            await world.start(lease)

    anyio.run(run)


def test_a_quote_says_both_ways(tmp_path: Path) -> None:
    """Before a job is posted, and on a quote of either way what the other one would take."""

    async def run() -> None:
        async with routed(tmp_path) as world:
            world.run.market.ledger = cast("Any", PaperLedger())

            async def asked(budget: int = 1_000_000) -> dict[str, Any]:
                job = spec(price=Price(budget=budget)).to_wire()
                answer = await world.client.post("/v1/quotes", json={"spec": job})
                assert answer.status_code == 200, answer.text
                return answer.json()

            dry = await asked()
            bps, most = world.router.bps, dry["ceiling"]
            assert dry["routed"] == {
                "carried": True, "route_bps": bps, "fee": fee(most, bps),
                "hop_fee": world.router.hop_fee,
            }  # fmt: skip
            assert dry["fees"]["consumer"] == OPEN
            view = await world.quote()
            assert view["quote"]["channel"] == "routed"
            assert (view["quote"]["fees"], view["quote"]["routed"]) == (None, None)
            assert view["quote"]["direct"]["consumer"] == OPEN
            world.router.lease_cap = most - 1
            assert not (await asked())["routed"]["carried"]
            world.router.hops_in[HOP.verify_key].state = "CLOSING"
            full = (await world.quote())["quote"]  # so it goes directly
            assert (full["channel"], full["direct"]) == ("fresh", None)
            assert full["routed"]["fee"] == fee(full["ceiling"], bps)
            world.run.market.router = None
            assert (await asked())["routed"] is None

    anyio.run(run)


async def bills(world: World, job: str, lease: str) -> tuple[str, str]:
    """The consumer's, and the provider's: who holds the key that is paid, and nobody else."""
    mine = (await world.client.get(f"/v1/jobs/{job}/invoice")).text
    own = (await world.client.get(f"/v1/leases/{lease}/evidence")).json()
    assert own["hops"] == json.loads(mine)["hops"]
    async with httpx.AsyncClient(base_url=world.url, timeout=30) as other:
        await sign_in(other, seed("payee"))
        its = await other.get(f"/v1/leases/{lease}/evidence")
        assert its.status_code == 200, its.text
    async with httpx.AsyncClient(base_url=world.url, timeout=30) as other:
        await sign_in(other, seed("somebody else"))
        assert (await other.get(f"/v1/leases/{lease}/evidence")).status_code == 404
        answer = await other.get(f"/v1/router/hops/{HOP.verify_key.hex()}")
        assert answer.status_code in (403, 404, 422), answer.text
    return mine, its.text
