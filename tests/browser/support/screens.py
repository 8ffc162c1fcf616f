"""What a page looks like, in words and sizes: what screenshots are compared by, instead of pixels."""

from __future__ import annotations

import re
import struct
from typing import Any

from playwright.sync_api import BrowserContext, Page

from tests.browser.support.axe import findings
from tests.browser.support.walk import LONG, views

READS_THE_CHAIN = ("quote", "quote-warm", "job", "session", "channels", "invoice")
ALL = (
    "h1, h2, h3, th[scope=col], dt, label, button, a.button, legend, summary, figcaption, .hint,"
    " .lead, .notice, .tabs a, .top nav a"
)
FIRST = "h1, .lead, .top nav a"
"""Of a page that is a golden file's already: what it begins with."""
_WORDS = """(which) => [...document.querySelectorAll(which)].filter((el) => el.checkVisibility() && !el.closest("pre")).map((el) => {
  const copy = el.cloneNode(true);
  copy.querySelectorAll(`input, select, textarea, time, code, .key, .ada${el.localName === "figcaption" ? ", span" : ""}`).forEach((one) => one.remove());
  return copy.textContent;
})"""
_VOLATILE = (
    (re.compile(r"\b(job|lease|offer|key|hook)_[0-9A-Za-z]+"), r"\1_…"),
    (re.compile(r"\b[0-9a-f]{6,}…?"), "…"),
    (re.compile(r"[₳$€]?\d[\d.,:\u202f]*"), "#"),
    (re.compile(r"#( ?(ms|s|min|m|h|d)\b)"), "#"),
    (re.compile(r"\s+"), " "),
    (re.compile(r"#( #)+"), "#"),
    (re.compile(r"^Not billed: .*"), ""),  # what there is of it depends on the machine
)


def words(page: Page, which: str) -> list[str]:
    """What *page* shows in elements of *which*, each once and in order; numbers, ids and durations
    are masked.
    """
    texts: list[str] = page.evaluate(_WORDS, which)
    return list(dict.fromkeys(one for text in texts if (one := masked(text))))


def masked(text: str) -> str:
    """Without what differs from one run to the next."""
    for pattern, mask in _VOLATILE:
        text = pattern.sub(mask, text.strip())
    return text


class Screens:
    """A look at every page: `seen` has its size in every view and its words, `faults` what no page
    may have: an accessibility finding, a request that leaves *origin*. The chain's face that the
    market names is read by the pages that judge a transaction or a bill, and by no other.
    """

    def __init__(self, context: BrowserContext, origin: str, chain: str) -> None:
        self._own = (origin, "data:", f"blob:{origin}")
        self._chain = chain
        self.seen: dict[str, Any] = {}
        self.templates: set[str] = set()
        self.faults: list[str] = []
        self.asked: list[tuple[str, str]] = []  # by the page of which address, and what
        context.on("request", lambda one: self.asked.append((one.frame.url, one.url)))

    def __call__(self, page: Page, name: str) -> None:
        """The page as it stands."""
        sizes: dict[str, list[int]] = {}
        for theme, width in views(page):
            self.faults += [f"{name} {theme} {width}: {one}" for one in findings(page)]
            shot = page.screenshot(full_page=name not in LONG, animations="disabled")
            sizes[f"{theme} {width}"] = list(struct.unpack(">II", shot[16:24]))
        self.seen[name] = {"sizes": sizes, "words": words(page, FIRST if name in LONG else ALL)}
        self.templates.add(str(page.evaluate("document.body.dataset.page")))
        own = (*self._own, self._chain) if name in READS_THE_CHAIN else self._own
        here = {frame.url for frame in page.frames}  # others were passed on the way to it
        heard = [url for at, url in self.asked if at in here]
        away = {url for url in heard if not url.startswith(own)}
        self.faults += [f"{name} asks {url}" for url in sorted(away)]
        if not heard:
            self.faults.append(f"{name}: no request was heard")
        self.asked.clear()
