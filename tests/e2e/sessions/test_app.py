"""``tally app``, the real command: a Gradio page in a real container, clicked in a real browser, by
its owner, by those whom he lets in, and by nobody else.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Page, expect

from marketplace.client.jobs.sessions import APP
from marketplace.client.net.http import MarketRefused
from marketplace.client.sdk.market import Market
from tests.browser.support.product import SECONDS
from tests.e2e.support.embedded import PATIENCE_S, World, story
from tests.e2e.support.sessions import chromium, entered, session

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
EXAMPLE: Final = str(Path(__file__).parents[3] / "examples" / "gradio_app.py")
LINK_MS: Final = 60_000
expect.set_options(timeout=60 * SECONDS)


async def clicked(page: Page, number: int) -> None:
    """The app computes it."""
    await page.get_by_label("Number").fill(str(number))
    await page.get_by_role("button", name="Times seven").click()
    await expect(page.get_by_label("Answer")).to_have_value(str(number * 7))


@pytest.mark.prove
def test_an_app_answers_its_owner_and_those_with_a_link_and_no_stranger(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with session(world, "app", EXAMPLE) as (running, name), chromium() as browser:
            job = world.market.job(name)
            port = job.port(APP.port)
            mine = await entered(browser, await port.ticket())
            await clicked(mine, 6)
            origin = mine.url.split("?")[0]

            bare = await entered(browser, origin)  # one who has the address alone
            await expect(bare.get_by_role("button", name="Times seven")).to_have_count(0)
            other = await world.place.purse("stranger")  # one with an account of the same market
            async with Market(
                world.place.market_url, wallet=other, chain_url=world.place.chain_url
            ) as theirs:
                with pytest.raises(MarketRefused, match="no job"):
                    await theirs.job(name).port(APP.port).ticket()
                token, host = f"Bearer {theirs.http.token}", urlsplit(origin).netloc
                async with httpx.AsyncClient(
                    base_url=world.place.market_url, trust_env=False
                ) as to:
                    old = await to.get(f"/p/{name}/{APP.port}/", headers={"Authorization": token})
                    own = await to.get("/", headers={"Authorization": token, "Host": host})
                assert (old.status_code, own.status_code) == (404, 404), (old.text, own.text)

            link, began = await port.share(LINK_MS), time.monotonic()
            guest = await entered(browser, str(link["url"]))
            await clicked(guest, 8)
            cookies = [one.get("name", "") for one in await guest.context.cookies()]
            assert all(one.startswith("tally_app") for one in cookies), cookies
            await guest.wait_for_timeout(LINK_MS - (time.monotonic() - began) * 1000 + 1_000)
            await guest.reload()
            await expect(guest.get_by_role("button", name="Times seven")).to_have_count(0)
            await clicked(mine, 9)  # the owner stays in

            running.process.send_signal(signal.SIGINT)
            assert await running.ended() == 0, str(running)

    story(tmp_path, tell, sessions=(APP,))


@pytest.mark.nightly
def test_an_app_that_nobody_comes_to_ends_by_itself(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with session(world, "app", EXAMPLE, "--idle", "1m") as (running, name):
            async with chromium() as browser:
                page = await entered(browser, await world.market.job(name).port(APP.port).ticket())
                await clicked(page, 6)
                await page.wait_for_timeout(35 * SECONDS)
                await clicked(page, 7)
                await page.wait_for_timeout(35 * SECONDS)
                await clicked(page, 8)  # longer than its minute, and somebody came
                # It stays open, and its connections with it: that is nobody's coming.
                assert await running.ended(300) == 0, str(running)
        assert running.last["reason"] == "COMPLETED" and running.last["exit_code"] == 0
        assert any("it ends in" in one for one in running.err), running.err

    story(tmp_path, tell, sessions=(APP,))
