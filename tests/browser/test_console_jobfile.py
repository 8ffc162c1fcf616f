"""A new job starts from a preset or a job file, keeps what the form cannot say, and is saved as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from marketplace.client.jobs import jobfiles
from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product
from tests.browser.support.rental import sign_in

pytestmark = pytest.mark.browser
FILE = """\
version: 1
name: from-a-file
image: IMAGE
command: [python, -c, "print('one two')"]
resources: {gpu: {model: [H100, A100], count: 1}, cpu: 0.5, memory: 256MB}
any_of: [{cpu: 2, memory: 512MB}]
env: {EPOCHS: "3"}
price: {budget: 3 ADA, max_per_gpu_second: 3000 lovelace}
policy: {max_duration: 90s, idle_stop: {gpu_below: 5, for: 10m}}
"""
WRONG = "version: 1\nname: x\nimage: python:3.11\ncomand: [a]\nprice: {budget: ten}\n"


def opened(page: Page, tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    page.get_by_label("A job file, YAML or JSON").set_input_files(file)


def test_a_job_file_goes_through_the_form_and_loses_nothing(
    running: Product, console: Console, tmp_path: Path
) -> None:
    page = console.page
    sign_in(console, "/jobs/new")
    page.goto("/jobs/new")
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    opened(page, tmp_path, WRONG)
    wrong = page.locator("#wrong")
    for said in ("a market asks no registry", "did you mean 'command'", "'ten' is not an amount"):
        expect(wrong).to_contain_text(said)
    expect(page.get_by_label("Name", exact=True)).to_have_value("hello")  # nothing half done

    text = FILE.replace("IMAGE", running.image)
    opened(page, tmp_path, text)
    expect(page.get_by_label("Name", exact=True)).to_have_value("from-a-file")
    expect(page.get_by_label("Budget")).to_have_value("3.00")
    expect(page.get_by_label("Longest")).to_have_value("90s")
    expect(wrong).to_be_hidden()
    beyond = page.locator("#beyond")
    for key in ("resources.1", "policy.idle_for_ms", "resources.0.gpu.models"):
        expect(beyond).to_contain_text(key)
    expect(page.locator("#estimate")).to_contain_text("At most", timeout=90 * SECONDS)
    assert both_themes(page) == []

    # One field is changed; all else is saved as it was read.
    page.get_by_label("Budget").fill("4")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save this form as a job file").click()
    assert saved.value.suggested_filename == "from-a-file.yaml"
    was, now = (jobfiles.loads(one).spec() for one in (text, saved.value.path().read_text()))
    assert now.price.budget == 4_000_000
    assert (now.resources, now.policy, now.command, now.env) == (
        was.resources, was.policy, was.command, was.env,
    )  # fmt: skip
    page.get_by_role("button", name="Leave it out").click()
    expect(beyond).to_be_hidden()
    assert console.said == [said for said in console.said if "422" in said]


def test_presets_fill_the_form_also_for_whoever_only_looks(
    running: Product, console: Console
) -> None:
    page = console.page
    page.goto("/jobs/new")
    page.get_by_label("A preset").select_option(label="A command on one core")
    expect(page.get_by_label("Device")).to_have_value("-")
    expect(page.get_by_label("Image")).to_have_value(running.image)
    page.get_by_label("A preset").select_option("patient")
    expect(page.get_by_label("Wait in the queue")).to_be_checked()
    expect(page.get_by_label("At most (₳ an hour)")).to_have_value("1.08")
    expect(page.get_by_label("A job file, YAML or JSON")).to_be_disabled()
    assert console.said == []
