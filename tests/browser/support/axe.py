"""Accessibility of a page by axe-core, in light and in dark."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

from tests.requires import need_axe


def findings(page: Page) -> list[str]:
    """Everything that axe-core finds, however small, with the elements."""
    # Over the debugging protocol, not as a script of the page: its policy would refuse that.
    page.evaluate(need_axe().read_text())
    found: dict[str, Any] = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{page.url} {v['impact']} {v['id']}: {[n['html'][:120] for n in v['nodes'][:3]]}"
        for v in found["violations"]
    ]


def both_themes(page: Page) -> list[str]:
    """The findings in light and in dark."""
    found: list[str] = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        found += findings(page)
    return found
