"""Which release this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The installed distribution's version, ``0`` when it is run from a bare checkout."""
    try:
        return version("tally-compute")
    except PackageNotFoundError:
        return "0"
