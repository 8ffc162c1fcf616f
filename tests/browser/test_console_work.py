"""Services and images in the console: what is there, who may open or pull it, and its end."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product
from tests.browser.support.rental import end_job, sign_in
from tests.browser.support.work import api, push, serve

pytestmark = pytest.mark.browser


def test_an_image_is_made_public_and_deleted(running: Product, console: Console) -> None:
    page = console.page
    sign_in(console, "/images")
    expect(page.locator("main")).to_contain_text("No image yet")
    assert both_themes(page) == []
    name = push(page, running.image, "train:v1")
    page.reload()
    row = page.locator("tbody tr")
    expect(row).to_contain_text("train:v1")
    expect(row).to_contain_text("you")
    expect(page.locator("main")).to_contain_text(f"docker push {name.rsplit('/', 1)[0]}/NAME")
    assert both_themes(page) == []
    row.get_by_role("button", name="Make public").click()
    row.get_by_role("button", name="Let anybody pull it?").click()
    private = row.get_by_role(
        "button", name="Make private"
    )  # not the word "anybody": the question before has it too
    expect(private).to_be_visible()
    expect(row).to_contain_text("anybody")
    assert [one["public"] for one in api(page, "GET", "/v1/registry/holdings")["items"]] == [True]
    private.click()
    expect(row.get_by_role("button", name="Make public")).to_be_visible()
    row.get_by_role("button", name="Delete", exact=True).click()
    row.get_by_role("button", name="Delete it?").click()
    expect(page.locator("main")).to_contain_text("No image yet")
    assert api(page, "GET", "/v1/registry/holdings")["items"] == []
    assert console.said == []


def test_a_service_is_opened_shared_and_ended(running: Product, console: Console) -> None:
    page = console.page
    sign_in(console, "/services")
    expect(page.locator("main")).to_contain_text("No service yet")
    assert both_themes(page) == []
    job = serve(running, console, "web")
    page.goto("/services")
    card = page.locator("article")
    expect(card).to_contain_text("1 of 1")
    expect(card.locator("tbody tr")).to_contain_text("in rotation")
    assert both_themes(page) == []
    with console.context.expect_page() as opened:
        card.get_by_role("button", name="Open").click()
    expect(opened.value.locator("body")).to_contain_text("Directory listing", timeout=60 * SECONDS)
    opened.value.close()
    card.get_by_role("button", name="Share").click()
    expect(page.locator("#share-link")).to_have_value(re.compile(r"^http://web-.*localhost"))
    card.get_by_role("button", name="End address").click()
    card.get_by_role("button", name="End its address for good?").click()
    expect(page.locator("main")).to_contain_text("No service yet")
    assert api(page, "GET", "/v1/services")["items"] == []
    page.goto(f"/jobs/{job}")
    end_job(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    assert console.said == []
