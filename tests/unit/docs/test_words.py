"""Words of pages, messages and packaging that misled somebody once."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from adapter.config import Config
from marketplace.cli.main import COMMANDS, load

ROOT = Path(__file__).parents[3]
ODD = (
    r"\b1 (ticks|cores|hosts)\b", "decide anew", "what 'explain' names", r"tally\.example",
    "this key may not",
)  # fmt: skip
SAID = ("marketplace", "adapter", "web/assets", "web/templates")


def pages() -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}


def test_every_key_of_the_adapters_file_is_on_the_providers_page() -> None:
    page = pages()["provider.md"]
    other = {  # as the file names them; what is an option of the command alone is left out
        "tick_ms": "tick", "grace_ms": "grace", "pause_limit_ms": "pause_limit",
        "close_period_ms": "close_period", "windows": "maintenance", "slices": "slices", "shelving": "images",
    }  # fmt: skip
    names = [other.get(one.name, one.name) for one in fields(Config)]
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []


@pytest.mark.parametrize("odd", ODD)
def test_what_was_said_oddly_is_said_nowhere(odd: str) -> None:
    found = [
        str(path.relative_to(ROOT))
        for folder in SAID
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".js", ".html") and re.search(odd, path.read_text("utf-8"))
    ]
    assert found == []
    assert [name for name, text in pages().items() if re.search(odd, text)] == []


def test_the_pages_agree_about_several_machines() -> None:
    said = pages()
    [answer] = re.findall(r"\*\*Several machines for one job\?\*\* (.*)", said["faq.md"])
    assert "`gang`" in answer and "Not today" not in answer
    assert "`gang`" in said["jobs.md"]


def test_the_units_and_images_read_the_file_that_the_pages_write() -> None:
    files = ("tally-adapter.service", "adapter.Dockerfile")
    for text in [pages()["provider.md"], *((ROOT / "packaging" / f).read_text() for f in files)]:
        assert "/etc/tally/adapter.toml" in text and "adapter.yaml" not in text
    assert "**Uninstall**" in pages()["provider.md"] and "pipx install" in pages()["provider.md"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_is_plain(name: str) -> None:
    """One style of all: no boxes, which a pipe and a screen reader read aloud."""
    assert load(name).rich_markup_mode is None
