"""Whether this host's runtimes can put workloads into a mesh."""

from __future__ import annotations

import shutil
from collections.abc import Collection

from adapter.mesh import device
from adapter.runtime.docker.networks import HOLDER, holder_program


def lacks_for_mesh(runtimes: Collection[str]) -> str:
    """What is missing here for members under every one of *runtimes*; empty for nothing."""
    lacks = device.missing()
    if not lacks and "docker" in runtimes and holder_program() is None:
        return f"the program {HOLDER}"
    if not lacks and "process" in runtimes and shutil.which("bwrap") is None:
        return "the program bwrap"
    return lacks
