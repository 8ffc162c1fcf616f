"""``tally notebook``, the real command: JupyterLab in a real container, used in a real browser."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Page, expect

from marketplace.client.jobs.sessions import KEPT, NOTEBOOK
from tests.browser.support.product import SECONDS
from tests.e2e.support.behind_nat import BOX, HOME, at_home
from tests.e2e.support.embedded import PATIENCE_S, World, story, tally, until_true
from tests.e2e.support.sessions import chromium, entered, session

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
LARGE: Final = 100 << 20
expect.set_options(timeout=60 * SECONDS)


@asynccontextmanager
async def lab(world: World, job: str) -> AsyncGenerator[Page]:
    """JupyterLab, entered by the owner's ticket."""
    async with chromium() as browser:
        page = await entered(browser, await world.market.job(job).port(8888).ticket())
        await expect(page.locator(".jp-Launcher").first).to_be_visible()
        yield page


async def connected(page: Page) -> None:
    """Once its kernel runs and the page has hold of it: JupyterLab drops what is run before."""

    async def there() -> bool:
        kernels = await page.evaluate("fetch('/api/kernels').then((answer) => answer.json())")
        return [one["execution_state"] for one in kernels if one["connections"]] == ["idle"]

    await until_true(there, "a kernel")
    await expect(page.locator(".jp-Toolbar-kernelName")).to_contain_text("Python 3")
    kernel = page.locator(".jp-Notebook-ExecutionIndicator")
    await expect(kernel).to_have_attribute("data-status", "idle")


async def run_cell(page: Page, code: str) -> str:
    """What the last cell, which is the one in use, prints."""
    await connected(page)
    cell = page.locator(".jp-Notebook .jp-CodeCell").last
    await cell.locator(".cm-content").click()
    await page.keyboard.insert_text(code)
    await page.keyboard.press("Shift+Enter")  # and a new one comes after it
    done = page.locator(".jp-Notebook .jp-CodeCell").nth(-2)
    await expect(done.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]"))
    return (await done.locator(".jp-OutputArea-output").inner_text()).strip()


@pytest.mark.prove
def test_a_notebook_is_worked_in_and_taken_up_again(tmp_path: Path) -> None:
    """At a provider behind NAT, where nothing can be dialled."""

    async def tell(world: World) -> None:
        for address in (BOX, HOME):
            with pytest.raises(OSError):
                socket.create_connection((address, 22), timeout=2).close()
        data = os.urandom(LARGE)
        (tmp_path / "large.bin").write_bytes(data)
        sized = ("--memory", "2GB", "--set", "resources.disk=2GB")
        async with session(world, "notebook", *sized) as (running, job), lab(world, job) as page:
            await page.locator(".jp-LauncherCard[data-category='Notebook']").first.click()
            await expect(page.locator(".jp-Notebook")).to_be_visible()
            assert await run_cell(page, "answer = 6 * 7\nprint(answer)") == "42"

            async with page.expect_file_chooser() as chosen:
                await page.locator("[data-jp-item-name='uploader'] jp-button").click()
            await (await chosen.value).set_files(tmp_path / "large.bin")
            accept = page.locator(".jp-Dialog .jp-mod-accept")  # "this one is large: really?"
            await accept.or_(
                page.locator(".jp-DirListing-item", has_text="large.bin")
            ).first.wait_for()
            if await accept.is_visible():
                await accept.click()
            await expect(page.locator(".jp-DirListing-item", has_text="large.bin")).to_be_visible()
            code = (
                "import hashlib, os, time\n"
                f"while os.path.getsize('large.bin') < {LARGE}: time.sleep(0.1)\n"
                "print(hashlib.sha256(open('large.bin', 'rb').read()).hexdigest())"
            )
            assert await run_cell(page, code) == hashlib.sha256(data).hexdigest()

            await page.locator(".jp-Notebook").press("Escape")
            await page.keyboard.press("0")
            await page.keyboard.press("0")  # "restart the kernel"
            await page.locator(".jp-Dialog .jp-mod-accept").click()
            assert "NameError" in await run_cell(page, "print(answer)")

            await page.locator("[data-jp-item-name='new-launcher'] jp-button").click()
            await page.locator(".jp-LauncherCard", has_text="Terminal").last.click()
            await page.locator(".jp-Terminal .xterm-helper-textarea").focus()
            await page.keyboard.type("echo $((6 * 8)) > made.txt; rm large.bin\n")
            await expect(page.locator(".jp-DirListing-item", has_text="made.txt")).to_be_visible()
            assert not [
                one for one in await page.context.cookies() if "session" in one.get("name", "")
            ]

            running.process.send_signal(signal.SIGINT)
            assert await running.ended() == 0, str(running)
            assert running.last["reason"] == "CANCELLED"
        (kept,) = await world.market.job(job).outputs()
        assert kept["path"] == KEPT

        async with session(world, "notebook", "--from", job) as (again, second):
            code, said = await world.market.job(second).execute(["cat", "made.txt"])
            assert (code, said.strip()) == (0, "48")
            code, said = await world.market.job(second).execute(["ls", "-a"])
            assert ".taken-up.tar" not in said and "large.bin" not in said
            again.process.send_signal(signal.SIGINT)
            assert await again.ended() == 0

        env = world.place.environment
        nothing = await tally("notebook", "--yes", "--from", "job_nobodys", env=env)
        assert nothing.process.returncode == 3, str(nothing)

    at_home(tmp_path, tell, sessions=(NOTEBOOK,))


@pytest.mark.nightly
def test_a_notebook_that_nobody_works_in_ends_by_itself(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with session(world, "notebook", "--idle", "1m") as (running, job), lab(world, job):
            # Its page stays open, and asks the server how it is: that is no work.
            assert await running.ended(300) == 0, str(running)
        assert running.last["reason"] == "COMPLETED" and running.last["exit_code"] == 0
        told = [one for one in running.err if one.startswith("session: ")]
        assert ["it ends in" in one for one in told] == [True, False], told  # said before, and then
        bill = await world.market.job(job).invoice(verify=True)
        assert sum(line.owed for line in bill.lines) == running.last["spent"] > 0

    story(tmp_path, tell, sessions=(NOTEBOOK,))
