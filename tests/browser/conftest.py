"""What the browser tests share: one running product and one Chromium for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.support.product import Console, Product, chromium, product
from tests.browser.support.wallet import Wallet
from tests.ports import free_port
from tests.requires import need_chromium, need_devnet, need_docker, need_registry


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Devnet, market with a registry, and an adapter with two simulated H100."""
    need_devnet()
    need_docker()
    need_registry()
    with product(tmp_path_factory.mktemp("product"), registry=free_port()) as made:
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium(need_chromium()) as made:
        yield made


@pytest.fixture
def wallet(running: Product) -> Wallet:
    """A fresh wallet with 100 ADA."""
    made = Wallet(running.chain)
    made.fund(100_000_000)
    return made


@pytest.fixture
def console(running: Product, browser: Browser, wallet: Wallet) -> Iterator[Console]:
    """A window with the wallet in it."""
    context = browser.new_context(base_url=running.market, viewport={"width": 1280, "height": 900})
    wallet.install(context)
    yield Console.of(context)
    context.close()
