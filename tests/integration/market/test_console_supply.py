"""The pages of supply say what the API says, without a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest

from tests.fakes import FakeAdapter, gpu, offer, seed, until, working
from tests.integration.support.market import market

GPU_RATE, CORE_RATE = 250_000_000, 4_000_000


async def _page(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text[:300]
    return answer.text


def test_filters_compare_what_they_show_and_cores_are_devices(tmp_path: Path) -> None:
    async def run() -> None:
        provider = seed("provider")
        device = replace(gpu(0), vram_mib=23_028)
        one = offer(provider, (device,))
        one = replace(one, gpu_rates={device.model: GPU_RATE}, core_rate=CORE_RATE)
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, console=True) as (url, _):
            adapter = FakeAdapter(url, provider, one)
            async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter):

                async def items(query: str = "") -> list[dict[str, object]]:
                    return (await client.get(f"/v1/offers{query}")).json()["items"]

                await until(items)
                # W1: a cap of 10 lovelace/s is met by the cores and by no GPU.
                assert await items("?max_rate_micro=10000000") == []
                assert len(await items(f"?max_rate_micro={GPU_RATE}")) == 1
                assert len(await items("?model=cores&max_rate_micro=10000000")) == 1
                assert "No offer fits" in await _page(client, "/offers?hourly=0.036")
                assert "No offer fits" in await _page(client, "/offers?rate=10")
                assert "₳0.90" in await _page(client, "/offers?hourly=0.9")
                # W2: cores are a line of the home page, a filter, and a fact of the offer.
                cores = (await client.get("/v1/devices")).json()["items"][-1]
                assert (cores["model"], cores["resource"]) == ("cores", "core")
                assert cores["count"] == cores["free"] == one.host.cpu.milli // 1000
                assert cores["rate_micro_min"] == CORE_RATE
                assert 'href="/offers?model=cores"' in await _page(client, "/")
                named = await _page(client, "/offers?model=cores")
                assert f"{one.host.cpu.milli // 1000} cores</a>" in named and "₳0.0144" in named
                assert "It matches" in await _page(client, "/explain?model=cores&count=2")
                # W9: the size that it is sold with, and a filter of that size finds it.
                assert "24 GB" in await _page(client, "/offers?vram=24")
                # W8: devices, earnings, losses, and that it is here now.
                row = (await client.get("/v1/providers")).json()["items"][0]
                assert row["connected"] and row["devices"][device.model] == 1
                page = await _page(client, "/providers")
                assert "connected now" in page and "of 0 leases" in page

    anyio.run(run)


@pytest.mark.parametrize("text", ["x", "1.2345678", "-1", "99999999999999"])
def test_a_price_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    async def run() -> None:
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, console=True) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                assert (await client.get("/offers", params={"hourly": text})).status_code == 422

    anyio.run(run)


def test_whoever_signed_in_is_led_to_a_page_of_ours(tmp_path: Path) -> None:
    """As a browser reads an address: slashes of either kind lead to another's host, and what cannot
    be seen is left out.
    """

    async def run() -> None:
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, console=True) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:

                async def led(to: str) -> str:
                    page = (await client.get("/sign-in", params={"to": to})).text
                    return page.partition('data-to="')[2].partition('"')[0]

                for good in ("/jobs", "/jobs/job_1", "/sessions/new?image=a/b:1", "/"):
                    assert await led(good) == good
                for bad in (
                    "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example",
                    "/\t/evil.example", "/\n/evil.example", "https://evil.example", "evil.example",
                    "javascript:alert(1)", "", "/jobs\\..", "/é",
                ):  # fmt: skip
                    assert await led(bad) == "/jobs", bad

    anyio.run(run)
