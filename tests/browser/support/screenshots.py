"""Every page of the console, dark and light, at 390 and 1280 px, by one command:

    .venv/bin/python -m tests.browser.support.screenshots [FOLDER]

It starts the whole product with simulated devices and walks past every page (`walk.py`). Without a
FOLDER it takes again the pictures that the docs show, and no others; no test run changes them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.support.png import Camera
from tests.browser.support.product import chromium, product
from tests.browser.support.walk import LONG, views, walk
from tests.ports import free_port
from tests.requires import need_chromium

DOCS = Path(__file__).resolve().parents[3] / "docs"
SHOWN = DOCS / "screenshots"


class Album:
    """Pictures into *folder*: all, or *only* those files."""

    def __init__(self, folder: Path, only: frozenset[str] | None = None) -> None:
        self.folder, self.only = folder, only
        self.camera: Camera | None = None

    def __call__(self, page: Page, name: str) -> None:
        """The page as it stands, in every view."""
        self.camera = self.camera or Camera(page.context)
        for theme, width in views(page):
            file = f"{name}-{theme}-{width}.png"
            if self.only is None or file in self.only:
                self.camera.take(page, self.folder / file, full=name not in LONG)


def main() -> None:
    """Write them."""
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    folder = given or SHOWN
    folder.mkdir(parents=True, exist_ok=True)
    only = None if given else frozenset(file.name for file in SHOWN.glob("*.png"))
    with (
        tempfile.TemporaryDirectory() as home,
        product(Path(home), registry=free_port()) as running,
        chromium(need_chromium()) as browser,
    ):
        context = browser.new_context(base_url=running.market)
        walk(running, context, Path(home), Album(folder, only))
        context.close()
    size = sum(file.stat().st_size for file in folder.glob("*.png"))
    print(f"{len(list(folder.glob('*.png')))} pictures, {size // 1024} KiB in {folder}")


if __name__ == "__main__":
    main()
