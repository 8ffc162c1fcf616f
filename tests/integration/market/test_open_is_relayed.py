"""What a payer hands over for its adapter goes through the market as it came, and is not kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import httpx

from marketplace.domain.keys import Signer
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.protocol import wire
from marketplace.market.base.records import Lease
from tests.fakes import FakeAdapter, spec, until
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_spine import quoted
from tests.integration.support.market import fast

TX = bytes.fromhex("84a0a0f5f6")


async def hand(
    client: httpx.AsyncClient, view: dict[str, Any], session: Signer, **more: Any
) -> httpx.Response:
    quote = view["quote"]
    signed = SignedTerms(bytes.fromhex(quote["terms"]), bytes.fromhex(quote["adapter_signature"]))
    told = {
        "session_signature": session.sign(signed.body).hex(),
        "channel_tx": os.urandom(32).hex(),
    }
    return await client.post(f"/v1/leases/{quote['lease']}/sign", json={**told, **more})


def told(worker: FakeAdapter, lease: str) -> wire.LeaseSigned | None:
    found = [m for m in worker.asked if isinstance(m, wire.LeaseSigned) and m.lease == lease]
    return found[0] if found else None


def test_the_bytes_reach_the_adapter_and_the_market_keeps_none(tmp_path: Path) -> None:
    """Also of a lease that first waits in line: its account never paid and has one that runs."""

    async def run() -> None:
        first = adapter("one", allowance=400_000)
        async with at_market(tmp_path, first, settings=fast()) as (client, inside, _, worker):
            leases: list[str] = []
            for _ in range(2):
                view, key = await post(client, spec())
                view = await quoted(client, view["id"])
                assert view["quote"]["offer"]["allowance"] == worker.offer.allowance == 400_000
                answer = await hand(client, view, key, open_tx=TX.hex())
                assert answer.status_code == 200, answer.text
                leases.append(view["quote"]["lease"])
            await until(lambda: told(worker, leases[0]) is not None)
            known = [await inside.market.store.get(Lease, one) for one in leases]
            assert [one.open_tx for one in known if one] == [b"", TX]
            assert told(worker, leases[1]) is None
            await worker.progress(leases[0], "FINISHED")
            await until(lambda: told(worker, leases[1]) is not None)
            for one in leases:
                heard, kept = told(worker, one), await inside.market.store.get(Lease, one)
                assert heard and heard.open_tx == TX and kept and kept.open_tx == b""

    anyio.run(run)


def test_what_is_no_hex_or_too_long_is_refused_and_the_quote_stands(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one", allowance=400_000), settings=fast()) as (
            client,
            _,
            _,
            worker,
        ):
            view, key = await post(client, spec())
            view = await quoted(client, view["id"])
            for wrong in ("abc", "zz", "00" * 4097):
                assert (await hand(client, view, key, open_tx=wrong)).status_code == 422
            assert (await hand(client, view, key)).status_code == 200  # as payers of before do
            await until(lambda: told(worker, view["quote"]["lease"]) is not None)
            heard = told(worker, view["quote"]["lease"])
            assert heard is not None and heard.open_tx == b""

    anyio.run(run)
