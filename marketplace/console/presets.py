"""What a new job may start from: job files of ``web/presets``, read as any other; and the sessions
of ``tally notebook``, ``tally app`` and ``tally shell``, where a host has their image.

The image of a file stands for the one that the form has: which images are here, no file can know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from marketplace.client.jobs.sessions import APP, NOTEBOOK, SHELL, Program
from marketplace.console.rendering import folder
from marketplace.domain.work.jobfile import parse
from marketplace.jobtext import tree
from marketplace.market.context import Market

SESSION_IDLE_MS: Final = 30 * 60_000
_SESSIONS: Final = (
    (NOTEBOOK, "A notebook", "JupyterLab"),
    (APP, "An app", "a page of yours in Python: add it as app.py"),
    (SHELL, "A terminal", "a shell in a container"),
)


class Preset(NamedTuple):
    """*title*: its file's first line, a comment. *spec*: the compact form, JSON. *more*: what else
    there is to say.
    """

    name: str
    title: str
    spec: str
    more: str = ""


@cache
def presets() -> tuple[Preset, ...]:
    """In the order of their files' names. JobFileRefused for one that no job can be."""
    return tuple(
        _read(file.stem, file.read_text(encoding="utf-8"))
        for file in sorted((folder() / "presets").glob("*.yaml"))
    )


def images_here(market: Market) -> dict[str, str]:
    """Digests by the names under which hosts have images, as providers list them."""
    images: dict[str, str] = {}
    for _, one in market.directory.offers():
        images |= {
            name.removeprefix("image/"): digest
            for name, digest in one.labels.items()
            if name.startswith("image/")
        }
    return images


def sessions(images: Mapping[str, str]) -> tuple[Preset, ...]:
    """Those that a host can run without pulling anything: the image by one of *images*, and all
    that it needs in it.
    """
    found: list[Preset] = []
    for program, title, more in _SESSIONS:
        whole = (program.local,) if program.installs else (program.local, program.image)
        name = next((one for one in whole if one in images), "")
        if name:
            found.append(_session(program, title, more, name, images[name]))
    return tuple(found)


def _session(program: Program, title: str, more: str, image: str, digest: str) -> Preset:
    spec = replace(program.job(image, SESSION_IDLE_MS, ()).spec, image=digest)
    return Preset(program.name, title, json.dumps(spec.to_wire()), more)


def _read(name: str, text: str) -> Preset:
    spec = parse(tree(text, name), name).spec([])
    title = text.splitlines()[0].removeprefix("#").strip()
    return Preset(name.partition("-")[2], title, json.dumps(spec.to_wire()))
