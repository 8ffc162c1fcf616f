"""A notebook and an app from the console: a click and one signature, no command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from marketplace.client.jobs.sessions import APP, NOTEBOOK
from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product, product
from tests.browser.support.rental import sign_in
from tests.browser.support.walk import end
from tests.browser.support.wallet import Wallet
from tests.browser.support.work import agree
from tests.requires import need_devnet, need_docker

pytestmark = [pytest.mark.browser, pytest.mark.prove]
GRADIO = Path(__file__).parents[2] / "examples" / "gradio_app.py"


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """With JupyterLab and Gradio as images of its provider."""
    need_devnet()
    need_docker()
    with product(tmp_path_factory.mktemp("sessions"), sessions=(NOTEBOOK, APP)) as made:
        yield made


@pytest.fixture
def reader(sessions: Product, browser: Browser) -> Iterator[Console]:
    """Signed in, with 100 ADA."""
    wallet = Wallet(sessions.chain)
    wallet.fund(100_000_000)
    context = browser.new_context(base_url=sessions.market, viewport={"width": 1280, "height": 900})
    wallet.install(context)
    made = Console.of(context)
    sign_in(made)
    yield made
    context.close()


def begin(page: Page, name: str) -> None:
    """On the form, filled in for the session *name*."""
    page.goto("/jobs")
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)


def opened(reader: Console) -> Page:
    """Agreed to, paid for and open in a tab of its own; the job's page stays."""
    page = reader.page
    page.get_by_role("button", name="Ask for a quote").click()
    page.wait_for_url(re.compile(r"/jobs/job_"))
    agree(page)
    button = page.get_by_role("button", name="Open", exact=True)
    expect(button).to_be_visible(timeout=60 * SECONDS)
    assert both_themes(page) == []
    with reader.context.expect_page() as found:
        button.click()
    return found.value


def test_a_notebook(reader: Console) -> None:
    page = reader.page
    begin(page, "A notebook")
    lab = opened(reader)
    for _ in range(60):  # the gateway says that it starts, until it listens
        if lab.title().startswith("JupyterLab"):
            break
        lab.wait_for_timeout(500)
        lab.reload()
    lab.get_by_role("menuitem", name="File").first.wait_for(timeout=120 * SECONDS)
    assert lab.url.startswith("http://8888-") and "localhost" in lab.url
    lab.close()
    end(page, page.url.rsplit("/", 1)[1])
    expect(page.locator("main")).to_contain_text(
        "workspace", timeout=60 * SECONDS
    )  # its files are kept


def test_an_app_of_ones_own(reader: Console) -> None:
    page = reader.page
    begin(page, "An app")
    with GRADIO.open("rb") as file:
        page.get_by_label("Files", exact=True).set_input_files(
            files=[{"name": "app.py", "mimeType": "text/x-python", "buffer": file.read()}]
        )
    expect(page.locator("[name=file-path]")).to_have_value("app.py")
    site = opened(reader)
    button = site.get_by_role("button").first
    for _ in range(120):
        if site.locator("gradio-app").count():
            break
        site.wait_for_timeout(500)
        site.reload()
    button.wait_for(timeout=120 * SECONDS)
    site.close()
    end(page, page.url.rsplit("/", 1)[1])
