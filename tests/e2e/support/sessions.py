"""Sessions: begun by the real command, entered in a real browser."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page, async_playwright

from tests.browser.support.product import ARGS, SECONDS
from tests.browser.support.steady import EXECUTABLE, steady
from tests.e2e.support.embedded import Command, World, command
from tests.requires import need_chromium


@asynccontextmanager
async def session(world: World, *asked: str) -> AsyncGenerator[tuple[Command, str]]:
    """(the command, its job), once its page answers."""
    env = world.place.environment
    async with command(*asked, "--yes", "--json", env=env) as made:
        await made.until(lambda said: any(one.startswith("open it with:") for one in said.err))
        yield made, next(one.split()[-1] for one in made.err if one.startswith("open it with:"))


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=EXECUTABLE, args=ARGS, env=steady(need_chromium())
        )
        yield browser
        await browser.close()


async def entered(browser: Browser, address: str) -> Page:
    """*address* in a browser of nobody's: without any cookie."""
    page = await (await browser.new_context()).new_page()
    page.set_default_timeout(60 * SECONDS)
    await page.goto(address)
    return page
