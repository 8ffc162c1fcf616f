"""The API's page: all of the document, under the pages' own policy, and nothing of anybody else."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from marketplace.api.schemas import reading
from tests.browser.support.axe import both_themes
from tests.browser.support.product import Console, Product

pytestmark = pytest.mark.browser
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
IDS = "() => [...document.querySelectorAll('[id]')].map((e) => e.id)"
LINKS = "() => [...document.querySelectorAll('main a[href^=\"#\"]')].map((a) => a.hash.slice(1))"


def test_the_page_tells_every_route_field_and_example(running: Product, console: Console) -> None:
    page = console.page
    openapi: dict[str, Any] = page.request.get("/openapi.json").json()
    page.goto("/docs")
    shown = set(page.locator("h3 code").all_inner_texts())
    routes = {f"{m.upper()} {path}" for _, m, path, _ in reading.operations(openapi)}
    assert shown == routes and len(routes) > 50
    for name, shape in reading.shapes_of(openapi):
        card = page.locator(f"article[aria-labelledby=shape-{name.lower()}]")
        said = card.locator("tbody th").all_text_contents()
        assert said[: len(shape.get("properties", {}))] == list(shape.get("properties", {})), name
    ids: list[str] = page.evaluate(IDS)
    links: list[str] = page.evaluate(LINKS)
    assert len(ids) == len(set(ids)) and not set(links) - set(ids)
    quotes = page.locator("article", has=page.locator("[id='post-/v1/quotes']"))
    quotes.get_by_text("Example: body").first.click()
    expect(quotes.locator("pre").first).to_contain_text('"image"')


def test_no_request_leaves_the_origin_and_the_policy_is_every_pages(
    running: Product, console: Console
) -> None:
    page = console.page
    home = page.goto("/")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto("/docs")
    page.wait_for_load_state("networkidle")
    assert answer is not None and home is not None
    policy = answer.headers["content-security-policy"]
    assert policy == home.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "unsafe" not in policy
    own = urlsplit(running.market).netloc
    assert asked and {urlsplit(url).netloc for url in asked} == {own}
    assert page.locator("script:not([src])").count() == 0
    assert console.said == []


def test_it_can_be_read_by_anybody_on_any_screen(running: Product, console: Console) -> None:
    page = console.page
    page.goto("/docs")
    assert both_themes(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate(OVERFLOW) <= 0
