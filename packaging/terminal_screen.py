"""Puts the screen of the console's terminal into the wheel, its license too, where npm has brought
it (``npm ci --prefix web``, as ``make`` does). Who installs an adapter from a checkout needs none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FROM: Final = Path("web/node_modules/@xterm")
PARTS: Final = (
    "xterm/LICENSE",
    "xterm/css/xterm.css",
    "xterm/lib/xterm.js",
    "addon-fit/lib/addon-fit.js",
)


class TerminalScreen(BuildHookInterface):
    """Called by hatchling before it packs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """All parts, or none."""
        parts = [Path(self.root) / FROM / part for part in PARTS]
        if all(part.is_file() for part in parts):
            into = "marketplace/web/screen"
            build_data["force_include"] |= {str(part): f"{into}/{part.name}" for part in parts}
