"""The name under which a page's scripts are kept changes with any of them, however deep it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.console import assets


def test_the_version_follows_a_script_in_a_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "folder", lambda: tmp_path)
    script = tmp_path / "assets" / "money" / "payer.js"
    script.parent.mkdir(parents=True)
    script.write_text("export const one = 1;\n")
    before = assets.version()
    assert assets.version() == before
    script.write_text("export const two = 22;\n")
    assert assets.version() != before
