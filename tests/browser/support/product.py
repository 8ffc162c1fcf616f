"""The whole product as processes, started once for the browser tests, and a browser that talks to
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    expect,
    sync_playwright,
)

from marketplace.cli.embedded.product import LOCAL_IMAGE, Embedded
from marketplace.client.jobs.sessions import Program
from tests.browser.support.steady import EXECUTABLE, steady

ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SECONDS = 1000
expect.set_options(timeout=60 * SECONDS)  # deadlines are for a machine that does ten other things


@dataclass(frozen=True)
class Product:
    """Where it answers, and the image that its provider has (a name of the form's list)."""

    market: str
    chain: str
    image: str
    home: Path
    kill: Callable[[str], None]  # a part by its name, by SIGKILL to its process id
    start: Callable[[str], None]  # an adapter by its name, again


@contextmanager
def product(
    home: Path,
    simulate: str = "h100x2",
    resume_window: str = "10m",
    adapters: Sequence[str] = ("adapter",),
    block_ms: int = 500,
    routes: bool = False,
    sessions: Sequence[Program] = (),
    registry: int = 0,
) -> Iterator[Product]:
    """Devnet, market (with a router, if it *routes*, and a registry of images at that port) and
    *adapters* under *home*, with the images of *sessions*; everything stops with the block.
    """
    embedded = Embedded(
        home, simulate=simulate, block_ms=block_ms, resume_window=resume_window, routes=routes,
        sessions=tuple(sessions), registry=registry,
    )  # fmt: skip

    async def start() -> None:
        embedded.prepare()
        embedded.image = await anyio.to_thread.run_sync(embedded.find_image)
        await embedded.start_devnet()
        await embedded.fund()
        await embedded.start_market()
        if registry:
            await embedded.start_registry()
        for name in adapters:
            await embedded.start_adapter(name)

    async def kill(name: str) -> None:
        process = embedded.parts[name].process
        assert process is not None
        process.kill()
        await process.wait()

    with start_blocking_portal() as portal:
        try:
            portal.call(start)
            image = LOCAL_IMAGE if embedded.image else "python"
            yield Product(
                embedded.market_url, embedded.chain_url, image, home,
                kill=lambda name: portal.call(kill, name),
                start=lambda name: portal.call(embedded.start_adapter, name) and None,
            )  # fmt: skip
        finally:
            portal.call(embedded.stop)
            portal.call(embedded.sweep)


@contextmanager
def chromium(executable: Path) -> Iterator[Browser]:
    """Debian's Chromium, headless."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=EXECUTABLE, args=ARGS, env=steady(executable)
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Console:
    """One reader's browser window at the market; *said* is every error that a page reported."""

    context: BrowserContext
    page: Page
    said: list[str] = field(default_factory=list[str])

    @staticmethod
    def of(context: BrowserContext) -> Console:
        """A new page of *context*, listened to from the start."""
        made = Console(context, context.new_page())
        made.page.set_default_timeout(60 * SECONDS)

        def note(message: ConsoleMessage) -> None:
            if message.type == "error":
                made.said.append(f"{message.text} at {message.location.get('url', '')}")

        def broke(error: Error) -> None:
            made.said.append(f"{error.name}: {error.message}")

        made.page.on("console", note)
        made.page.on("pageerror", broke)
        return made


def until(holds: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Wait for *holds*; the test fails with *what* once the time is over."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
