"""A channel whose last transaction is on the way offers nothing that would lose money (W4)."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import httpx

from marketplace.console.rendering import exact
from marketplace.console.series import DAYS_SHOWN
from marketplace.domain.keys import Signer
from tests.fakes import FakeAdapter, FakePayer, gpu, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted, sign, state
from tests.integration.support.market import market, sign_in

BUTTONS = ("Finish now", "Top up", "Close without the provider")


async def _buttons(client: httpx.AsyncClient) -> tuple[list[str], str]:
    answer = await client.get("/channels", headers={"Accept": "text/html"})
    assert answer.status_code == 200
    return [name for name in BUTTONS if f">{name}</button>" in answer.text], answer.text


def test_buttons_go_with_what_can_still_be_done(tmp_path: Path) -> None:
    async def run() -> None:
        provider, consumer, session = seed("provider"), seed("consumer"), Signer(os.urandom(32))
        db = f"sqlite:///{tmp_path}/m.db"
        async with market(db, tmp_path, console=True) as (url, _):
            adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),)))
            payer = FakePayer(url, {session.verify_key: session})
            async with (
                httpx.AsyncClient(base_url=url, timeout=30) as client,
                working(adapter, payer),
            ):
                await sign_in(client, consumer)
                assert (await client.post("/session")).status_code == 200

                async def listed() -> object:
                    return (await client.get("/v1/offers")).json()["items"]

                await until(listed)
                posted = await client.post("/v1/jobs", json=body(spec(), session, consumer))
                view = await quoted(client, posted.json()["id"])
                lease = await sign(client, view, session, "ab" * 32)
                await until(lambda: adapter.leases[lease].signed)
                await adapter.progress(lease, "STARTED")
                await state(client, view["id"], "RUNNING")
                assert (await _buttons(client))[0] == list(BUTTONS)
                receipt = await adapter.tick(lease)
                await until(lambda: adapter.paid(session.verify_key) == receipt.channel_owed)
                await adapter.finish(lease)
                await until(lambda: any(r.final for r in payer.receipts))
                # An end was asked for: the provider may not answer, so the way out stays.
                await payer.end(session, receipt.channel_owed)
                await until(lambda: adapter.ends)
                assert (await _buttons(client))[0] == ["Close without the provider"]
                # Its last transaction is known: nothing is left to do.
                await adapter.progress(lease, "SETTLED", tx="cd" * 32)
                await state(client, view["id"], "ENDED")  # which it may be before that is heard

                async def nothing_left() -> bool:
                    left, page = await _buttons(client)
                    return left == [] and ("settling" in page or ">ended<" in page)

                await until(nothing_left)
                # Pictures: the own spend of today, and what was agreed for cores.
                spent = (await client.get(f"/v1/jobs/{view['id']}")).json()["spent"]
                account = (await client.get("/account")).text
                assert spent > 0 and f": {exact(spent)}</title>" in account
                prices = (await client.get("/prices")).text
                assert "Price of cores" in prices and "₳0.018 an hour</title>" in prices
                assert prices.count("no lease</title>") == DAYS_SHOWN - 1

    anyio.run(run)
