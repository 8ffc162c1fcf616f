"""What a new job may start from: job files of ``web/presets``, read as any other.

Their image stands for the one that the form has: which images are here, no file can know.
"""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

from marketplace.console.rendering import folder
from marketplace.domain.work.jobfile import parse
from marketplace.jobtext import tree


class Preset(NamedTuple):
    """*title*: its file's first line, a comment. *spec*: the compact form, JSON."""

    name: str
    title: str
    spec: str


@cache
def presets() -> tuple[Preset, ...]:
    """In the order of their files' names. JobFileRefused for one that no job can be."""
    return tuple(
        _read(file.stem, file.read_text(encoding="utf-8"))
        for file in sorted((folder() / "presets").glob("*.yaml"))
    )


def _read(name: str, text: str) -> Preset:
    spec = parse(tree(text, name), name).spec([])
    title = text.splitlines()[0].removeprefix("#").strip()
    return Preset(name.partition("-")[2], title, json.dumps(spec.to_wire()))
