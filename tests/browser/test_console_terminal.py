"""A terminal in the console: a session by a click and one signature, a screen that reaches nothing
else, and nobody else's.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product
from tests.browser.support.rental import end_job, sign_in
from tests.browser.support.wallet import Wallet
from tests.browser.support.work import begin, screen_of, shows

pytestmark = pytest.mark.browser
SIZE = 'python3 -c \'import os; print(*os.get_terminal_size(), "of", "size")\''


def test_a_terminal_is_opened_in_the_console_and_its_screen_reaches_nothing(
    running: Product, console: Console, browser: Browser
) -> None:
    page = console.page
    sign_in(console, "/jobs")
    job = begin(console, "A terminal")
    with console.context.expect_page() as opened:
        page.get_by_role("link", name="Terminal").click()
    seat = opened.value
    frame = screen_of(seat)
    frame.locator(".xterm-helper-textarea").focus()
    seat.keyboard.type(f"echo $((6 * 7)) is it; {SIZE}\n")
    shows(frame, "42 is it")
    shows(frame, "of size")
    text = frame.locator(".xterm-rows").inner_text()
    size = re.search(r"(\d+) (\d+) of size\s*\n", text.replace("\xa0", " "))
    assert size is not None and int(size[1]) > 40 and int(size[2]) > 10, repr(text)
    assert both_themes(seat) == []

    # What is shown is parsed where nothing of the console's can be reached.
    tries = """() => Promise.all([
      (async () => localStorage.length)(), (async () => document.cookie)(),
      (async () => parent.document.title)(), fetch("/v1/me"), fetch("https://example.org/")
    ].map((one) => one.then(() => "reached", () => "no")))"""
    assert frame.evaluate(tries) == ["no"] * 5
    assert frame.evaluate("() => origin") == "null"
    seat.keyboard.type(
        "printf '\\033]0;<b>x</b>\\007\\033[31mred <script>alert(1)</script>\\033[0m\\n'\n"
    )
    shows(frame, "red <script>alert(1)</script>")

    # Nobody else sits there: not with another account, and not by a page of another origin.
    other = Wallet(running.chain)
    away = browser.new_context(base_url=running.market)
    try:
        other.install(away)
        stranger = Console.of(away)
        sign_in(stranger)
        answer = stranger.page.goto(f"/jobs/{job}/terminal")
        assert answer is not None and answer.status == 404
        ask = """(job) => new Promise((done) => {
          const at = `${location.origin.replace("http", "ws")}/v1/jobs/${job}/shell?command=sh`;
          const socket = new WebSocket(at, "tally.terminal");
          socket.onopen = () => socket.send(JSON.stringify({ token: localStorage.getItem("tally-token") }));
          socket.onclose = ({ code, reason }) => done([code, reason.split(":")[0]]);
        })"""
        assert stranger.page.evaluate(ask, job) == [1008, "NOT_FOUND"]
        unsaid = ask.replace('localStorage.getItem("tally-token")', '""')
        assert seat.evaluate(unsaid, job) == [
            1008,
            "UNAUTHENTICATED",
        ]  # its cookie counts for nothing
    finally:
        away.close()

    # It ends with its program, and is opened again.
    seat.keyboard.type("exit\n")
    expect(seat.locator("#said")).to_have_text("The terminal has ended.")
    seat.get_by_role("button", name="Open again").click()
    shows(screen_of(seat), "$")
    seat.close()
    page.bring_to_front()
    end_job(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    assert console.said == []
