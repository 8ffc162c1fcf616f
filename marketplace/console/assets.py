"""The console's scripts, styles and icons, under a name that changes with them.

A page names ``/assets/v-…``: what is there may be kept for ever, so that the next page asks for
nothing, and all modules of a page are of one version, since they import each other by relative
paths. Anything else under ``/assets`` is asked about again each time.
"""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import Final

from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from marketplace.console.rendering import folder

KEPT: Final = "public, max-age=31536000, immutable"
ASKED: Final = "no-cache"


def version() -> str:
    """Names what lies there now: another name for any change of a file."""
    found = hashlib.blake2b(digest_size=6)
    root = folder() / "assets"
    for file in sorted(root.rglob("*")):
        stat = file.stat()
        found.update(f"{file.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return f"v-{found.hexdigest()}"


class Assets(StaticFiles):
    """``/assets/v-…/name`` and ``/assets/name``."""

    def __init__(self, directory: str | PathLike[str] | None = None) -> None:
        super().__init__(directory=directory or folder() / "assets")

    async def get_response(self, path: str, scope: Scope) -> Response:
        """One file; only its own version's name is good for ever."""
        named, rest = Path(path).parts[:1], Path(path).parts[1:]
        versioned = bool(named) and named[0].startswith("v-")
        response = await super().get_response(str(Path(*rest)) if versioned else path, scope)
        fresh = versioned and named[0] == version() and response.status_code in (200, 304)
        response.headers["Cache-Control"] = KEPT if fresh else ASKED
        return response
