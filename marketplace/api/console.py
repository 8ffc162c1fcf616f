"""The console: its pages and modules, served as they lie in ``web/``; no build step."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from marketplace.api.auth import Parts

_HERE: Final = Path(__file__).resolve().parents[1]


def folder() -> Path:
    """``web/``: inside the installed package, or beside it in a checkout."""
    packaged = _HERE / "web"
    return packaged if packaged.is_dir() else _HERE.parent / "web"


def install(app: FastAPI, parts: Parts) -> None:
    """Mount the console at ``/``, after every route of the API."""
    del parts
    app.mount("/", StaticFiles(directory=folder(), html=True), name="console")
